//! `--retry-lock`: what another keeps us from is tried again until the time is up: a prune or a repair, or, for a
//! minute at least, a choice of snapshots to remove. Who waits for long is told for whom.

use std::cell::Cell;
use std::time::{Duration, Instant};

use onefold_store::{Repository, RootsLock};
use serde_json::json;

use crate::cli::Global;
use crate::error::Result;
use crate::exit::Exit;
use crate::out::{self, Out};
use crate::signal;

/// How long it is waited without a word.
pub const SILENT: Duration = Duration::from_secs(2);

/// How often it is tried.
const PAUSE: Duration = Duration::from_millis(200);

/// How long it takes at most to choose snapshots and drop them; many, on a slow disk.
pub const BRIEF: Duration = Duration::from_secs(60);

/// For who chooses snapshots to remove; nothing, where that is only tried.
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

/// Says that others are waited for, at most so long from now on; `why` names them.
pub fn tell_waiting(out: &Out, left: Duration, why: &str) {
    let words = format!(
        "waiting at most {:.0} s more {why}",
        left.as_secs_f64().ceil()
    );
    match out.json {
        true => out.note_json(&json!({"message_type": "waiting", "message": words})),
        false => out.note(words),
    }
}

/// How long to try.
pub struct Patience<'a> {
    since: Instant,
    wait_max: Duration,
    is_told: Cell<bool>,
    out: &'a Out,
}

impl<'a> Patience<'a> {
    /// As the command line says; without a word, once.
    pub fn new(global: &Global, out: &'a Out) -> Self {
        Self {
            since: Instant::now(),
            wait_max: global.retry_lock.unwrap_or_default(),
            is_told: Cell::new(out.quiet),
            out,
        }
    }

    /// The same, or at least for what others do in a moment.
    pub fn with_the_brief(global: &Global, out: &'a Out) -> Self {
        let mut patience = Self::new(global, out);
        patience.wait_max = patience.wait_max.max(BRIEF);
        patience
    }

    /// Does `work`, again while another holds the lock that it needs: it has done nothing then.
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
