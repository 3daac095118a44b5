//! Which snapshots to keep: restic's rules, as a pure function of the snapshots, the policy and a time zone.
//!
//! Invariant: a snapshot is forgotten only if no rule keeps it; an empty policy keeps everything; the newest
//! snapshot of a group is kept by every rule that counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Span;
use jiff::tz::TimeZone;

use crate::snapshot::Snapshot;
use crate::snapshots::Brief;
use crate::{Error, Result, Time};

/// How many to keep of something.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Count {
    /// The rule says nothing.
    #[default]
    None,
    /// So many.
    Some(u64),
    /// All.
    All,
}

/// A calendar period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Period {
    /// Each snapshot counts for itself.
    Last,
    /// One an hour.
    Hourly,
    /// One a day.
    Daily,
    /// One a week, which begins on Monday.
    Weekly,
    /// One a month.
    Monthly,
    /// One a year.
    Yearly,
}

const PERIODS: [Period; 6] = [
    Period::Last,
    Period::Hourly,
    Period::Daily,
    Period::Weekly,
    Period::Monthly,
    Period::Yearly,
];

/// What to keep.
#[derive(Clone, Default, Debug)]
pub struct Policy {
    /// How many of each period, the newest of each; in the order of [`Period`].
    pub counts: [Count; 6],
    /// Of each period, all that are not older than this before the newest snapshot of the group that is not of the
    /// future; in the order of [`Period`].
    pub within: [Option<Span>; 6],
    /// Those that have all tags of one of these lists; an empty list keeps those without tags.
    pub tags: Vec<Vec<String>>,
}

impl Policy {
    /// Whether it has no rule. To keep none, or those within no time, is no rule.
    pub fn is_empty(&self) -> bool {
        let says_nothing = |count: &Count| matches!(count, Count::None | Count::Some(0));
        self.counts.iter().all(says_nothing)
            && self.within.iter().flatten().all(|span| span.is_zero())
            && self.tags.is_empty()
    }

    /// Sets how many to keep of a period.
    pub fn keep(&mut self, period: Period, count: Count) {
        self.counts[period as usize] = count;
    }

    /// Sets how far back one of each period is kept.
    pub fn keep_within(&mut self, period: Period, span: Span) {
        self.within[period as usize] = Some(span);
    }
}

/// A length of time as restic writes it: `1y2m3d4h` – years, months, days, hours, each at most once, in this order.
///
/// # Errors
/// [`Error::Usage`] with the text: it is not written so, or longer than such a span can be.
pub fn parse_span(text: &str) -> Result<Span> {
    let bad = || Error::Usage(format!("{text:?} is no duration such as 1y2m3d4h"));
    let mut span = Span::new();
    let mut units = ['y', 'm', 'd', 'h'].into_iter();
    let mut rest = text;
    if text.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let n: i64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit = rest[digits..].chars().next().ok_or_else(bad)?;
        units.find(|u| *u == unit).ok_or_else(bad)?;
        span = match unit {
            'y' => span.try_years(n),
            'm' => span.try_months(n),
            'd' => span.try_days(n),
            _ => span.try_hours(n),
        }
        .map_err(|_| bad())?;
        rest = &rest[digits + 1..];
    }
    Ok(span)
}

/// As [`parse_span`] reads it.
fn show_span(span: &Span) -> String {
    let parts = [
        (i64::from(span.get_years()), 'y'),
        (i64::from(span.get_months()), 'm'),
        (i64::from(span.get_days()), 'd'),
        (i64::from(span.get_hours()), 'h'),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n != 0);
    parts.map(|(n, unit)| format!("{n}{unit}")).collect()
}

/// What makes snapshots one series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupBy {
    /// Snapshots of one host.
    pub host: bool,
    /// Snapshots of the same paths.
    pub paths: bool,
    /// Snapshots with the same tags.
    pub tags: bool,
}

impl GroupBy {
    /// All snapshots are one series.
    pub const ALL: Self = Self {
        host: false,
        paths: false,
        tags: false,
    };
}

impl Default for GroupBy {
    fn default() -> Self {
        Self {
            host: true,
            paths: true,
            tags: false,
        }
    }
}

impl GroupBy {
    /// From words as the user writes them: `host,paths,tags`, or nothing for one group of all.
    ///
    /// # Errors
    /// [`Error::Usage`] with the first word that is none of these.
    pub fn parse(text: &str) -> Result<Self> {
        let mut by = Self {
            host: false,
            paths: false,
            tags: false,
        };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word {
                "host" | "hosts" => by.host = true,
                "path" | "paths" => by.paths = true,
                "tag" | "tags" => by.tags = true,
                _ => {
                    return Err(Error::Usage(format!(
                        "cannot group by {word:?}: only by host, paths and tags"
                    )));
                }
            }
        }
        Ok(by)
    }
}

/// What the snapshots of a group share; what does not count is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupKey {
    /// The host.
    pub host: String,
    /// The paths.
    pub paths: Vec<Vec<u8>>,
    /// The tags.
    pub tags: Vec<String>,
}

impl GroupKey {
    /// What this snapshot shares with others of its group.
    pub fn of(snapshot: &Snapshot, by: GroupBy) -> Self {
        let Snapshot {
            host, paths, tags, ..
        } = snapshot;
        Self {
            host: if by.host { host.clone() } else { String::new() },
            paths: if by.paths { paths.clone() } else { Vec::new() },
            tags: if by.tags { tags.clone() } else { Vec::new() },
        }
    }
}

/// Splits into groups, in the order of hosts, paths and tags; each newest first.
pub fn group(snapshots: Vec<Brief>, by: GroupBy) -> Vec<Vec<Brief>> {
    let mut groups: BTreeMap<_, Vec<Brief>> = BTreeMap::new();
    for brief in snapshots {
        let host = by.host.then(|| brief.host.clone());
        let paths = by.paths.then(|| brief.paths.clone());
        let tags = by.tags.then(|| brief.tags.clone());
        groups.entry((host, paths, tags)).or_default().push(brief);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_unstable_by_key(|brief| Reverse((brief.time, brief.id)));
    }
    groups
}

/// Why each of `group` (newest first) is kept, in the words of restic ("last snapshot", "daily within 7d"). No reason:
/// it may be forgotten. An empty policy keeps all. Spans are measured from the newest that is not of the future, seen
/// from `now`: a wrong clock must not make all others old.
pub fn apply(
    group: &[(Time, &[String])],
    policy: &Policy,
    now: Time,
    zone: &TimeZone,
) -> Vec<Vec<String>> {
    let mut reasons = vec![Vec::new(); group.len()];
    if policy.is_empty() {
        reasons
            .iter_mut()
            .for_each(|reasons| reasons.push("no policy".into()));
        return reasons;
    }
    for ((_, tags), reasons) in group.iter().zip(&mut reasons) {
        for wanted in &policy.tags {
            if wanted.is_empty() && tags.is_empty() {
                reasons.push("has no tags".into());
            } else if !wanted.is_empty() && wanted.iter().all(|tag| tags.contains(tag)) {
                reasons.push(format!("has tags {}", wanted.join(",")));
            }
        }
    }
    let newest = group.iter().map(|(time, _)| *time).find(|t| *t <= now);
    for period in PERIODS {
        keep_counted(
            group,
            period,
            policy.counts[period as usize],
            zone,
            &mut reasons,
        );
        if let Some(span) = policy.within[period as usize].filter(|span| !span.is_zero()) {
            keep_within(group, period, (newest, span), zone, &mut reasons);
        }
    }
    reasons
}

fn keep_counted(
    group: &[(Time, &[String])],
    period: Period,
    count: Count,
    zone: &TimeZone,
    reasons: &mut [Vec<String>],
) {
    let mut left = match count {
        Count::None => 0,
        Count::Some(n) => n,
        Count::All => u64::MAX,
    };
    let mut before = None;
    for (i, (time, _)) in group.iter().enumerate() {
        let bucket = bucket(*time, i, period, zone);
        // The oldest counts as one of its own, so that a young series reaches as far back as it can.
        let is_repeated = before == Some(bucket);
        if left > 0 && (!is_repeated || i + 1 == group.len()) {
            left -= 1;
            before = Some(bucket);
            reasons[i].push(match is_repeated {
                true => format!("oldest {} snapshot", word(period)),
                false => format!("{} snapshot", word(period)),
            });
        }
    }
}

/// `back`: from when, and how far. Where that is from no time, or to before all time, everything is within.
fn keep_within(
    group: &[(Time, &[String])],
    period: Period,
    back: (Option<Time>, Span),
    zone: &TimeZone,
    reasons: &mut [Vec<String>],
) {
    let (newest, span) = back;
    let start = newest.and_then(|newest| zoned(newest, zone).checked_sub(span).ok());
    let within = format!("within {}", show_span(&span));
    let mut before = None;
    for (i, (time, _)) in group.iter().enumerate() {
        let is_within = start
            .as_ref()
            .is_none_or(|start| zoned(*time, zone) > *start);
        let bucket = bucket(*time, i, period, zone);
        // The oldest counts as one of its own, as above.
        let is_repeated = before == Some(bucket);
        if is_within && (!is_repeated || i + 1 == group.len()) {
            before = Some(bucket);
            reasons[i].push(match (period, is_repeated) {
                (Period::Last, _) => within.clone(),
                (period, true) => format!("oldest {} {within}", word(period)),
                (period, false) => format!("{} {within}", word(period)),
            });
        }
    }
}

fn word(period: Period) -> &'static str {
    match period {
        Period::Last => "last",
        Period::Hourly => "hourly",
        Period::Daily => "daily",
        Period::Weekly => "weekly",
        Period::Monthly => "monthly",
        Period::Yearly => "yearly",
    }
}

/// More than offsets from UTC there are, in seconds, both signs together: jiff's go up to 26 hours.
const OFFSETS: i64 = 1_000_000;

/// Two snapshots of one bucket are of one hour, day, week …
fn bucket(time: Time, number: usize, period: Period, zone: &TimeZone) -> i64 {
    let t = zoned(time, zone);
    let (year, month, day) = (
        i64::from(t.year()),
        i64::from(t.month()),
        i64::from(t.day()),
    );
    match period {
        Period::Last => number as i64,
        // Where clocks are put back, an hour comes twice, with another offset.
        Period::Hourly => {
            let hour = ((year * 100 + month) * 100 + day) * 100 + i64::from(t.hour());
            hour * OFFSETS + i64::from(t.offset().seconds())
        }
        Period::Daily => (year * 100 + month) * 100 + day,
        Period::Weekly => {
            let week = t.date().iso_week_date();
            i64::from(week.year()) * 100 + i64::from(week.week())
        }
        Period::Monthly => year * 100 + month,
        Period::Yearly => year,
    }
}

fn zoned(time: Time, zone: &TimeZone) -> jiff::Zoned {
    let timestamp = jiff::Timestamp::new(time.secs, time.nanos as i32);
    // Times outside of jiff's years −9999…9999 are as good as their ends.
    let end = if time.secs < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    };
    timestamp.unwrap_or(end).to_zoned(zone.clone())
}
