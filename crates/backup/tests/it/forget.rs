//! Tests of the retention policy: examples, and properties of all series.

use jiff::tz::TimeZone;
use onefold_backup::Time;
use onefold_backup::forget::{Count, Period, Policy, apply, parse_span};
use proptest::prelude::*;

const DAY: i64 = 86_400;

/// A time behind all times of series here.
const NOW: i64 = 2_000_000_000;

fn at(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn reasons(times: &[i64], policy: &Policy) -> Vec<Vec<String>> {
    let group: Vec<(Time, &[String])> = times.iter().map(|secs| (at(*secs), &[][..])).collect();
    apply(&group, policy, at(NOW), &TimeZone::UTC)
}

fn kept(times: &[i64], policy: &Policy) -> Vec<bool> {
    let reasons = reasons(times, policy);
    reasons.iter().map(|reasons| !reasons.is_empty()).collect()
}

fn within(period: Period, span: &str) -> Policy {
    let mut policy = Policy::default();
    policy.keep_within(period, parse_span(span).expect("span"));
    policy
}

fn policy(rules: &[(Period, u64)]) -> Policy {
    let mut policy = Policy::default();
    rules
        .iter()
        .for_each(|(period, n)| policy.keep(*period, Count::Some(*n)));
    policy
}

/// Returns times, newest first, six hours apart, over 40 days.
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
    let kept = kept(&series(), &within(Period::Last, "2d"));
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 8);
    assert!(parse_span("1h2d").is_err() && parse_span("5").is_err() && parse_span("").is_err());
}

#[test]
fn a_snapshot_of_the_future_makes_no_other_old() {
    let times = [NOW + 900 * DAY, NOW - DAY, NOW - 2 * DAY, NOW - 400 * DAY];
    let year = within(Period::Last, "1y");
    assert_eq!(kept(&times, &year), [true, true, true, false]);
    let daily = within(Period::Daily, "1y");
    assert_eq!(kept(&times, &daily), [true, true, true, false]);
    let all_to_come = [NOW + 9000 * DAY, NOW + DAY];
    assert_eq!(kept(&all_to_come, &year), [true, true]);
    assert_eq!(kept(&[NOW, NOW - 400 * DAY], &year), [true, false]);
}

#[test]
fn the_oldest_within_is_kept_as_restic_keeps_it() {
    let day = 1_700_006_400;
    let times = [day + 9000, day + 6000, day + 3000];
    assert_eq!(
        reasons(&times, &within(Period::Daily, "1m7d")),
        [
            vec!["daily within 1m7d"],
            vec![],
            vec!["oldest daily within 1m7d"]
        ]
    );
    let last = reasons(&times, &within(Period::Last, "1h"));
    assert_eq!(last, [vec!["within 1h"], vec!["within 1h"], vec![]]);
    // A snapshot outside of the span is not kept for being the oldest.
    let hourly = kept(&[day, day - 60, day - DAY], &within(Period::Hourly, "2h"));
    assert_eq!(hourly, [true, true, false]);
}

/// In Central Europe, clocks went from 03:00 back to 02:00 on 2026-10-25.
#[test]
fn of_the_hour_that_comes_twice_in_autumn_hourly_keeps_both() {
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    let summer = 1_792_888_200; // 00:30 UTC, 02:30 in summer time
    let winter = summer + 3600;
    let times = [winter + 3600, winter + 60, winter, summer, summer - 3600];
    let group = times.map(|secs| (at(secs), &[][..]));
    for hourly in [policy(&[(Period::Hourly, 9)]), within(Period::Hourly, "1d")] {
        let reasons = apply(&group, &hourly, at(NOW), &zone);
        let kept: Vec<_> = reasons.iter().map(|why| !why.is_empty()).collect();
        assert_eq!(kept, [true, true, false, true, true]);
    }
    let daily = apply(&group, &policy(&[(Period::Daily, 9)]), at(NOW), &zone);
    let kept = daily.iter().filter(|why| !why.is_empty()).count();
    assert_eq!(kept, 2, "the newest of the day, and the oldest of all");
}

#[test]
fn to_keep_none_is_no_rule() {
    let mut none = policy(&[(Period::Last, 0), (Period::Daily, 0)]);
    none.keep_within(Period::Last, parse_span("0h").expect("span"));
    assert!(none.is_empty());
    assert!(kept(&series(), &none).iter().all(|kept| *kept));
    none.keep(Period::Last, Count::Some(1));
    assert!(!none.is_empty());
    let kept = kept(&series(), &none);
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 1);
}

#[test]
fn no_tags_are_asked_for_by_an_empty_list() {
    let tagged = ["a".to_owned()];
    let group = [(at(2), &tagged[..]), (at(1), &[][..])];
    let policy = Policy {
        tags: vec![Vec::new()],
        ..Policy::default()
    };
    let reasons = apply(&group, &policy, at(NOW), &TimeZone::UTC);
    assert_eq!(reasons, [vec![], vec!["has no tags"]]);
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
