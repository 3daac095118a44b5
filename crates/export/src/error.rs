//! The crate's error: why a transport could not be set up.

use std::io;
use std::path::PathBuf;

/// Why serving could not begin, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate or key is not usable.
    #[error("TLS: {}: {what}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The fault of the certificate or key.
        what: String,
    },
    /// No clients can be taken at this address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Path of a Unix socket, or address and port.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Somebody else listens at this address.
    #[error("{address} is in use by another process")]
    InUse {
        /// Path of the Unix socket.
        address: String,
    },
    /// Something that the host must have is missing or refused; `what` says what, and what to do.
    #[error("{what}")]
    Missing {
        /// In words.
        what: String,
    },
    /// Somebody uses the device; `what` names the user, and says what to do.
    #[error("{what}")]
    Busy {
        /// In words.
        what: String,
    },
    /// The daemon did not do what it was asked for.
    #[error("{what}")]
    Refused {
        /// The daemon's own words.
        what: String,
        /// The exit code for it.
        exit: u8,
    },
    /// A program or system call of the host failed.
    #[error("{what}")]
    Host {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] onefold_volume::Error),
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
