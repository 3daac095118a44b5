//! One opener at a time: the lock that an index takes which cannot be shared.

use onefold_io::{Dir, LockGuard, LockKind};

use crate::{Error, Result};

/// Takes `<name>-lock` in `dir`, for as long as the guard lives. [`Error::Held`] where another opener has it.
pub fn alone(dir: &dyn Dir, name: &str) -> Result<Box<dyn LockGuard>> {
    let lock = format!("{name}-lock");
    let guard = dir.lock(&lock, LockKind::Exclusive)?;
    guard.ok_or(Error::Held { lock })
}
