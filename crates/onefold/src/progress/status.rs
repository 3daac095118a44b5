//! State of a run, and its JSON: restic's `status` and `verbose_status`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use onefold_backup::{Change, Progress};
use serde_json::{Value, json};

use super::Doing;
use crate::{lossless, paths};

/// State of a run.
pub struct RunState {
    /// Kind of work.
    pub doing: Doing,
    /// Time since the start.
    pub elapsed: Duration,
    /// All files and bytes, once they are known.
    pub totals: Option<(u64, u64)>,
    /// Files and bytes that were found or counted so far.
    pub met: (u64, u64),
    /// Bytes read (backup) or written (restore) per second.
    pub moved_per_s: u64,
    /// Bytes of containers stored per second.
    pub stored_per_s: u64,
}

impl RunState {
    /// Returns the bytes done, including those of the current file.
    pub fn bytes_done(&self, progress: &Progress) -> u64 {
        let whole = progress.bytes_done.load(Relaxed);
        match self.doing {
            Doing::Backup | Doing::Estimate | Doing::Copy | Doing::Sync => {
                let ahead = progress.bytes_ahead.load(Relaxed);
                whole + progress.bytes_of_current.load(Relaxed) + ahead
            }
            // A restore writes several files at a time, so moved bytes count.
            Doing::Restore => whole.max(progress.bytes_moved.load(Relaxed)),
        }
    }

    /// Returns the bytes of work done, and of all work: bytes that are read back count twice.
    pub fn work(&self, progress: &Progress, total: u64) -> (u64, u64) {
        let done = self.bytes_done(progress).min(total);
        if !progress.is_verifying.load(Relaxed) {
            (done, total)
        } else {
            let verified = progress.bytes_verified.load(Relaxed).min(done);
            (done + verified, total.saturating_mul(2))
        }
    }

    /// Returns the remaining time at the mean speed so far.
    pub fn eta(&self, progress: &Progress) -> Option<Duration> {
        let (bytes_done, total) = self.work(progress, self.totals?.1);
        let secs = self.elapsed.as_secs_f64();
        if bytes_done == 0 || secs < 1.0 || bytes_done >= total {
            return None;
        }
        let left = secs * (total - bytes_done) as f64 / bytes_done as f64;
        (left < 1e9).then(|| Duration::from_secs_f64(left))
    }
}

/// Returns restic's `status` line.
pub fn json(state: &RunState, progress: &Progress) -> Value {
    let (files, bytes) = (
        progress.files_done.load(Relaxed),
        state.bytes_done(progress),
    );
    // Until the totals are known, the counts so far stand for them, as in restic.
    let (total_files, total_bytes) = state.totals.unwrap_or(state.met);
    let share = match total_bytes {
        0 if state.totals.is_some() => 1.0,
        0 => 0.0,
        _ => {
            let (done, all) = state.work(progress, total_bytes);
            done as f64 / all as f64
        }
    };
    let mut status = json!({
        "message_type": "status",
        "seconds_elapsed": state.elapsed.as_secs(),
        "percent_done": share.min(1.0),
        "total_bytes": total_bytes,
    });
    status[format!("total_{}s", state.doing.unit())] = json!(total_files);
    if let Some(eta) = state.eta(progress) {
        status["seconds_remaining"] = json!(eta.as_secs());
    }
    match state.doing {
        Doing::Backup | Doing::Estimate => {
            status["files_done"] = json!(files);
            status["bytes_done"] = json!(bytes);
            status["bytes_read"] = json!(progress.bytes_moved.load(Relaxed));
            status["bytes_read_per_second"] = json!(state.moved_per_s);
            status["bytes_new"] = json!(progress.bytes_new.load(Relaxed));
            status["bytes_stored"] = json!(progress.bytes_stored.load(Relaxed));
            status["bytes_stored_per_second"] = json!(state.stored_per_s);
            status["error_count"] = json!(progress.errors.load(Relaxed));
            let current = progress.current.lock();
            status["current_files"] = json!([paths::json(&current)]);
            if let Some(all) = lossless::base64_of_all(&[&current[..]]) {
                status["current_files_base64"] = json!(all);
            }
        }
        Doing::Copy | Doing::Sync => {
            status[format!("{}s_done", state.doing.unit())] = json!(files);
            status["bytes_done"] = json!(bytes);
            status["bytes_read"] = json!(progress.bytes_moved.load(Relaxed));
            status["bytes_read_per_second"] = json!(state.moved_per_s);
        }
        Doing::Restore => {
            let skipped = progress.files_skipped.load(Relaxed);
            let skipped_bytes = progress.bytes_skipped.load(Relaxed);
            status["files_restored"] = json!(files.saturating_sub(skipped));
            status["files_skipped"] = json!(skipped);
            status["files_deleted"] = json!(progress.deleted.load(Relaxed));
            status["bytes_restored"] = json!(bytes.saturating_sub(skipped_bytes));
            status["bytes_skipped"] = json!(skipped_bytes);
            status["bytes_restored_per_second"] = json!(state.moved_per_s);
        }
    }
    status
}

/// Returns restic's `verbose_status` line for an entry that is done. The stored bytes of one entry are estimated, as it
/// is compressed with its neighbours.
pub fn verbose(
    doing: Doing,
    path: &[u8],
    change: Change,
    bytes: u64,
    progress: &Progress,
) -> Value {
    let (action, item) = (word(doing, change), paths::json(path));
    let mut line = match doing {
        Doing::Restore => json!({
            "message_type": "verbose_status", "action": action, "item": item, "size": bytes,
        }),
        _ => json!({
            "message_type": "verbose_status", "action": action, "item": item, "duration": 0,
            "data_size": bytes, "data_size_in_repo": packed(bytes, progress),
            "metadata_size": 0, "metadata_size_in_repo": 0,
            "total_files": 0,
        }),
    };
    lossless::add(&mut line, "item", path);
    line
}

/// Estimates the bytes that new chunks take in the repository, if they shrink as earlier ones did.
fn packed(bytes: u64, progress: &Progress) -> u64 {
    let (new, stored) = (
        progress.bytes_new.load(Relaxed),
        progress.bytes_stored.load(Relaxed),
    );
    if new == 0 || stored == 0 {
        return bytes;
    }
    (bytes as f64 * (stored as f64 / new as f64).min(1.0)) as u64
}

/// Returns the `verbose_status` line when the files have been counted.
pub fn scanned(elapsed: Duration, files: u64, bytes: u64) -> Value {
    json!({
        "message_type": "verbose_status", "action": "scan_finished", "item": "",
        "duration": elapsed.as_secs_f64(),
        "data_size": bytes, "data_size_in_repo": 0,
        "metadata_size": 0, "metadata_size_in_repo": 0,
        "total_files": files,
    })
}

/// Returns restic's word for a change.
pub fn word(doing: Doing, change: Change) -> &'static str {
    match (doing, change) {
        (Doing::Restore, Change::New) => "restored",
        (Doing::Restore, Change::Modified) => "updated",
        (_, Change::New) => "new",
        (_, Change::Modified) => "modified",
        (_, Change::Unchanged) => "unchanged",
        (_, Change::Removed) => "deleted",
    }
}
