//! The crate's error: what, where, expected and found.

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stored bytes do not read as what they should be.
    #[error(transparent)]
    Io(#[from] onefold_io::Error),
    /// Stored bytes are not what was written.
    #[error("{object}: {what}")]
    Damaged {
        /// The object: its kind and name.
        object: String,
        /// Expected and found.
        what: String,
    },
    /// An option that cannot be.
    #[error("{0}")]
    Option(String),
    /// The machine has no memory for a key derivation.
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
