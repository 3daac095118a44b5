//! Locks in an index's folder: one that an opener holds as long as it lives, and locks that are held for a moment and
//! waited for.

use std::time::Duration;

use onefold_io::{Dir, LockGuard, LockKind};

use crate::{Error, Result};

/// Pause between two tries for a lock, in milliseconds.
const PAUSE_MS: u64 = 2;
/// Interval at which a waiter logs that it waits, in milliseconds.
const TOLD_EACH_MS: u64 = 60_000;

/// Takes `<name>-lock` in `dir` for as long as the guard lives, so that there is one opener at a time.
///
/// # Errors
/// [`Error::Held`] where another opener has it, [`Error::Io`] where it cannot be locked.
pub fn alone(dir: &dyn Dir, name: &str) -> Result<Box<dyn LockGuard>> {
    let lock = format!("{name}-lock");
    let guard = dir.lock(&lock, LockKind::Exclusive)?;
    guard.ok_or(Error::Held { lock })
}

/// Takes the lock `name` in `dir` once its holder releases it or dies; logs call the lock `shown`.
///
/// # Errors
/// [`Error::Held`] where the callback, which gets the milliseconds waited so far, gives up; [`Error::Io`] where the
/// lock's file cannot be made or locked.
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
