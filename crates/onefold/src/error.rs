//! Errors of verbs, and their exit codes. Printed once, at the end of `main`, with [`advice`](crate::advice).

use std::io;

use onefold_backup::Error as BackupError;
use onefold_index::Error as IndexError;
use onefold_store::Error as StoreError;

use crate::exit::Exit;
use crate::signal;

/// The reason why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line or an input makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no repository; the string is its place.
    #[error("there is no repository at {0}")]
    NoRepository(String),
    /// No password was given and none can be asked for; the string names the repository.
    #[error("{0} is encrypted, and no password was given")]
    NoPassword(String),
    /// The password opens no key of this repository.
    #[error("{place}: {source}")]
    WrongPassword {
        /// Repository, in words.
        place: String,
        /// Error of the store.
        source: Box<StoreError>,
    },
    /// No new password was given and none can be asked for.
    #[error("no new password was given")]
    NoNewPassword,
    /// Two passwords that should be the same differ.
    #[error("the two passwords differ")]
    PasswordsDiffer,
    /// A password is wrong in itself.
    #[error("{0}")]
    Password(String),
    /// The engine failed on files.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The engine failed on the repository.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A transport could not be set up, or its device failed.
    #[error(transparent)]
    Export(#[from] onefold_export::Error),
    /// A block device failed.
    #[error(transparent)]
    Device(#[from] onefold_volume::Error),
    /// A system call of the program itself failed.
    #[error("{what}")]
    Io {
        /// Operation that failed, in words.
        what: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The found bytes are not those that were stored; the report was printed before.
    #[error("{0}")]
    Damaged(String),
    /// Something is damaged, and the remedy is known or was printed before.
    #[error("{what}")]
    Hurt {
        /// Description of the damage.
        what: String,
        /// Remedy, unless the description has it.
        remedy: Option<String>,
    },
    /// The snapshot is there, but its backup could not read the wanted path.
    #[error("{0} could not be read when it was backed up: the snapshot has no content of it")]
    Unread(String),
    /// Another failure, in words.
    #[error("{0}")]
    Failed(String),
    /// Standard output is closed: `onefold ls | head`.
    #[error("standard output is closed")]
    Closed,
}

/// Result with the program's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes the error of a failed system call.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Returns the exit code for this failure.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NoRepository(_) => Exit::NoRepository,
            Self::NoPassword(_)
            | Self::WrongPassword { .. }
            | Self::NoNewPassword
            | Self::PasswordsDiffer
            | Self::Password(_) => Exit::WrongPassword,
            Self::Backup(error) => backup_exit(error),
            Self::Store(error) => store_exit(error),
            Self::Io { source, .. } => io_exit(source),
            Self::Export(error) => export_exit(error),
            Self::Device(error) => device_exit(error),
            Self::Damaged(_) | Self::Hurt { .. } => Exit::Damaged,
            Self::Unread(_) => Exit::Incomplete,
            Self::Failed(_) => Exit::Failed,
            Self::Closed => Exit::Ok,
        }
    }

    /// Returns the error and its causes as text, each once.
    pub fn chain(&self) -> String {
        chain_of(self)
    }
}

/// Returns an error and its causes as text, each once: `open /etc/shadow: Permission denied (os error 13)`.
pub fn chain_of(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

fn store_exit(error: &StoreError) -> Exit {
    match error {
        StoreError::NoRepository { .. } => Exit::NoRepository,
        StoreError::WrongPassword { .. } => Exit::WrongPassword,
        StoreError::Locked { .. } => Exit::Locked,
        StoreError::Option(_) | StoreError::Index(IndexError::Budget { .. }) => Exit::Usage,
        error if error.is_no_space() => Exit::NoSpace,
        // After a signal requests are given up.
        error if error.is_unavailable() && signal::raised() => Exit::Interrupted,
        error if error.is_unavailable() => Exit::Unavailable,
        error if error.is_damage() => Exit::Damaged,
        StoreError::Caller(inner) => match inner.downcast_ref::<BackupError>() {
            Some(error) => backup_exit(error),
            None => Exit::Failed,
        },
        error => source_exit(error),
    }
}

fn backup_exit(error: &BackupError) -> Exit {
    match error {
        BackupError::Store(error) => store_exit(error),
        error if error.is_other_version() => Exit::Failed,
        BackupError::Malformed(_) => Exit::Damaged,
        BackupError::NotRead { source, .. } => backup_exit(source),
        BackupError::Content { source, .. } => backup_exit(source),
        BackupError::Usage(_) => Exit::Usage,
        BackupError::Cancelled => Exit::Interrupted,
        BackupError::Io { source, .. } => io_exit(source),
        error => source_exit(error),
    }
}

fn export_exit(error: &onefold_export::Error) -> Exit {
    match error {
        onefold_export::Error::InUse { .. } | onefold_export::Error::Busy { .. } => Exit::Locked,
        onefold_export::Error::Missing { .. } => Exit::HostLacks,
        onefold_export::Error::Tls { .. } => Exit::Usage,
        onefold_export::Error::Device(error) => device_exit(error),
        onefold_export::Error::Refused { exit, .. } => Exit::of_code(Some(i32::from(*exit))),
        error => source_exit(error),
    }
}

fn device_exit(error: &onefold_volume::Error) -> Exit {
    match error {
        onefold_volume::Error::NoSpace { .. } => Exit::NoSpace,
        onefold_volume::Error::Damaged { .. } => Exit::Damaged,
        onefold_volume::Error::NoDepot { .. } => Exit::NoRepository,
        onefold_volume::Error::Held { .. } => Exit::Locked,
        onefold_volume::Error::NoPassword { .. } | onefold_volume::Error::WrongPassword { .. } => {
            Exit::WrongPassword
        }
        onefold_volume::Error::Invalid { .. } => Exit::Usage,
        error => source_exit(error),
    }
}

/// Returns the exit code of a system error among the causes: no space has its own code in every layer (a size limit and
/// a quota count as that).
fn source_exit(error: &(dyn std::error::Error + 'static)) -> Exit {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return io_exit(error);
        }
        cause = error.source();
    }
    Exit::Failed
}

fn io_exit(error: &io::Error) -> Exit {
    match onefold_io::ErrorKind::of(error) {
        onefold_io::ErrorKind::NoSpace => Exit::NoSpace,
        // A system call that fails as interrupted each time does not mean that the program was interrupted.
        _ if error.kind() == io::ErrorKind::Interrupted
            && (error.raw_os_error().is_none() || signal::raised()) =>
        {
            Exit::Interrupted
        }
        _ => Exit::Failed,
    }
}
