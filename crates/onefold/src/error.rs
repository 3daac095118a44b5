//! Errors of verbs: their exit codes, and advice on what to do next. Printed once, at the end of `main`.

use std::io;

use onefold_backup::Error as BackupError;
use onefold_index::Error as IndexError;
use onefold_store::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use onefold_store::slots::SLOT_FOLDER;
use onefold_store::{Error as StoreError, ROOT_FOLDER};

use crate::exit::Exit;
use crate::{remedy, signal};

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

    /// Whether the repository may not be written to.
    fn cannot_write(&self) -> bool {
        let (Self::Store(error) | Self::Backup(BackupError::Store(error))) = self else {
            return false;
        };
        let (StoreError::Io(error) | StoreError::Index(IndexError::Io(error))) = error else {
            return false;
        };
        error.kind == onefold_io::ErrorKind::Denied && !error.is_of_reading()
    }

    /// Whether another version of the program wrote the bytes that cannot be read.
    fn is_other_version(&self) -> bool {
        match self {
            Self::Store(error) => error.is_other_version(),
            Self::Backup(error) => error.is_other_version(),
            _ => false,
        }
    }

    /// Returns the remedy where a part of the repository is damaged or gone, and the error names the part.
    fn remedy(&self) -> Option<&'static str> {
        let (Self::Store(error) | Self::Backup(BackupError::Store(error))) = self else {
            return None;
        };
        if matches!(error, StoreError::MissingFolder { .. }) {
            return Some(remedy::MISSING_FOLDER);
        }
        let object = error.damaged_object()?;
        match object.split_once('/') {
            None if object == SLOT_FOLDER => Some(remedy::KEYS),
            Some((SLOT_FOLDER, _)) => Some(remedy::KEY),
            Some((ROOT_FOLDER, _)) => Some(remedy::SNAPSHOT),
            None if [CONFIG_OBJECT, CONFIG_COPY_OBJECT].contains(&object) => {
                Some(remedy::CONFIGURATION)
            }
            _ => None,
        }
    }

    /// Whether another machine or user has the repository for itself: no waiting helps, and the error says what does.
    fn is_used_alone(&self) -> bool {
        let (Self::Store(error) | Self::Backup(BackupError::Store(error))) = self else {
            return false;
        };
        matches!(error, StoreError::Locked { what } if what.contains("init --single-writer"))
    }

    /// Returns the error and its causes as text, each once.
    pub fn chain(&self) -> String {
        chain_of(self)
    }

    /// Returns advice for the user, where there is any.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Hurt { remedy, .. } => remedy.as_deref(),
            _ => self.usual_advice(),
        }
    }

    fn usual_advice(&self) -> Option<&'static str> {
        if let Some(remedy) = self.remedy() {
            return Some(remedy);
        }
        #[cfg(feature = "remote")]
        if let Some(trouble) = onefold_remote::Trouble::of(self) {
            return Some(crate::bucket::advice(trouble));
        }
        if let Self::Device(error) | Self::Export(onefold_export::Error::Device(error)) = self {
            return device_advice(error);
        }
        Some(match self {
            Self::NoPassword(_) => {
                "give it with --password-file, --password-command or ONEFOLD_PASSWORD, or run on a terminal to be asked"
            }
            Self::NoNewPassword => {
                "`key add` and `key passwd` take it from --new-password-file, `init` from where it would be read later; or run on a terminal to be asked"
            }
            Self::Password(_) => return None,
            // They say what to do.
            Self::Export(
                onefold_export::Error::Busy { .. } | onefold_export::Error::Missing { .. },
            ) => return None,
            Self::Io { .. } if self.exit() == Exit::NoSpace => {
                "the repository is not what is full; make room, then run it again"
            }
            error if error.is_other_version() => {
                "take the version of onefold that made it; this one leaves it alone. Where no other was ever used, somebody changed it: put it back from a copy of the repository, or drop it \
                 (`onefold forget ID` of a snapshot, `onefold key remove ID` of a key)"
            }
            Self::PasswordsDiffer => "nothing was changed; try again",
            Self::Store(StoreError::Index(IndexError::Budget { .. })) => "give it more with --ram",
            error if error.cannot_write() => {
                "nothing can be written there: the disk is mounted read-only, or the repository is somebody else's. It can be read, checked and restored from all the same"
            }
            Self::Backup(BackupError::NoSnapshot(_)) => "`onefold snapshots` lists what there is",
            Self::Backup(BackupError::NotRead { .. }) => {
                "give the id of a snapshot in place of \"latest\": `onefold snapshots` lists those that can be read; `onefold forget` drops by its id one that cannot"
            }
            Self::Backup(BackupError::NotInSnapshot(_)) => {
                "`onefold ls` lists what is in it; \"latest\" is the newest of whatever paths and host, unless --path or --host say which"
            }
            _ => match self.exit() {
                Exit::Interrupted => return crate::interrupted::aftermath(),
                Exit::NoRepository => {
                    "check --repo and ONEFOLD_REPOSITORY; `onefold init` makes a repository, and so does `onefold backup --init`"
                }
                Exit::Locked if self.is_used_alone() => return None,
                Exit::Locked => "it ends with the process that holds it; try again then",
                Exit::WrongPassword => {
                    "it came from --password-file, --password-command, a variable ONEFOLD_PASSWORD… or the prompt; `onefold key list` shows, with one that opens, which keys there are"
                }
                Exit::Damaged => {
                    "run `onefold check --read-data` to see what is hurt, and `onefold repair` to rebuild what can be rebuilt"
                }
                Exit::NoSpace => {
                    "everything acknowledged before is intact; make room, then run it again (of the repository, `onefold prune` frees what no snapshot needs, and works on a full disk)"
                }
                Exit::Unavailable => {
                    "nothing is known to be lost or damaged; see that the storage can be reached, then run it again: it goes on from what is stored"
                }
                _ => return None,
            },
        })
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
        error => source_exit(error),
    }
}

fn device_advice(error: &onefold_volume::Error) -> Option<&'static str> {
    match error {
        onefold_volume::Error::NoDepot { .. } => Some("`onefold volume create` makes one"),
        onefold_volume::Error::Held { .. } => Some(
            "it is attached, served or being looked at: `onefold volume detach` takes an attached one away, and says which process serves one",
        ),
        onefold_volume::Error::NoPassword { .. } | onefold_volume::Error::WrongPassword { .. } => {
            Some(
                "it comes from --password-file, --password-command, a variable ONEFOLD_PASSWORD… or the prompt; a depot has a password of its own",
            )
        }
        onefold_volume::Error::NoSpace { .. } => Some(
            "nothing of what failed was acknowledged; make room on the file system that holds the depot, or delete files on the volume, then `sync`, `fstrim` and `onefold volume collect`",
        ),
        _ => None,
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
