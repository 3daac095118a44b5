//! The folder that is restored into. Invariant: nothing is ever opened, made or removed outside of it. Every path is
//! resolved beneath its descriptor and through no symbolic link, whatever the snapshot says and whichever program
//! changes the folder meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::meta::Stat;
use crate::{Error, Kind, Result, path};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Longest path that is opened in one call, in bytes: the kernel's limit is 4096 with the final zero.
pub const PIECE_BYTES_MAX: usize = 4000;

/// Largest number of file systems in the target of which a folder stays open until they are on the disk. (Subvolumes,
/// of which there may be more, have devices of their own, and go to the disk together.)
const MOUNTED_MAX: usize = 32;
/// Operation that removes files which the snapshot does not have, as errors name it.
pub const REMOVE: &str = "remove";
/// Times that making a folder is tried.
const MAKE_ROUNDS_MAX: usize = 16;

/// An open target folder.
pub struct TargetFolder {
    root: OwnedFd,
    /// Path of the target, as the user gave it.
    place: Vec<u8>,
    /// A folder of each other file system in the target that was restored into, by device.
    mounted: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
}

impl TargetFolder {
    fn new(root: OwnedFd, place: &[u8]) -> Self {
        Self {
            root,
            place: place.to_vec(),
            mounted: Mutex::default(),
        }
    }

    /// Opens the target. Where it is missing, it is made with this mode, and the folders above it as new folders are.
    /// Returns also whether it was missing. The path may lead through symbolic links: the user named it.
    pub fn create(target: &[u8], mode: Mode) -> Result<(Self, bool)> {
        let make = || {
            let is_new = make_with_those_above(Path::new(OsStr::from_bytes(target)), mode)?;
            let root = rustix::fs::openat(
                CWD,
                target,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            Ok((Self::new(root, target), is_new))
        };
        make().map_err(|e: std::io::Error| {
            let source = match e.kind() {
                ErrorKind::AlreadyExists => std::io::Error::other("it is there, and is no folder"),
                _ => e,
            };
            Error::io("create the target", target, source)
        })
    }

    /// Opens the target if it is there, only to look at it.
    pub fn existing(target: &[u8]) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, target, flags, Mode::empty()) {
            Ok(root) => Ok(Some(Self::new(root, target))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::io("open the target", target, e)),
        }
    }

    /// Makes the error of an operation that failed on `path` in the target, named as the user finds it.
    pub fn error(&self, op: &'static str, path: &[u8], source: impl Into<std::io::Error>) -> Error {
        let source = source.into();
        let source = match source.kind() {
            ErrorKind::DirectoryNotEmpty if op != REMOVE => {
                let what = "a folder that is not empty has its place, and stays";
                std::io::Error::new(ErrorKind::DirectoryNotEmpty, what)
            }
            _ => source,
        };
        Error::io(op, &in_target(&self.place, path), source)
    }

    /// The error of a path whose stored content cannot be had, named within the target.
    pub fn lost(&self, path: &[u8], error: impl Into<Arc<Error>>) -> Error {
        lost(&self.place, path, error)
    }

    /// Remembers a folder that was there and is restored into, since it may be on another file system. Returns the
    /// folder's device.
    pub fn note(&self, folder: &Arc<OwnedFd>) -> Result<u64, Errno> {
        let (there, own) = (Stat::of(folder)?.device, Stat::of(&self.root)?.device);
        let mut mounted = self.mounted.lock();
        if there != own && mounted.len() < MOUNTED_MAX {
            mounted.entry(there).or_insert_with(|| Arc::clone(folder));
        }
        Ok(there)
    }

    /// Waits until everything in the target's file system, and in those that are mounted in it and were restored into,
    /// is on the disk. Errors: since Linux 5.8 also those of earlier writes that failed only on their way to the disk.
    pub fn sync(&self) -> Result<(), Errno> {
        let sync = |folder: &OwnedFd| match rustix::fs::syncfs(folder) {
            Err(Errno::NOSYS) => Ok(()),
            other => other,
        };
        let mut done = sync(&self.root);
        for folder in self.mounted.lock().values() {
            // Sync all of them, even after an error.
            let synced = sync(folder);
            done = done.and(synced);
        }
        done
    }

    /// Descriptor of the target itself.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Whether the target is the root of all that this process sees, under any name.
    pub fn is_root(&self) -> Result<bool, Errno> {
        let (here, root) = (Stat::of(&self.root)?, Stat::at(CWD, b"/", true)?);
        Ok((here.device, here.inode) == (root.device, root.inode))
    }

    /// Opens a folder in the target: `path` is empty or begins with `/`, as [`path::clean`](crate::path::clean) makes
    /// it.
    pub fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(path, ResolveFlags::empty())
    }

    /// Opens a folder as [`open_folder`](Self::open_folder) does, but returns [`Errno::XDEV`] for anything mounted in
    /// the target.
    pub fn open_unmounted(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let folder = self.open(path, ResolveFlags::NO_XDEV)?;
        on_device(folder, Stat::of(&self.root)?.device)
    }

    fn open(&self, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let mut rest = path.strip_prefix(b"/").unwrap_or(path);
        if rest.is_empty() {
            return rustix::fs::openat(&self.root, ".", FOLDER, Mode::empty());
        }
        let mut at: Option<OwnedFd> = None;
        while !rest.is_empty() {
            let piece = if rest.len() <= PIECE_BYTES_MAX {
                std::mem::take(&mut rest)
            } else {
                let end = rest[..PIECE_BYTES_MAX]
                    .iter()
                    .rposition(|&b| b == b'/')
                    .ok_or(Errno::NAMETOOLONG)?;
                let piece = &rest[..end];
                rest = &rest[end + 1..];
                piece
            };
            let from = at.as_ref().unwrap_or(&self.root).as_fd();
            at = Some(open_with(from, piece, resolve)?);
        }
        at.ok_or(Errno::INVAL)
    }
}

/// Makes the folder and those above it where they are missing. Returns whether the folder was missing.
fn make_with_those_above(folder: &Path, mode: Mode) -> std::io::Result<bool> {
    let make = || DirBuilder::new().mode(mode.as_raw_mode()).create(folder);
    let made = match (make(), folder.parent()) {
        (Err(e), Some(above)) if e.kind() == ErrorKind::NotFound => {
            std::fs::create_dir_all(above)?;
            make()
        }
        (other, _) => other,
    };
    match made {
        Err(_) if folder.is_dir() => Ok(false),
        other => other.map(|()| true),
    }
}

/// Opens the folder `name` in `parent`, or makes it with this mode where it is missing. Anything else under that name
/// is removed if it `gives_way`. Returns also whether the folder was missing. `EXIST`: something under that name does
/// not give way.
pub fn make_folder(
    parent: &OwnedFd,
    name: &[u8],
    mode: Mode,
    gives_way: impl Fn(&Stat) -> Result<bool, Errno>,
) -> Result<(OwnedFd, bool), Errno> {
    // Another thread may be making or removing the same folder, so a failed step is tried again from the start.
    for _ in 0..MAKE_ROUNDS_MAX {
        let is_new = match rustix::fs::mkdirat(parent, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e),
        };
        match rustix::fs::openat(parent, name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let there = match Stat::at(parent, name, false) {
                    Err(Errno::NOENT) => continue,
                    other => other?,
                };
                if there.kind != Kind::Dir && !gives_way(&there)? {
                    return Err(Errno::EXIST);
                }
                match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(e) => return Err(e),
                }
            }
            other => return other.map(|folder| (folder, is_new)),
        }
    }
    Err(Errno::AGAIN)
}

/// Makes the error of [`TargetFolder::lost`] for a target that the user calls `place`.
pub fn lost(place: &[u8], path: &[u8], error: impl Into<Arc<Error>>) -> Error {
    Error::Content {
        op: "restore",
        path: path::show(&in_target(place, path)),
        source: error.into(),
    }
}

fn in_target(place: &[u8], path: &[u8]) -> Vec<u8> {
    let place = place.strip_suffix(b"/").unwrap_or(place);
    [place, path].concat()
}

/// Opens the folder `name` in `dir`, which lies on `device`; returns [`Errno::XDEV`] where something is mounted there.
pub fn open_unmounted(dir: BorrowedFd<'_>, name: &[u8], device: u64) -> Result<OwnedFd, Errno> {
    on_device(open_with(dir, name, ResolveFlags::NO_XDEV)?, device)
}

/// Checks the device. Subvolumes are file systems of their own that are mounted nowhere.
fn on_device(folder: OwnedFd, device: u64) -> Result<OwnedFd, Errno> {
    if Stat::of(&folder)?.device == device {
        Ok(folder)
    } else {
        Err(Errno::XDEV)
    }
}

/// Opens the folder at `path`, of at most [`PIECE_BYTES_MAX`] bytes and without a leading `/`, below `from`.
pub fn open_beneath(from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_with(from, path, ResolveFlags::empty())
}

fn open_with(from: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(from, path, FOLDER, Mode::empty(), resolve) {
        // Kernels before 5.6 and some sandboxes have no openat2.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(from, path),
        other => other,
    }
}

fn open_stepwise(from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    for name in path.split(|&b| b == b'/') {
        if !path::name_is_safe(name) {
            return Err(Errno::INVAL);
        }
        let dir = at.as_ref().map_or(from, |fd| fd.as_fd());
        at = Some(rustix::fs::openat(dir, name, FOLDER, Mode::empty())?);
    }
    at.ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_make_a_folder_where_a_file_is() {
        let dir = tempfile::tempdir().expect("tempdir");
        let place = dir.path().as_os_str().as_bytes();
        let (target, is_new) = TargetFolder::create(place, Mode::RWXU).expect("target");
        assert!(!is_new);
        for round in 0..500 {
            let path = format!("/{round}");
            std::fs::write(dir.path().join(&path[1..]), "x").expect("write");
            let together = std::sync::Barrier::new(4);
            let make = || {
                together.wait();
                make_folder(&target.root, &path.as_bytes()[1..], Mode::RWXU, |_| {
                    Ok(true)
                })
                .map(drop)
            };
            std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(make));
                for thread in threads {
                    assert_eq!(thread.join().expect("ends"), Ok(()));
                }
            });
        }
    }
}
