//! Progress of a sweep, a check or a repair, and its waits for other processes.

use std::time::{Duration, Instant};

use onefold_backup::roots::SnapshotRoots;
use onefold_store::{
    ChunkReader, ChunkRef, Error as StoreError, PinInfo, ROOT_FOLDER, RootId, Roots, Seen,
    StageProgress, SweepObserver, SweepReport,
};
use serde_json::{Value, json};

use crate::error::{self, Error, Result};
use crate::human::{bytes, count, many};
use crate::out::{self, Out};
use crate::patience::{BRIEF, SILENT, tell_waiting};
use crate::progress::{bar, line};
use crate::select::SHORT_ID;
use crate::signal;

/// Interval at which ends of other processes are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Interval at which the line on a terminal changes.
const TICK: Duration = Duration::from_millis(100);

/// Shows stages on a terminal, and waits for sessions up to a limit.
pub struct SweepWatch<'a> {
    out: &'a Out,
    wait_max: Duration,
    waiting_since: Option<Instant>,
    /// Time since which other processes have been changing the set of snapshots.
    changing_since: Option<Instant>,
    tells_waiting: bool,
    shown: Option<(&'static str, Instant)>,
}

impl<'a> SweepWatch<'a> {
    /// Makes a watch that waits at most `wait_max` for sessions that still run.
    pub fn new(out: &'a Out, wait_max: Duration) -> Self {
        Self {
            out,
            wait_max,
            waiting_since: None,
            changing_since: None,
            tells_waiting: !(out.bar || out.quiet),
            shown: None,
        }
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: StageProgress) {
        let StageProgress { stage, done, total } = progress;
        let now = Instant::now();
        let is_fresh = |(last, at): (&str, Instant)| last == stage && now - at < TICK;
        if !self.out.bar || self.shown.is_some_and(is_fresh) {
            return;
        }
        self.shown = Some((stage, now));
        let share = (done * 100).checked_div(total).unwrap_or(0).min(100);
        let parts = vec![
            (0, format!("{share}%")),
            (1, stage.to_owned()),
            (2, format!("{}/{}", count(done), count(total.max(done)))),
        ];
        self.line(parts);
    }

    fn line(&self, parts: Vec<bar::Part>) {
        if self.out.bar {
            line::show(&bar::fit(parts, "", line::width()));
        }
    }

    /// Prints a line beside the progress line.
    pub fn note(&self, line: impl std::fmt::Display) {
        self.out.note(line);
    }
}

impl Drop for SweepWatch<'_> {
    fn drop(&mut self) {
        line::clear();
    }
}

impl SweepObserver for SweepWatch<'_> {
    fn progress(&mut self, progress: StageProgress) {
        self.show(progress);
    }

    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.wait_max || signal::raised() {
            return false;
        }
        if let Some(first) = sessions.first() {
            let first = out::safe(&first.to_string());
            let more = match sessions.len() {
                1 => String::new(),
                n => format!("and {} more", n - 1),
            };
            let waited = since.elapsed();
            if waited >= SILENT && std::mem::take(&mut self.tells_waiting) {
                let whom = format!("for {first} {more}");
                let left = self.wait_max.saturating_sub(waited);
                tell_waiting(self.out, left, whom.trim_end());
            }
            self.line(vec![(0, format!("waiting for {first}")), (1, more)]);
        }
        std::thread::sleep(LOOK.min(self.wait_max));
        true
    }

    fn wait_for_change(&mut self, what: &str) -> bool {
        let since = *self.changing_since.get_or_insert_with(Instant::now);
        let (waited, wait_max) = (since.elapsed(), self.wait_max.max(BRIEF));
        if waited >= wait_max || signal::raised() {
            return false;
        }
        if waited >= SILENT && std::mem::take(&mut self.tells_waiting) {
            let left = wait_max.saturating_sub(waited);
            tell_waiting(self.out, left, &format!("for another: {what}"));
        }
        std::thread::sleep(LOOK);
        true
    }
}

/// Snapshots without some of them, to find out what forgetting these would free.
pub struct Without<'a>(pub &'a [RootId]);

impl Roots for Without<'_> {
    fn for_each_ref(
        &self,
        id: &RootId,
        root: &[u8],
        reader: &mut ChunkReader,
        seen: &mut Seen,
        visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
    ) -> onefold_store::Result<()> {
        SnapshotRoots.for_each_ref(id, root, reader, seen, visit)
    }

    fn is_left_out(&self, id: &RootId) -> bool {
        self.0.contains(id)
    }
}

/// Returns the error of a sweep that an unreadable snapshot stops, with a way to remove the snapshot.
pub fn unread_named(error: StoreError) -> Error {
    let Some(name) = error
        .damaged_object()
        .and_then(|object| object.strip_prefix(ROOT_FOLDER)?.get(1..=SHORT_ID))
    else {
        return error.into();
    };
    Error::Hurt {
        what: format!(
            "snapshot {name} cannot be read; `onefold forget {name}` drops it: {}",
            error::chain_of(&error)
        ),
        remedy: None,
    }
}

/// Prints what a sweep did, or would do.
pub fn print(report: &SweepReport, dry_run: bool, out: &Out) -> Result<()> {
    if out.json {
        return out.json(&as_json(report, dry_run));
    }
    let rewritten = report.compacted_containers;
    out.say(format_args!(
        "stored     {} in {}",
        bytes(report.stored_bytes),
        many(report.containers, "container")
    ))?;
    out.say(format_args!(
        "unused     {} in {}",
        bytes(report.dead_bytes),
        many(report.dead_containers, "container")
    ))?;
    out.say(format_args!(
        "partly     {} unused in {} worth rewriting, {} in others",
        bytes(report.compacted_dead_bytes),
        many(rewritten, "container"),
        bytes(report.unused_bytes_left)
    ))?;
    if dry_run {
        return out.say(format_args!("would free {}", bytes(reclaimable(report))));
    }
    out.say(format_args!(
        "freed      {} ({} deleted)",
        bytes(report.freed_bytes),
        many(report.deleted_containers, "container")
    ))?;
    if report.pending_containers > 0 {
        out.say(format_args!(
            "left       {} to the next prune: others are running that may still need them",
            many(report.pending_containers, "container")
        ))?;
    }
    if report.graced_containers > 0 {
        out.say(format_args!(
            "left       {} to a prune after their grace (--grace)",
            many(report.graced_containers, "container")
        ))?;
    }
    Ok(())
}

/// Bytes that a sweep would free.
pub fn reclaimable(report: &SweepReport) -> u64 {
    report.dead_bytes + report.compacted_dead_bytes
}

fn as_json(report: &SweepReport, dry_run: bool) -> Value {
    let unused = reclaimable(report) + report.unused_bytes_left;
    let gone = report.dead_containers + report.compacted_containers;
    json!({
        "message_type": "summary",
        "dry_run": dry_run,
        "containers": report.containers,
        "stored_bytes": report.stored_bytes,
        "unused_containers": report.dead_containers,
        "unused_bytes": report.dead_bytes,
        "rewritten_containers": report.compacted_containers,
        "rewritten_bytes": report.compacted_bytes,
        "unused_bytes_left": report.unused_bytes_left,
        "reclaimable_bytes": reclaimable(report),
        "deleted_containers": report.deleted_containers,
        "freed_bytes": report.freed_bytes,
        "pending_containers": report.pending_containers,
        "graced_containers": report.graced_containers,
        // restic's words, as far as they have a meaning here.
        "bytes": {
            "used": report.stored_bytes.saturating_sub(unused),
            "unused": unused,
            "total": report.stored_bytes,
            "repack": report.compacted_bytes,
            "repack_remove": report.compacted_dead_bytes,
            "remove": report.dead_bytes,
            "remove_total": reclaimable(report),
            "remaining": report.stored_bytes.saturating_sub(reclaimable(report)),
            "remaining_unused": report.unused_bytes_left,
        },
        "packfiles": {
            "unused": report.dead_containers,
            "total": report.containers,
            "keep": report.containers.saturating_sub(gone),
            "repack": report.compacted_containers,
            "remove": report.dead_containers,
            "remove_total": gone,
        },
    })
}
