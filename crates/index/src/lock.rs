//! Locks in an index's folder: one that an opener holds as long as it lives, and those that are held for a moment and
//! waited for.

use std::time::Duration;

use onefold_io::{Dir, LockGuard, LockKind};

use crate::{Error, Result};

/// Between two tries for a lock.
const PAUSE_MS: u64 = 2;
/// Who waits says so once a minute.
const TOLD_EACH_MS: u64 = 60_000;

/// One opener at a time: takes `<name>-lock` in `dir`, for as long as the guard lives.
///
/// # Errors
/// [`Error::Held`] where another opener has it, [`Error::Io`] where it cannot be locked.
pub fn alone(dir: &dyn Dir, name: &str) -> Result<Box<dyn LockGuard>> {
    let lock = format!("{name}-lock");
    let guard = dir.lock(&lock, LockKind::Exclusive)?;
    guard.ok_or(Error::Held { lock })
}

/// The lock `name` in `dir`, which logs call `shown`, once its holder lets it go, or dies.
///
/// # Errors
/// [`Error::Held`] where the waiter, who is told for how many milliseconds it has waited, gives up; [`Error::Io`] where
/// the lock's file cannot be made or locked.
pub fn lock_waiting(
    dir: &dyn Dir,
    name: &str,
    shown: &str,
    gives_up: &dyn Fn(u64) -> bool,
) -> Result<Box<dyn LockGuard>> {
    let mut waited_ms = 0;
    loop {
        if let Some(guard) = dir.lock(name, LockKind::Exclusive)? {
            return Ok(guard);
        }
        if gives_up(waited_ms) {
            let lock = name.to_string();
            return Err(Error::Held { lock });
        }
        std::thread::sleep(Duration::from_millis(PAUSE_MS));
        waited_ms += PAUSE_MS;
        if waited_ms % TOLD_EACH_MS == 0 {
            let minutes = waited_ms / TOLD_EACH_MS;
            tracing::warn!("another process has held {shown} for {minutes} min");
        }
    }
}
