//! What a sweep, a check or a repair shows while it runs, and how long it waits for others.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onefold_backup::roots::SnapshotRoots;
use onefold_store::{
    ChunkReader, ChunkRef, PinInfo, Progress, RootId, Roots, SweepObserver, SweepReport,
};
use serde_json::{Value, json};

use crate::error::Result;
use crate::human::{bytes, many};
use crate::out::Out;
use crate::signal;

/// How often it is looked whether others have ended.
const LOOK: Duration = Duration::from_millis(200);

/// Shows stages on a terminal, and waits for sessions up to a limit.
pub struct Watch<'a> {
    out: &'a Out,
    bar: Option<ProgressBar>,
    wait_max: Duration,
    waiting_since: Option<Instant>,
}

impl<'a> Watch<'a> {
    /// Waits at most `wait_max` for sessions that still run.
    pub fn new(out: &'a Out, wait_max: Duration) -> Self {
        let bar = out.bar.then(|| {
            ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10))
        });
        if let (Some(bar), Ok(style)) = (
            &bar,
            ProgressStyle::with_template("{spinner} {msg} {pos}/{len}"),
        ) {
            bar.set_style(style);
        }
        Self {
            out,
            bar,
            wait_max,
            waiting_since: None,
        }
    }

    /// Shows how far it is.
    pub fn show(&mut self, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        bar.set_message(progress.stage);
        bar.set_length(progress.total.max(progress.done));
        bar.set_position(progress.done);
    }

    /// Prints beside the bar.
    pub fn note(&self, line: impl std::fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.note(line)),
            None => self.out.note(line),
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl SweepObserver for Watch<'_> {
    fn progress(&mut self, progress: Progress) {
        self.show(progress);
    }

    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.wait_max || signal::raised() {
            return false;
        }
        if let (Some(bar), Some(first)) = (&self.bar, sessions.first()) {
            bar.set_message(format!(
                "waiting for {} ({}); {} in all:",
                first.activity,
                first.host,
                sessions.len()
            ));
        }
        std::thread::sleep(LOOK.min(self.wait_max));
        true
    }
}

/// Snapshots as they would be without some of them: for asking what forgetting would free.
pub struct Without<'a>(pub &'a [RootId]);

impl Roots for Without<'_> {
    fn for_each_ref(
        &self,
        id: &RootId,
        root: &[u8],
        reader: &mut ChunkReader,
        seen: &mut dyn FnMut(&ChunkRef) -> bool,
        visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
    ) -> onefold_store::Result<()> {
        if self.0.contains(id) {
            return Ok(());
        }
        SnapshotRoots.for_each_ref(id, root, reader, seen, visit)
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
        return out.say(format_args!("reclaimable {}", bytes(reclaimable(report))));
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
    Ok(())
}

/// Bytes that a sweep would free.
pub fn reclaimable(report: &SweepReport) -> u64 {
    report.dead_bytes + report.compacted_dead_bytes
}

fn as_json(report: &SweepReport, dry_run: bool) -> Value {
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
    })
}
