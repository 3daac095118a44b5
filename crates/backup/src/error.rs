//! The crate's error: the operation, the path, and the cause.

use std::io;
use std::sync::Arc;

use crate::path::show;

/// The reason why a backup, restore or another verb failed as a whole. Failures of single paths are reported, not
/// returned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a path of the user failed.
    #[error("{op} {path}")]
    Io {
        /// Operation that failed: "open", "read", "create" …
        op: &'static str,
        /// Path, as the user would write it.
        path: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The stored content of a path of the user cannot be had.
    #[error("{op} {path}")]
    Content {
        /// Operation that failed: "restore" …
        op: &'static str,
        /// Path, as the user would write it.
        path: String,
        /// Error of the repository, which may hurt several paths.
        #[source]
        source: Arc<Error>,
    },
    /// Bytes of a leaf, recipe or snapshot mean nothing, though their checksum or fingerprint was right.
    #[error(transparent)]
    Malformed(#[from] onefold_io::Error),
    /// A temporary file failed: there is no room for it, or no folder that can be written to.
    #[error(transparent)]
    Temporary(onefold_io::Error),
    /// The repository failed.
    #[error(transparent)]
    Store(#[from] onefold_store::Error),
    /// No snapshot, or more than one, matches the name or the conditions.
    #[error("{0}")]
    NoSnapshot(String),
    /// A snapshot cannot be read, so that it is not known whether it is the wanted one.
    #[error("snapshot {id} cannot be read, so which one is the latest is not known")]
    NotRead {
        /// Name of the snapshot.
        id: onefold_store::RootId,
        /// Error of reading it.
        #[source]
        source: Box<Error>,
    },
    /// No source exists, or the repository is the only one.
    #[error("{0}")]
    NoSource(String),
    /// The snapshot does not have this path.
    #[error("{0} is not in the snapshot")]
    NotInSnapshot(String),
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The repository, or something that lies in it, is no source.
    #[error("a repository is not backed up into itself")]
    IntoItself,
    /// A source is a device, a pipe or a socket, whose content is not read: the snapshot has an entry of it only.
    #[error("it {} {what}: that is all that is saved of it, nothing is read from it", is_or_leads_to(.is_link))]
    Special {
        /// Kind of the file, such as "a block device".
        what: &'static str,
        /// Whether the path is a link to such a file.
        is_link: bool,
    },
    /// Entries came in an order that no snapshot can hold.
    #[error("{path} came after {before}, which is not the order of a snapshot: none was made")]
    OutOfOrder {
        /// Path that came.
        path: String,
        /// Path that had come before it.
        before: String,
    },
    /// The program that fed the backup failed, so the input is not complete.
    #[error("{0}: no snapshot was made")]
    HalfInput(String),
    /// The caller's cancellation flag was raised.
    #[error("interrupted")]
    Cancelled,
}

fn is_or_leads_to(is_link: &bool) -> &'static str {
    match is_link {
        true => "is a link to",
        false => "is",
    }
}

impl Error {
    /// Whether stored bytes cannot be had: they are damaged, or the device does not give them.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Store(error) => error.is_loss(),
            Self::Malformed(_) => !self.is_other_version(),
            Self::NotRead { source, .. } => source.is_loss(),
            Self::Content { source, .. } => source.is_loss(),
            _ => false,
        }
    }

    /// Whether stored bytes are damaged or gone: trying again does not help.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_damage(),
            Self::Malformed(_) => !self.is_other_version(),
            Self::Content { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    /// Whether stored bytes cannot be used: they are lost, or another version of the program made them.
    pub fn is_unusable(&self) -> bool {
        self.is_loss() || self.is_other_version()
    }

    /// Whether another version of the program wrote the bytes that cannot be read, which is no damage.
    pub fn is_other_version(&self) -> bool {
        match self {
            Self::Store(error) => error.is_other_version(),
            Self::Malformed(error) => error.kind == onefold_io::ErrorKind::OtherVersion,
            Self::NotRead { source, .. } => source.is_other_version(),
            Self::Content { source, .. } => source.is_other_version(),
            _ => false,
        }
    }

    /// Whether there is no room to write: on the disk, in a quota, or in a file whose length has a limit.
    pub fn is_full(&self) -> bool {
        use onefold_io::ErrorKind;
        matches!(self, Self::Io { source, .. } if ErrorKind::of(source) == ErrorKind::NoSpace)
    }

    /// Makes the error of a file whose stored content cannot be had.
    pub(crate) fn of_content(op: &'static str, path: &[u8], source: Self) -> Self {
        Self::Content {
            op,
            path: show(path),
            source: Arc::new(source),
        }
    }

    /// Makes the error of a failed system call on `path`.
    pub fn io(op: &'static str, path: &[u8], source: impl Into<io::Error>) -> Self {
        Self::Io {
            op,
            path: show(path),
            source: source.into(),
        }
    }
}

/// Result with the crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
