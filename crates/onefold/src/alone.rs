//! A repository in a bucket that one machine uses alone, since its store lets two writers win (`init --single-writer`).
//!
//! Sessions and locks are files of one folder of this machine, which all of its commands use: in a folder that is for
//! locks, sticky and open to all (`/run/lock`). The repository's mark, the object `single-writer`, names machine, boot
//! and folder, so whoever does not have that very folder before them is refused in words: another machine, another
//! user, and a container or service that sees another `/run/lock`.
//!
//! Invariant: two processes that work in the repository have the same folder before them, or one of them said
//! `--take-over`. A folder's name is random, and none is used again that a mark of before named, save after a restart
//! of the machine, which no process survives.

use std::fmt::Write;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::FileDir;
use onefold_store::objects::ObjectStore;
use onefold_store::registry::Registry;
use onefold_store::registry::flock::FlockRegistry;
use onefold_store::{Entropy, Error, Result};
use rustix::process::geteuid;

use onefold_remote::SINGLE_WRITER_OBJECT;

use crate::machine;

/// Folders for locks, of which the first counts that is open to all and sticky.
const LOCK_FOLDERS: [&str; 2] = ["/run/lock", "/var/lock"];
/// For tests: another folder for locks.
const LOCK_FOLDER_ENV: &str = "ONEFOLD_TEST_LOCK_FOLDER";
/// For tests: another machine and another boot, with a space between.
const MACHINE_ENV: &str = "ONEFOLD_TEST_MACHINE";

/// Content of a mark: the user of a repository that one machine uses alone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OwnerMark {
    /// The machine's name, for people.
    host: String,
    /// The machine's identity, which it keeps.
    machine: String,
    /// The machine's identity since it was started.
    boot: String,
    /// Name of the folder of locks.
    folder: String,
}

/// Identity of this machine.
struct MachineIdentity {
    host: String,
    machine: String,
    boot: String,
}

/// The registry of the repository whose objects these are; `None` where several machines may share it.
///
/// # Errors
/// [`Error::Locked`]: another machine, another user or another container uses it alone, and it is not to be taken over;
/// [`Error::Option`]: this machine cannot use one alone; failures of the store.
pub fn registry(
    objects: &Arc<dyn ObjectStore>,
    take_over: bool,
) -> Result<Option<Arc<dyn Registry>>> {
    let bytes = match objects.get(SINGLE_WRITER_OBJECT) {
        Err(error) if error.is_not_found() => return Ok(None),
        bytes => bytes?,
    };
    let mark = OwnerMark::decode(&bytes)?;
    let own = MachineIdentity::here()?;
    let lock_folder = lock_folder()?;
    let folder = lock_folder.join(&mark.folder);
    let is_of_this_machine = (&mark.machine, &mark.host) == (&own.machine, &own.host);
    if is_of_this_machine && is_there(&folder)? {
        return at(&folder, objects).map(Some);
    }
    if is_of_this_machine && mark.boot != own.boot {
        // Since the restart nobody is at work. Whoever else finds that, too, makes the same folder.
        make(&folder)?;
        put(
            objects,
            &OwnerMark {
                boot: own.boot,
                ..mark
            },
        )?;
        return at(&folder, objects).map(Some);
    }
    if take_over {
        return take(objects, own, &lock_folder).map(Some);
    }
    let who = if is_of_this_machine {
        format!(
            "another container, or a service with folders of its own, uses this repository alone (init --single-writer) on this machine: {} is not there",
            folder.display()
        )
    } else {
        format!(
            "the machine {} uses this repository alone (init --single-writer)",
            mark.host
        )
    };
    Err(Error::Locked {
        what: format!("{who}; where it does so no more, --take-over lets this one do it"),
    })
}

/// Makes this machine the one that uses the repository alone.
///
/// # Errors
/// [`Error::Option`]: it cannot; failures of the store.
pub fn begin(objects: &Arc<dyn ObjectStore>) -> Result<Arc<dyn Registry>> {
    take(objects, MachineIdentity::here()?, &lock_folder()?)
}

fn take(
    objects: &Arc<dyn ObjectStore>,
    own: MachineIdentity,
    lock_folder: &Path,
) -> Result<Arc<dyn Registry>> {
    let mut name = String::from("onefold-");
    for byte in Entropy::system().try_bytes::<16>()? {
        let _ = write!(name, "{byte:02x}");
    }
    let folder = lock_folder.join(&name);
    make(&folder)?;
    let mark = OwnerMark {
        host: own.host,
        machine: own.machine,
        boot: own.boot,
        folder: name,
    };
    put(objects, &mark)?;
    at(&folder, objects)
}

fn put(objects: &Arc<dyn ObjectStore>, mark: &OwnerMark) -> Result<()> {
    objects.put(SINGLE_WRITER_OBJECT, &[mark.encode().as_bytes()])
}

fn at(folder: &Path, objects: &Arc<dyn ObjectStore>) -> Result<Arc<dyn Registry>> {
    let dir = Arc::new(FileDir::open(folder)?);
    let registry = FlockRegistry::new(dir, Arc::clone(objects), Entropy::system());
    registry.init()?;
    Ok(Arc::new(registry))
}

/// Whether the folder is there; it must be this user's alone, for another's files could not be locked.
fn is_there(folder: &Path) -> Result<bool> {
    let about = match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        about => about.map_err(|error| unusable(folder, &error.to_string()))?,
    };
    let (owner, own) = (about.uid(), geteuid().as_raw());
    if owner != own {
        return Err(Error::Locked {
            what: format!(
                "the user {owner} uses this repository alone (init --single-writer), and this is the user {own}: the locks in {} are the other's",
                folder.display()
            ),
        });
    }
    if !about.is_dir() || about.mode() & 0o022 != 0 {
        return Err(unusable(folder, "others may write there"));
    }
    Ok(true)
}

fn make(folder: &Path) -> Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|error| unusable(folder, &error.to_string()))?,
    }
    is_there(folder).map(drop)
}

fn unusable(folder: &Path, why: &str) -> Error {
    Error::Option(format!(
        "{} cannot hold the locks of a repository that one machine uses alone (init --single-writer): {why}",
        folder.display()
    ))
}

/// The folder that all users' commands on this machine put locks into.
fn lock_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(LOCK_FOLDER_ENV) {
        return Ok(folder.into());
    }
    let is_for_all = |folder: &&&str| {
        let about = std::fs::metadata(folder);
        about.is_ok_and(|about| about.is_dir() && about.mode() & 0o1777 == 0o1777)
    };
    let found = LOCK_FOLDERS.iter().find(is_for_all);
    found.map(PathBuf::from).ok_or_else(|| {
        Error::Option(
            "this machine has no folder for locks that is open to all and sticky (/run/lock, mode 1777), which a repository for one machine alone needs (init --single-writer)".into(),
        )
    })
}

impl MachineIdentity {
    fn here() -> Result<Self> {
        let host = machine::host();
        if let Ok(given) = std::env::var(MACHINE_ENV) {
            let (machine, boot) = given.split_once(' ').unwrap_or((&given, ""));
            let (machine, boot) = (machine.to_owned(), boot.to_owned());
            return Ok(Self {
                host,
                machine,
                boot,
            });
        }
        let identity = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let text = text.trim().to_owned();
            let is_one =
                text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
            is_one.then_some(text).ok_or_else(|| {
                Error::Option(format!(
                    "this machine has no identity in {path}, by which a repository knows the machine that uses it alone (init --single-writer)"
                ))
            })
        };
        Ok(Self {
            host,
            machine: identity("/etc/machine-id")?,
            boot: identity("/proc/sys/kernel/random/boot_id")?,
        })
    }
}

impl OwnerMark {
    fn encode(&self) -> String {
        let Self {
            host,
            machine,
            boot,
            folder,
        } = self;
        format!("host {host}\nmachine {machine}\nboot {boot}\nfolder {folder}\n")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let value = |name: &str| {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let what = || Error::damaged(SINGLE_WRITER_OBJECT, Some(0), format!("no {name} in it"));
            found.map(str::to_owned).ok_or_else(what)
        };
        let mark = Self {
            host: value("host")?,
            machine: value("machine")?,
            boot: value("boot")?,
            folder: value("folder")?,
        };
        // The name becomes a part of a path.
        let digits = mark.folder.strip_prefix("onefold-").unwrap_or_default();
        if digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(mark)
        } else {
            let what = "its folder is no name of a folder of locks";
            Err(Error::damaged(SINGLE_WRITER_OBJECT, Some(0), what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_it_was_told_and_names_no_other_path() {
        let mark = OwnerMark {
            host: "web01".into(),
            machine: "ab".into(),
            boot: "cd".into(),
            folder: format!("onefold-{}", "0f".repeat(16)),
        };
        assert_eq!(OwnerMark::decode(mark.encode().as_bytes()).unwrap(), mark);
        for folder in ["../x", "onefold-../../etc", "onefold-", ""] {
            let folder = folder.to_owned();
            let wrong = OwnerMark {
                folder,
                ..mark.clone()
            };
            assert!(OwnerMark::decode(wrong.encode().as_bytes()).is_err());
        }
        for bytes in [&b""[..], b"web01", b"\xff\xff"] {
            assert!(OwnerMark::decode(bytes).is_err());
        }
    }
}
