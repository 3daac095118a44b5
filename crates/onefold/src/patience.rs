//! `--retry-lock`: what another keeps us from is tried again until the time is up: a prune or a repair, or, for a
//! minute at least, a choice of snapshots to remove.

use std::time::{Duration, Instant};

use onefold_store::{Repository, RootsLock};

use crate::cli::Global;
use crate::error::Result;
use crate::exit::Exit;
use crate::signal;

/// How often it is tried.
const PAUSE: Duration = Duration::from_millis(200);

/// How long it takes at most to choose snapshots and drop them; many, on a slow disk.
const BRIEF: Duration = Duration::from_secs(60);

/// For who chooses snapshots to remove; nothing, where that is only tried.
pub fn lock_roots(
    global: &Global,
    repository: &Repository,
    dry_run: bool,
) -> Result<Option<RootsLock>> {
    if dry_run {
        return Ok(None);
    }
    let patience = Patience::with_the_brief(global);
    Ok(Some(patience.keep(|| Ok(repository.lock_roots()?))?))
}

/// How long to try.
pub struct Patience {
    until: Option<Instant>,
}

impl Patience {
    /// As the command line says; without a word, once.
    pub fn new(global: &Global) -> Self {
        let until = |patience| Instant::now().checked_add(patience);
        Self {
            until: global.retry_lock.and_then(until),
        }
    }

    /// The same, or at least for what others do in a moment.
    pub fn with_the_brief(global: &Global) -> Self {
        let patience = global.retry_lock.unwrap_or_default().max(BRIEF);
        Self {
            until: Instant::now().checked_add(patience),
        }
    }

    /// Does `work`, again while another holds the lock that it needs: it has done nothing then.
    pub fn keep<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Err(error) if error.exit() == Exit::Locked && self.is_left() => {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn is_left(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until) && !signal::raised()
    }
}
