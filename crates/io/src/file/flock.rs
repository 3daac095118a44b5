//! Locks of files by `flock`.

use std::fs::File;

use rustix::fs::FlockOperation;

use crate::{Error, LockGuard};

/// The error of a lock that the file system does not offer, in words.
pub(super) fn no_locks(error: Error) -> Error {
    Error {
        what: "the file system has no locks (flock), or its server gives none".into(),
        ..error
    }
}

/// A lock that is released when dropped, by an explicit call: closing releases it only with the last copy of the
/// descriptor, and a process that another thread is just starting has a copy until it runs its program. Where the call
/// fails, closing releases it.
pub(super) struct FileLock(pub File);

impl LockGuard for FileLock {}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}
