//! Disks, folders and frames: every way Onefold touches a device. Nothing but this crate opens the engine's own files.

mod disk;
mod error;

pub use disk::{Dir, DirEntry, Disk, LockGuard, LockKind, ReadAt};
pub use error::{Error, ErrorKind, Result};
