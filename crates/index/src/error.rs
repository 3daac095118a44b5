//! The crate's error.

/// Why an index failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] onefold_io::Error),
    /// The index's own files are not what was written. Rebuild it from the containers.
    #[error("index {path}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
    Damaged {
        /// The file.
        path: String,
        /// Where in it, in bytes.
        offset: Option<u64>,
        /// Expected and found.
        what: String,
    },
    /// The budget is too small for what the index must hold.
    #[error("index budget of {budget_bytes} bytes is too small: {what}")]
    Budget {
        /// What was given.
        budget_bytes: usize,
        /// What does not fit.
        what: String,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
