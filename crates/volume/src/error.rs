//! The crate's error: what a request failed with, in words and as a kind that a transport turns into its own code.

use onefold_io::ErrorKind;
use onefold_keys::Error as KeysError;

/// Why a request, a commit or an opening failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No page is left for data. Nothing of the write was acknowledged.
    #[error("no space is left for the depot: {what}")]
    NoSpace {
        /// Which space is used up, in words.
        what: String,
    },
    /// The volume takes no writes: a snapshot, or a depot that a failed write or sync made read-only.
    #[error("the volume is read-only: {why}")]
    ReadOnly {
        /// The reason, in words.
        why: String,
    },
    /// The request makes no sense: beyond the end, or not what the device offers.
    #[error("{what}")]
    Invalid {
        /// The request and the limit that it breaks.
        what: String,
    },
    /// Bytes that were read are not what was written.
    #[error("{place}: {what}")]
    Damaged {
        /// File or device and offset.
        place: String,
        /// Expected and found.
        what: String,
    },
    /// The device or the folder failed.
    #[error(transparent)]
    Io(std::sync::Arc<onefold_io::Error>),
    /// There is no depot in the folder.
    #[error("{place} holds no depot")]
    NoDepot {
        /// The folder.
        place: String,
    },
    /// A depot is there already, or the data device holds something.
    #[error("{place}: {what}")]
    Exists {
        /// The folder, or the data device.
        place: String,
        /// Description of the thing that is there.
        what: String,
    },
    /// Another process has the depot or its data device, or the device is mounted.
    #[error("{place} is in use by another process")]
    Held {
        /// The folder, or the data device.
        place: String,
    },
    /// The depot is whole, but this program cannot use it: an engine that it has not, another version, a data device
    /// that belongs to another depot.
    #[error("{what}")]
    Unsupported {
        /// The thing and why it cannot be used.
        what: String,
    },
    /// The depot is encrypted, and no password was given.
    #[error("{place} is encrypted, and no password was given")]
    NoPassword {
        /// The folder.
        place: String,
    },
    /// The password opens no key of the depot.
    #[error("{place}: the password opens no key of the depot")]
    WrongPassword {
        /// The folder.
        place: String,
    },
    /// The request was dropped unanswered: a defect of ours, or the device is being closed.
    #[error("the request was not carried out: the device is closing")]
    Closing,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the host lacks something that may be there again soon: room on a disk, or descriptors of files. Where a
    /// file could not be made for that, nothing is unknown of what reached the disk, and it is tried again.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io(error) => error.kind == ErrorKind::TooManyOpen,
            _ => false,
        }
    }
}

impl From<KeysError> for Error {
    fn from(error: KeysError) -> Self {
        match error {
            KeysError::Io(error) => error.into(),
            KeysError::Damaged { object, what } => Self::Damaged {
                place: object,
                what: format!("offset 0: {what}, expected what was sealed under this name"),
            },
            KeysError::Option(what) => Self::Invalid { what },
            KeysError::Machine(what) => Self::Unsupported { what },
        }
    }
}

impl From<onefold_io::Error> for Error {
    fn from(error: onefold_io::Error) -> Self {
        match error.kind {
            ErrorKind::NoSpace => Self::NoSpace {
                what: error.to_string(),
            },
            ErrorKind::Damaged | ErrorKind::Short => Self::Damaged {
                place: error.path.clone(),
                what: match error.offset {
                    Some(offset) => format!("offset {offset}: {}", error.what),
                    None => error.what,
                },
            },
            ErrorKind::InUse => Self::Held { place: error.path },
            ErrorKind::OtherVersion => Self::Unsupported {
                what: error.to_string(),
            },
            _ => Self::Io(std::sync::Arc::new(error)),
        }
    }
}
