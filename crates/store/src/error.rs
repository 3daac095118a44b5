//! The crate's error: what, where, expected and found.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;

/// Why the store failed. The program maps each kind to an exit code of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] onefold_io::Error),
    /// The index failed; it can be rebuilt.
    #[error(transparent)]
    Index(#[from] onefold_index::Error),
    /// There is no repository here.
    #[error("no repository here: {what}")]
    NoRepository {
        /// Name of the missing object.
        what: String,
    },
    /// A repository was to be made where something stands already.
    #[error("cannot make a repository here: {what}")]
    NotEmpty {
        /// Name of the object that stands there.
        what: String,
    },
    /// No key slot opens with this password.
    #[error("wrong password: {}", none_opens(*.slots))]
    WrongPassword {
        /// Number of slots that were tried.
        slots: usize,
    },
    /// Somebody else holds what is needed.
    #[error("locked: {what}")]
    Locked {
        /// What, and by whom.
        what: String,
    },
    /// The session's file is gone, so that a sweep may have deleted what the session refers to.
    #[error(
        "{object} is gone: another took this session for dead, as when a machine sleeps and a network file system frees its lock, and a prune may have deleted what \
         the snapshot would refer to. No snapshot was stored; what was stored of it is still of use when it is run again"
    )]
    PinLost {
        /// The file.
        object: String,
    },
    /// The file of who held the repository still is gone, so that a sweep may have deleted containers meanwhile.
    #[error(
        "{object} is gone: another took this process for dead, as when a machine sleeps and a network file system frees its locks, and a prune may have deleted \
         containers meanwhile. What was copied may lack some: copy it again"
    )]
    NotStill {
        /// The file.
        object: String,
    },
    /// The file of a prune's or repair's session is gone, so that another may have deleted what was written in place of
    /// what is to be deleted.
    #[error(
        "{object} is gone: another took this process for dead, as when a machine sleeps and a network file system frees its locks, and may have gone on in its place. \
         Nothing was deleted: run it again"
    )]
    Overtaken {
        /// The file.
        object: String,
    },
    /// Stored bytes are not what was written.
    #[error("{object}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
    Damaged {
        /// The object: its kind and name.
        object: String,
        /// Where in it, in bytes.
        offset: Option<u64>,
        /// Expected and found.
        what: String,
    },
    /// A folder that `init` makes is not there.
    #[error("{folder}: the folder is missing, and all that was in it")]
    MissingFolder {
        /// Its name.
        folder: String,
    },
    /// A chunk that something refers to is in no container.
    #[error("chunk {fingerprint} is lost: it was in container {container}")]
    Lost {
        /// The chunk.
        fingerprint: Fingerprint,
        /// Where it was when the reference was made.
        container: ContainerId,
    },
    /// An object would be longer than what can be read again.
    #[error("{what} of {bytes} bytes cannot be stored: at most {bytes_max} can be read again")]
    TooLong {
        /// Name of the object that was to be stored.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The longest that can be.
        bytes_max: u64,
    },
    /// A temporary file failed: there is no room for it, or no folder that can be written to.
    #[error(transparent)]
    Temporary(onefold_io::Error),
    /// An option that cannot be.
    #[error("{0}")]
    Option(String),
    /// The machine failed, not the device: there is no memory, or a thread ended early.
    #[error("{0}")]
    Machine(String),
    /// The user of the store failed inside a callback.
    #[error(transparent)]
    Caller(Box<dyn std::error::Error + Send + Sync>),
}

impl From<onefold_keys::Error> for Error {
    fn from(error: onefold_keys::Error) -> Self {
        match error {
            onefold_keys::Error::Io(error) => Self::Io(error),
            onefold_keys::Error::Damaged { object, what } => Self::damaged(object, None, what),
            onefold_keys::Error::Option(what) => Self::Option(what),
            onefold_keys::Error::Machine(what) => Self::Machine(what),
        }
    }
}

fn none_opens(slots: usize) -> String {
    match slots {
        1 => "the only key slot does not open with it".into(),
        many => format!("none of {many} key slots opens with it"),
    }
}

/// The beginning of a sentence: `1 chunk is`, `2 chunks are`.
pub(crate) fn chunks_are(chunks: usize) -> String {
    match chunks {
        1 => "1 chunk is".into(),
        more => format!("{more} chunks are"),
    }
}

impl Error {
    /// Stored bytes of `object` that are not what was written.
    pub fn damaged(
        object: impl Into<String>,
        offset: Option<u64>,
        what: impl Into<String>,
    ) -> Self {
        Self::Damaged {
            object: object.into(),
            offset,
            what: what.into(),
        }
    }

    /// The error of a system that has no thread for `what`.
    pub fn no_thread(what: &str, source: &std::io::Error) -> Self {
        Self::Machine(format!(
            "no thread can be started for {what}, this process or its user may have no more: {source}"
        ))
    }

    /// A chunk that is found and has `found` bytes, where a reference to it says `expected`.
    pub fn other_length(fingerprint: &Fingerprint, expected: u32, found: usize) -> Self {
        let what = format!("{found} bytes, the reference says {expected}");
        Self::damaged(format!("chunk {fingerprint}"), None, what)
    }

    /// Whether another version of the program made what cannot be read: no damage. Nothing may be repaired or deleted
    /// for it.
    pub fn is_other_version(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind == onefold_io::ErrorKind::OtherVersion)
    }

    /// Returns the same error; damage in place of another version's mark, where all else speaks against it.
    #[must_use]
    pub(crate) fn unless_other_version(self) -> Self {
        match self {
            Self::Io(mut error) if error.kind == onefold_io::ErrorKind::OtherVersion => {
                error.kind = onefold_io::ErrorKind::Damaged;
                Self::Io(error)
            }
            other => other,
        }
    }

    /// Whether it tells of an object that is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind == onefold_io::ErrorKind::NotFound)
    }

    /// The object that is damaged or gone, by its name, where it tells of one.
    pub fn damaged_object(&self) -> Option<&str> {
        match self {
            Self::Damaged { object, .. } => Some(object),
            Self::Io(error) if self.is_damage() => Some(&error.path),
            _ => None,
        }
    }

    /// Whether it tells of stored bytes that are not what was written, in whatever layer that was seen.
    pub fn is_damage(&self) -> bool {
        use onefold_io::ErrorKind::{Damaged, NotAFile, NotFound, Short};
        match self {
            Self::Damaged { .. } | Self::MissingFolder { .. } | Self::Lost { .. } => true,
            Self::Index(onefold_index::Error::Damaged { .. }) => true,
            Self::Io(error) | Self::Index(onefold_index::Error::Io(error)) => {
                matches!(error.kind, Damaged | Short | NotFound | NotAFile)
            }
            _ => false,
        }
    }

    /// Whether the device does not give stored bytes: a bad sector. No damage, since the next try, or the next cable,
    /// may bring them.
    pub fn is_unreadable(&self) -> bool {
        match self {
            Self::Io(error) | Self::Index(onefold_index::Error::Io(error)) => {
                error.kind == onefold_io::ErrorKind::Medium && error.is_of_reading()
            }
            _ => false,
        }
    }

    /// Whether whoever keeps the bytes does not answer. Never loss and never damage: nothing is left out, set aside,
    /// condemned or stored anew for it.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Io(error) | Self::Index(onefold_index::Error::Io(error)) => {
                error.kind == onefold_io::ErrorKind::Unavailable
            }
            _ => false,
        }
    }

    /// Whether stored bytes cannot be had, for whatever reason: they are damaged, or the device does not give them. Who
    /// looks at all that there is goes on with the rest.
    pub fn is_loss(&self) -> bool {
        self.is_damage() || self.is_unreadable()
    }

    /// Whether a stored object cannot be used: it is lost, or another version of the program made it. Nothing else
    /// stored suffers from it.
    pub fn is_unusable(&self) -> bool {
        self.is_loss() || self.is_other_version()
    }

    /// Whether the index has more files than this process may open.
    pub(crate) fn is_crowded_index(&self) -> bool {
        matches!(self, Self::Index(onefold_index::Error::Io(error)) if error.kind == onefold_io::ErrorKind::TooManyOpen)
    }

    /// Whether the device has no room left.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Io(error) | Self::Index(onefold_index::Error::Io(error)) => {
                error.kind == onefold_io::ErrorKind::NoSpace
            }
            _ => false,
        }
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Gives the error of an unusable object to `note`, and returns `None` in its place. Every other error is returned.
pub(crate) fn tolerate<T>(result: Result<T>, note: impl FnOnce(Error)) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_unusable() => {
            note(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
