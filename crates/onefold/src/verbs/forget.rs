//! `onefold forget`: drops snapshots, by id or by a policy.

use std::ffi::OsString;
use std::time::Duration;

use jiff::Span;
use jiff::tz::TimeZone;
use onefold_backup::forget::{self, Count, GroupBy, Period, Policy};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots::Brief;
use onefold_store::{Repository, RootId, SweepReport};
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{bytes, many};
use crate::json::{self, Array, SnapshotJson};
use crate::out::Out;
use crate::patience::{self, Patience};
use crate::select::{self, FilterArgs, Unread, short, tag_list};
use crate::sweeping::{self, SweepWatch, Without};
use crate::verbs::prune::{self, How};
use crate::{group, out, repository, when};

/// Drop snapshots, by id or by a policy
///
/// A snapshot is dropped only if no rule keeps it. Space comes back with the next prune, or at once with --prune.
#[derive(clap::Args, Debug)]
// -H is restic's short form of --keep-hourly here, and of --host elsewhere.
#[command(mut_arg("filter_host", |arg| arg.short(None)))]
pub struct Args {
    /// Beginnings of ids, or "latest": exactly these are dropped
    #[arg(value_name = "SNAPSHOT", conflicts_with = "keep")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Words that snapshots of one series share, to which the rules apply: a list of host, paths, tags
    #[arg(short, long, value_name = "WORDS", default_value = "host,paths", value_parser = group::parse)]
    pub group_by: GroupBy,

    /// List only what is dropped
    #[arg(short, long)]
    pub compact: bool,

    /// Only say what would be dropped, and what that would free
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Reclaim the space at once, as `onefold prune` does; with --dry-run, say what it would free and rewrite
    #[arg(long)]
    pub prune: bool,

    #[command(flatten)]
    pub how: How,

    /// Let rules drop all snapshots of a series; without rules, drop all that --host, --tag or --path mean
    #[arg(long)]
    pub unsafe_allow_remove_all: bool,

    #[command(flatten)]
    pub keep: Keep,
}

/// Rules of a policy. N is a number, or "unlimited".
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Rules")]
#[group(id = "keep", multiple = true)]
pub struct Keep {
    /// Keep the newest N snapshots; here and below, N may be "unlimited"
    #[arg(short = 'l', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_last: Option<Count>,
    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(short = 'H', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_hourly: Option<Count>,
    /// Keep the newest snapshot of each of the last N days that have one
    #[arg(short = 'd', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_daily: Option<Count>,
    /// Keep the newest snapshot of each of the last N weeks that have one
    #[arg(short = 'w', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_weekly: Option<Count>,
    /// Keep the newest snapshot of each of the last N months that have one
    #[arg(short = 'm', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_monthly: Option<Count>,
    /// Keep the newest snapshot of each of the last N years that have one
    #[arg(short = 'y', long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub keep_yearly: Option<Count>,
    /// Keep all snapshots that are at most this much older than the newest, such as 1y5m7d2h
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within: Option<Span>,
    /// Keep one snapshot an hour within the span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within_hourly: Option<Span>,
    /// Keep one snapshot a day within the span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within_daily: Option<Span>,
    /// Keep one snapshot a week within the span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within_weekly: Option<Span>,
    /// Keep one snapshot a month within the span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within_monthly: Option<Span>,
    /// Keep one snapshot a year within the span
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub keep_within_yearly: Option<Span>,
    /// Keep all snapshots with all of these tags (repeatable; '' for those without tags)
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub keep_tag: Vec<String>,
}

fn parse_count(text: &str) -> Result<Count, String> {
    match text.parse::<u64>() {
        _ if text == "unlimited" || text == "-1" => Ok(Count::All),
        Ok(n) => Ok(Count::Some(n)),
        Err(_) => Err(format!("{text:?} is neither a number nor \"unlimited\"")),
    }
}

fn parse_span(text: &str) -> Result<Span, String> {
    forget::parse_span(text).map_err(|e| e.to_string())
}

impl Keep {
    fn policy(&self) -> Policy {
        let mut policy = Policy {
            tags: self.keep_tag.iter().map(|list| tag_list(list)).collect(),
            ..Policy::default()
        };
        for (period, count, within) in [
            (Period::Last, self.keep_last, self.keep_within),
            (Period::Hourly, self.keep_hourly, self.keep_within_hourly),
            (Period::Daily, self.keep_daily, self.keep_within_daily),
            (Period::Weekly, self.keep_weekly, self.keep_within_weekly),
            (Period::Monthly, self.keep_monthly, self.keep_within_monthly),
            (Period::Yearly, self.keep_yearly, self.keep_within_yearly),
        ] {
            count
                .into_iter()
                .for_each(|count| policy.keep(period, count));
            within
                .into_iter()
                .for_each(|span| policy.keep_within(period, span));
        }
        policy
    }
}

/// A series, newest snapshot first, with the reasons to keep each: one without a reason is dropped.
struct Judged {
    series: Vec<Brief>,
    reasons: Vec<Vec<String>>,
}

impl Judged {
    fn keep(&self) -> impl Iterator<Item = (&Brief, &[String])> {
        let judged = self.series.iter().zip(&self.reasons);
        let judged = judged.map(|(brief, reasons)| (brief, &reasons[..]));
        judged.filter(|(_, reasons)| !reasons.is_empty())
    }

    fn remove(&self) -> impl Iterator<Item = &Brief> {
        let judged = self.series.iter().zip(&self.reasons);
        judged.filter_map(|(brief, reasons)| reasons.is_empty().then_some(brief))
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let policy = args.keep.policy();
    let filter = args.filter.filter()?;
    let all_of_some = args.unsafe_allow_remove_all && !filter.is_empty();
    if args.snapshots.is_empty() && policy.is_empty() && !all_of_some {
        return Err(Error::Usage("nothing says what to keep: give rules such as --keep-daily 7, ids of snapshots to drop, or --unsafe-allow-remove-all with --host, --tag or --path".into()));
    }
    let repository = repository::open(global, "forgetting")?;
    let lock = patience::lock_roots(global, &repository, (args.dry_run, out))?;
    let mut unread = Unread::default();
    let gone: Vec<RootId> = if !args.snapshots.is_empty() {
        select::ids(&repository, &args.snapshots, &filter)?
    } else {
        let all;
        (all, unread) = select::many_or_not(&repository, &[], &filter, out)?;
        let judged = judge(&repository, all, &policy, args)?;
        match show(&repository, &judged, args, out) {
            // A closed standard output does not end the verb.
            Err(Error::Closed) => {}
            shown => shown?,
        }
        let gone = judged.iter().flat_map(Judged::remove);
        gone.map(|brief| brief.id).collect()
    };
    if let Some(lock) = lock {
        lock.replace(None, &[], &gone)?;
    }
    if out.json && !args.snapshots.is_empty() {
        let ids: Vec<_> = gone.iter().map(RootId::to_string).collect();
        out.json(
            &json!({"message_type": "summary", "dry_run": args.dry_run, "removed_snapshots": ids}),
        )?;
    }
    let did = if args.dry_run {
        "would drop"
    } else {
        "dropped"
    };
    out.say(format_args!(
        "{did} {}",
        many(gone.len() as u64, "snapshot")
    ))?;
    reclaim(args, global, &repository, &gone, out)?;
    unread.end()
}

fn judge(
    repository: &Repository,
    chosen: Vec<Brief>,
    policy: &Policy,
    args: &Args,
) -> Result<Vec<Judged>> {
    let now = when::now();
    let mut judged = Vec::new();
    for series in forget::group(chosen, args.group_by) {
        let ages = series.iter().map(|brief| (brief.time, &brief.tags[..]));
        let ages: Vec<_> = ages.collect();
        let reasons = if policy.is_empty() {
            vec![Vec::new(); ages.len()]
        } else {
            forget::apply(&ages, policy, now, &TimeZone::system())
        };
        if reasons.iter().all(Vec::is_empty) && !args.unsafe_allow_remove_all {
            let key = group::key(repository, &series, args.group_by)?;
            let of = key.map(|key| group::shown(args.group_by, &key));
            return Err(Error::Failed(format!(
                "the rules would drop all snapshots of {}; say --unsafe-allow-remove-all if that is meant. Nothing was dropped",
                of.unwrap_or_default()
            )));
        }
        judged.push(Judged { series, reasons });
    }
    Ok(judged)
}

fn show(repository: &Repository, judged: &[Judged], args: &Args, out: &Out) -> Result<()> {
    let by = args.group_by;
    if out.json {
        let mut all = Array::new(out);
        for judged in judged {
            as_json(repository, judged, by, &mut all, out)?;
        }
        all.end()?;
        out.bytes(b"\n")?;
        return out.flush();
    }
    for judged in judged {
        let Some(key) = group::key(repository, &judged.series, by)? else {
            continue;
        };
        out.say(format_args!("snapshots of {}:", group::shown(by, &key)))?;
        for (brief, reasons) in judged.keep().filter(|_| !args.compact) {
            out.say(format_args!(
                "  keep  {}  {}  {}",
                short(&brief.id),
                when::local(brief.time),
                out::safe(&reasons.join(", "))
            ))?;
        }
        for brief in judged.remove() {
            out.say(format_args!(
                "  drop  {}  {}",
                short(&brief.id),
                when::local(brief.time)
            ))?;
        }
    }
    Ok(())
}

/// Writes the decisions about a series, snapshot by snapshot: each may have a long list of paths.
fn as_json(
    repository: &Repository,
    judged: &Judged,
    by: GroupBy,
    all: &mut Array<'_>,
    out: &Out,
) -> Result<()> {
    let Some(key) = group::key(repository, &judged.series, by)? else {
        return Ok(());
    };
    let key = group::json(by, &key);
    let kept = judged.keep().map(|(brief, _)| brief);
    all.next(&format!("{{\"host\":{},\"keep\":", key["hostname"]))?;
    json::snapshots(repository, kept, out)?;
    out.bytes(format!(",\"paths\":{}", key["paths"]).as_bytes())?;
    if let Some(paths) = key.get("paths_base64") {
        out.bytes(format!(",\"paths_base64\":{paths}").as_bytes())?;
    }
    out.bytes(b",\"reasons\":")?;
    let mut reasons = Array::new(out);
    for (brief, matches) in judged.keep() {
        if let Some(named) = brief.whole(repository)? {
            let snapshot = SnapshotJson::from(&*named);
            reasons.push(&json!({"snapshot": snapshot, "matches": matches}))?;
        }
    }
    reasons.end()?;
    out.bytes(b",\"remove\":")?;
    json::snapshots(repository, judged.remove(), out)?;
    out.bytes(format!(",\"tags\":{}}}", key["tags"]).as_bytes())
}

/// Reclaims space with `--prune`; without, prints how much could be reclaimed, if that is shown.
fn reclaim(
    args: &Args,
    global: &Global,
    repository: &Repository,
    gone: &[RootId],
    out: &Out,
) -> Result<()> {
    if args.prune {
        let patience = Patience::new(global, out);
        return patience.keep(|| {
            if args.dry_run {
                prune::sweep(repository, &Without(gone), &args.how, true, out)
            } else {
                prune::sweep(repository, &SnapshotRoots, &args.how, false, out)
            }
        });
    }
    if gone.is_empty() || out.quiet || out.json {
        return Ok(());
    }
    let look = args.how.options(true);
    let mut watch = SweepWatch::new(out, Duration::ZERO);
    let looked = repository.sweep(&Without(gone), &look, &mut watch);
    drop(watch);
    let report: SweepReport = match looked.map_err(Error::from) {
        // The snapshots were dropped, so this error is only noted.
        Err(error) if error.exit() != Exit::Interrupted && !args.dry_run => {
            out.note(format_args!(
                "how much can be reclaimed is not known: {}",
                out::safe(&error.chain())
            ));
            return Ok(());
        }
        other => other?,
    };
    let reclaimable = bytes(sweeping::reclaimable(&report));
    match args.dry_run {
        false if sweeping::reclaimable(&report) == 0 => out.say("nothing can be reclaimed by that"),
        true => out.say(format_args!("that would make {reclaimable} reclaimable")),
        false => out.say(format_args!(
            "{reclaimable} can be reclaimed now: run `onefold prune`"
        )),
    }
}
