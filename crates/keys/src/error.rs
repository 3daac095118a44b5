//! The crate's error: what, where, expected and found.

/// The reason why a key is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stored bytes cannot be decoded, or not be read.
    #[error(transparent)]
    Io(#[from] onefold_io::Error),
    /// Stored bytes are not what was written.
    #[error("{object}: {what}")]
    Damaged {
        /// The object: its kind and name.
        object: String,
        /// The expected and the found value, in words.
        what: String,
    },
    /// An option has an impossible value.
    #[error("{0}")]
    Option(String),
    /// The machine has no memory for a key derivation, or no randomness.
    #[error("{0}")]
    Machine(String),
}

impl Error {
    pub(crate) fn damaged(object: &str, what: impl Into<String>) -> Self {
        Self::Damaged {
            object: object.into(),
            what: what.into(),
        }
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
