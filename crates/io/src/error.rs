//! The crate's error: what was done, where, and why it failed.

use std::io;

/// What went wrong, as far as a caller may want to tell cases apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No such disk or folder.
    NotFound,
    /// The name is taken.
    Exists,
    /// The disk ends before the bytes that were asked for.
    Short,
    /// No space left on the device, or over quota.
    NoSpace,
    /// Not permitted, or the file system is read-only.
    Denied,
    /// The bytes read are not what was written: wrong magic, length or checksum.
    Damaged,
    /// Anything else the device said.
    Device,
}

/// A failed access to a device.
#[derive(Debug, thiserror::Error)]
#[error("{op} {path}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
pub struct Error {
    /// The operation: "read", "write", "sync" …
    pub op: &'static str,
    /// The path or name, as the user would know it.
    pub path: String,
    /// The byte offset, where there is one.
    pub offset: Option<u64>,
    /// What to branch on.
    pub kind: ErrorKind,
    /// In words: expected and found.
    pub what: String,
    /// What the system said.
    #[source]
    pub source: Option<io::Error>,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
