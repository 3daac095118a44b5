//! Advice on what to do next after an error.

use onefold_backup::Error as BackupError;
use onefold_index::Error as IndexError;
use onefold_store::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use onefold_store::slots::SLOT_FOLDER;
use onefold_store::{Error as StoreError, ROOT_FOLDER};

use crate::error::Error;
use crate::exit::Exit;
use crate::{interrupted, remedy};

impl Error {
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
            return Some(bucket_advice(trouble));
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
                Exit::Interrupted => return interrupted::aftermath(),
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

#[cfg(feature = "remote")]
fn bucket_advice(trouble: onefold_remote::Trouble) -> &'static str {
    use onefold_remote::Trouble;
    match trouble {
        Trouble::NoCredentials => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws/credentials; docs/object-storage.md lists all ways"
        }
        Trouble::Refused => {
            "see that these are the credentials that you mean (AWS_ACCESS_KEY_ID, AWS_PROFILE …), of this store (AWS_ENDPOINT_URL, or the place's host), and that they may do GetObject, PutObject, DeleteObject and ListBucket in this bucket; nothing is known to be lost or damaged"
        }
        Trouble::NoBucket => {
            "see that the bucket's name, the host (AWS_ENDPOINT_URL, or the place's own) and AWS_REGION are right; a bucket is made with the store's own tools. Nothing is known to be lost or damaged"
        }
    }
}
