//! Decides which snapshots to keep: restic's rules, as a pure function of the snapshots, the policy and a time zone.
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

/// Number of snapshots that a rule keeps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Count {
    /// There is no such rule.
    #[default]
    None,
    /// Keep the newest N.
    Some(u64),
    /// Keep all.
    All,
}

/// Calendar period of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Period {
    /// No period: each snapshot counts for itself.
    Last,
    /// An hour: one snapshot is kept of each.
    Hourly,
    /// A day: one snapshot is kept of each.
    Daily,
    /// A week from Monday on: one snapshot is kept of each.
    Weekly,
    /// A month: one snapshot is kept of each.
    Monthly,
    /// A year: one snapshot is kept of each.
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

/// Rules that keep snapshots.
#[derive(Clone, Default, Debug)]
pub struct Policy {
    /// For each [`Period`], in that order: how many snapshots to keep, the newest one of each period.
    pub counts: [Count; 6],
    /// For each [`Period`], in that order: keep one of each period within this span before the newest snapshot of the
    /// group that is not in the future.
    pub within: [Option<Span>; 6],
    /// Keep snapshots that have all tags of one of these lists; an empty list keeps those without tags.
    pub tags: Vec<Vec<String>>,
}

impl Policy {
    /// Whether the policy has no rule. A rule that keeps none, or those within an empty span, is no rule.
    pub fn is_empty(&self) -> bool {
        let says_nothing = |count: &Count| matches!(count, Count::None | Count::Some(0));
        self.counts.iter().all(says_nothing)
            && self.within.iter().flatten().all(|span| span.is_zero())
            && self.tags.is_empty()
    }

    /// Sets how many snapshots to keep of a period.
    pub fn keep(&mut self, period: Period, count: Count) {
        self.counts[period as usize] = count;
    }

    /// Sets the span within which one snapshot of each period is kept.
    pub fn keep_within(&mut self, period: Period, span: Span) {
        self.within[period as usize] = Some(span);
    }
}

/// Reads a length of time in restic's form: `1y2m3d4h` – years, months, days, hours, each at most once, in this order.
///
/// # Errors
/// [`Error::Usage`] with the text: it has another form, or is longer than such a span can be.
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

/// Returns the form that [`parse_span`] reads.
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

/// Properties that snapshots of one series have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupBy {
    /// Whether snapshots of a series must have the same host.
    pub host: bool,
    /// Whether snapshots of a series must have the same paths.
    pub paths: bool,
    /// Whether snapshots of a series must have the same tags.
    pub tags: bool,
}

impl GroupBy {
    /// Grouping by nothing: all snapshots are one series.
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
    /// Reads the user's words: `host,paths,tags` in any choice, or nothing for one group of all.
    ///
    /// # Errors
    /// [`Error::Usage`] with the first unknown word.
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

/// Properties that the snapshots of a group share; a property that does not count is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupKey {
    /// Host, or empty.
    pub host: String,
    /// Paths, or empty.
    pub paths: Vec<Vec<u8>>,
    /// Tags, or empty.
    pub tags: Vec<String>,
}

impl GroupKey {
    /// Returns the key of this snapshot's group.
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

/// Splits snapshots into groups, in the order of hosts, paths and tags; in each group the newest comes first.
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

/// Returns for each snapshot of `group` (newest first) why it is kept, in restic's words ("last snapshot", "daily
/// within 7d"). A snapshot without reasons may be forgotten. An empty policy keeps all. Spans are measured from the
/// newest snapshot that is not in the future at `now`: a wrong clock must not make all others old.
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
        // The oldest snapshot counts as a period of its own, so that a young series reaches as far back as possible.
        let is_repeated = before == Some(bucket);
        if left > 0 && (!is_repeated || i + 1 == group.len()) {
            left -= 1;
            before = Some(bucket);
            reasons[i].push(if is_repeated {
                format!("oldest {} snapshot", word(period))
            } else {
                format!("{} snapshot", word(period))
            });
        }
    }
}

/// Keeps snapshots within a span: `back` is its end and its length. Without an end, or where the span begins before all
/// time, all snapshots are within.
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
        // The oldest snapshot counts as a period of its own, as above.
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

/// Bound on offsets from UTC, in seconds, both signs together: jiff's go up to 26 hours.
const OFFSETS: i64 = 1_000_000;

/// Returns a number that two snapshots share if they are of the same hour, day, week …
fn bucket(time: Time, number: usize, period: Period, zone: &TimeZone) -> i64 {
    let t = zoned(time, zone);
    let (year, month, day) = (
        i64::from(t.year()),
        i64::from(t.month()),
        i64::from(t.day()),
    );
    match period {
        Period::Last => number as i64,
        // When clocks are set back, an hour comes twice, with another offset.
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
    // Times outside of jiff's years −9999…9999 count as the nearest end.
    let end = if time.secs < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    };
    timestamp.unwrap_or(end).to_zoned(zone.clone())
}
