//! The retention policy: examples, and what holds for all series.

use jiff::tz::TimeZone;
use onefold_backup::Time;
use onefold_backup::forget::{Count, Period, Policy, apply, parse_span};
use proptest::prelude::*;

const DAY: i64 = 86_400;

fn kept(times: &[i64], policy: &Policy) -> Vec<bool> {
    let group: Vec<(Time, &[String])> = times
        .iter()
        .map(|secs| {
            (
                Time {
                    secs: *secs,
                    nanos: 0,
                },
                &[][..],
            )
        })
        .collect();
    apply(&group, policy, &TimeZone::UTC)
        .iter()
        .map(|reasons| !reasons.is_empty())
        .collect()
}

fn policy(rules: &[(Period, u64)]) -> Policy {
    let mut policy = Policy::default();
    rules
        .iter()
        .for_each(|(period, n)| policy.keep(*period, Count::Some(*n)));
    policy
}

/// Newest first, six hours apart, 40 days.
fn series() -> Vec<i64> {
    (0..160).map(|i| 1_700_000_000 - i * DAY / 4).collect()
}

#[test]
fn last_keeps_the_newest_and_nothing_else() {
    let kept = kept(&series(), &policy(&[(Period::Last, 3)]));
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 3);
    assert!(kept[..3].iter().all(|kept| *kept));
}

#[test]
fn daily_keeps_the_newest_of_each_day() {
    let times = series();
    let kept = kept(&times, &policy(&[(Period::Daily, 7)]));
    let days: Vec<i64> = times
        .iter()
        .zip(&kept)
        .filter(|(_, kept)| **kept)
        .map(|(time, _)| time / DAY)
        .collect();
    assert_eq!(days.len(), 7);
    assert!(days.windows(2).all(|pair| pair[0] == pair[1] + 1));
}

#[test]
fn a_young_series_keeps_its_oldest() {
    let kept = kept(&series()[..8], &policy(&[(Period::Yearly, 5)]));
    assert_eq!(kept, [true, false, false, false, false, false, false, true]);
}

#[test]
fn within_counts_from_the_newest() {
    let mut policy = Policy::default();
    policy.keep_within(Period::Last, parse_span("2d").expect("span"));
    assert_eq!(
        kept(&series(), &policy)
            .iter()
            .filter(|kept| **kept)
            .count(),
        8
    );
    assert!(parse_span("1h2d").is_err() && parse_span("5").is_err() && parse_span("").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rules_only_ever_keep_more(
        mut times in prop::collection::vec(0..2_000_000_000i64, 1..60),
        rules in prop::collection::vec((0..6usize, 1..6u64), 1..4),
        extra in (0..6usize, 1..6u64),
    ) {
        let periods = [Period::Last, Period::Hourly, Period::Daily, Period::Weekly, Period::Monthly, Period::Yearly];
        times.sort_by(|a, b| b.cmp(a));
        let few: Vec<_> = rules.iter().map(|(period, n)| (periods[*period], *n)).collect();
        let mut policy_few = policy(&few);
        let before = kept(&times, &policy_few);
        prop_assert!(before[0], "the newest is kept");
        let most: u64 = few.iter().map(|(_, n)| n).sum();
        prop_assert!(before.iter().filter(|kept| **kept).count() as u64 <= most);
        if policy_few.counts[extra.0] == Count::None {
            policy_few.keep(periods[extra.0], Count::Some(extra.1));
            let after = kept(&times, &policy_few);
            prop_assert!(before.iter().zip(&after).all(|(before, after)| !before || *after));
        }
    }
}
