//! `--retry-lock`: an operation that another process keeps from running is tried again until the time is up. The other
//! process is a prune or a repair, or (for a minute at least) one that chooses snapshots to remove. After a while the
//! user is told what is waited for.

use std::cell::Cell;
use std::time::{Duration, Instant};

use onefold_store::{Repository, RootsLock};
use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::{self, Out};
use crate::signal;

/// Time that passes before the user is told.
pub const SILENT: Duration = Duration::from_secs(2);

/// Interval between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Longest time to choose snapshots and drop them: many, on a slow disk.
pub const BRIEF: Duration = Duration::from_secs(60);

/// Takes the lock for choosing snapshots to remove; `None` in a dry run.
pub fn lock_roots(
    global: &Global,
    repository: &Repository,
    (dry_run, out): (bool, &Out),
) -> Result<Option<RootsLock>> {
    if dry_run {
        return Ok(None);
    }
    let patience = Patience::with_the_brief(global, out);
    Ok(Some(patience.keep(|| Ok(repository.lock_roots()?))?))
}

/// Prints that another process is waited for, at most `left` from now on; `why` names it.
pub fn tell_waiting(out: &Out, left: Duration, why: &str) {
    let words = format!(
        "waiting at most {:.0} s more {why}",
        left.as_secs_f64().ceil()
    );
    if out.json {
        out.note_json(&json!({"message_type": "waiting", "message": words}))
    } else {
        out.note(words)
    }
}

/// Limit of time for tries.
pub struct Patience<'a> {
    since: Instant,
    wait_max: Duration,
    is_told: Cell<bool>,
    out: &'a Out,
}

impl<'a> Patience<'a> {
    /// Makes the limit of the command line; without an option, there is one try.
    pub fn new(global: &Global, out: &'a Out) -> Self {
        Self {
            since: Instant::now(),
            wait_max: global.retry_lock.unwrap_or_default(),
            is_told: Cell::new(out.quiet),
            out,
        }
    }

    /// Makes the limit of the command line, but at least long enough for short operations of other processes.
    pub fn with_the_brief(global: &Global, out: &'a Out) -> Self {
        let mut patience = Self::new(global, out);
        patience.wait_max = patience.wait_max.max(BRIEF);
        patience
    }

    /// Runs `work`, again while another process holds the lock that it needs: then `work` has done nothing.
    pub fn keep<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Err(error) if error.exit() == Exit::Locked && self.is_left() => {
                    let waited = self.since.elapsed();
                    if waited >= SILENT && !self.is_told.replace(true) {
                        let why = format!("for another: {}", out::safe(&error.chain()));
                        tell_waiting(self.out, self.wait_max.saturating_sub(waited), &why);
                    }
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn is_left(&self) -> bool {
        self.since.elapsed() < self.wait_max && !signal::raised()
    }
}
