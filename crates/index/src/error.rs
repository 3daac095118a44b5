//! The crate's error.

use onefold_io::ErrorKind;

/// Why an index failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(onefold_io::Error),
    /// The index's own files are not what was written. Rebuild it from the containers.
    #[error("index {path}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
    Damaged {
        /// Path of the damaged file.
        path: String,
        /// Offset of the damage in the file, in bytes, where it is known.
        offset: Option<u64>,
        /// The expected and the found value, in words.
        what: String,
    },
    /// The index has one opener at a time, and another has it now.
    #[error("another opener has the index: {lock} is locked")]
    Held {
        /// The lock file.
        lock: String,
    },
    /// The budget is too small for the structures that the index needs.
    #[error("index budget of {budget_bytes} bytes is too small: {what}")]
    Budget {
        /// The budget that was given, in bytes.
        budget_bytes: usize,
        /// The structure that does not fit, in words.
        what: String,
    },
}

impl Error {
    /// Damage at `offset` of `path`.
    pub fn damaged(path: &str, offset: u64, what: impl Into<String>) -> Error {
        Error::Damaged {
            path: path.to_string(),
            offset: Some(offset),
            what: what.into(),
        }
    }

    /// The error for a failed read of `path`, a file of the index. A file that ends too early, a file of another
    /// version and a name that is not a file all count as damage: the index can be rebuilt from the containers.
    pub fn from_read(error: onefold_io::Error, path: &str) -> Error {
        match error.kind {
            ErrorKind::Short
            | ErrorKind::Damaged
            | ErrorKind::OtherVersion
            | ErrorKind::NotAFile => Error::Damaged {
                path: path.to_string(),
                offset: error.offset,
                what: error.what,
            },
            _ => Error::Io(error),
        }
    }
}

impl From<onefold_io::Error> for Error {
    /// Bytes that are not what was written become [`Error::Damaged`]; any other error is the device's failure.
    fn from(error: onefold_io::Error) -> Error {
        let path = error.path.clone();
        Error::from_read(error, &path)
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
