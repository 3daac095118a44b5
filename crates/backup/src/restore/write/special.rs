//! Links, pipes, sockets and devices: they have no content, and get their metadata as soon as they are made.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::apply::Meta;
use super::super::samples::Class;
use super::super::window::Special;
use super::WindowRun;
use super::make::{ROUNDS_MAX, WantedEntry};
use crate::meta::{Stat, link_target};
use crate::{Entry, Kind};

impl WindowRun<'_> {
    /// Makes a link, pipe, socket or device, or links it to the first of its names.
    pub(super) fn special(&self, special: &Special) {
        let Special {
            folder,
            entry,
            first,
            metadata_outcome,
        } = special;
        let meta = Meta::of(entry);
        let try_link = |first| self.try_link(*folder, first, entry, metadata_outcome);
        if let Some(Ok(true)) = first.as_ref().map(try_link) {
            return;
        }
        let made = self.with_room(|| {
            let Some(dir) = self.folder_for(*folder, entry.kind, entry.size)? else {
                return Ok(None);
            };
            let make = |name: &[u8]| make_special(&dir, name, entry, self.all.applier.owners);
            let wanted = match entry.kind {
                // There are many links, and most of a link is there at once.
                Kind::Symlink => WantedEntry::of(entry, &meta),
                _ => WantedEntry::of(entry, &meta).slowly(),
            };
            let mut made = self.make((*folder, &dir), wanted, make);
            for _ in 1..ROUNDS_MAX {
                // Something has come in its place, mostly from another restore, and now counts as having been there.
                if matches!(made, Err(Errno::STALE)) {
                    made = self.make((*folder, &dir), wanted, make);
                }
            }
            let Some((made, place)) = made? else {
                return Ok(None);
            };
            let applier = self.all.applier;
            let missed = applier.to_special(made.as_fd(), entry.kind, &meta);
            let is_put = self.put((*folder, &dir), wanted, place)?;
            Ok(is_put.then_some(missed))
        });
        let path = self.window.path_in(*folder, &entry.name);
        match made {
            Ok(None) => {}
            Ok(Some(missed)) => {
                self.all
                    .tell_missed(&meta, missed, metadata_outcome, || path);
                let class = Class::of(self.device_of(*folder), entry.kind, &meta);
                self.sample(class, (*folder, &entry.name), &meta, metadata_outcome);
            }
            Err(e) => {
                self.all.tally.failed_others.fetch_add(1, Relaxed);
                if entry.links > 1 {
                    self.all.failed_firsts.add(&path);
                }
                self.failed(&path, &self.io("create", &path, e));
            }
        }
    }
}

/// Makes the thing, and opens it by path. `STALE`: something else stands there already, put there by another user who
/// may write in this folder.
fn make_special(
    dir: &OwnedFd,
    name: &[u8],
    entry: &Entry,
    is_given_away: bool,
) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let node = |kind, device| rustix::fs::mknodat(dir, name, kind, mode, device);
    match entry.kind {
        Kind::Symlink => rustix::fs::symlinkat(&entry.target[..], dir, name),
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Socket => node(FileType::Socket, 0),
        Kind::CharDevice => node(FileType::CharacterDevice, entry.rdev),
        Kind::BlockDevice => node(FileType::BlockDevice, entry.rdev),
        Kind::File | Kind::Dir => Err(Errno::INVAL),
    }?;
    let opened = open_special(dir, name, entry, is_given_away);
    if let Err(Errno::MFILE) = opened {
        // The thing is made again when there is room to open it.
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
    opened
}

/// Opens the thing that was just made, unless something shows that it is another: it must not be a further name of
/// something, and, where owners are set, must still be ours.
fn open_special(
    dir: &OwnedFd,
    name: &[u8],
    entry: &Entry,
    is_given_away: bool,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let there = Stat::of(&fd)?;
    let is_same = match entry.kind {
        Kind::Symlink => link_target(&fd, b"").is_ok_and(|target| target == entry.target),
        Kind::CharDevice | Kind::BlockDevice => there.rdev == entry.rdev,
        _ => true,
    };
    // Some file systems give all files to one owner, mostly the folder's.
    let is_ours = || {
        let whose = [rustix::process::geteuid().as_raw(), Stat::of(dir)?.uid];
        Ok::<_, Errno>(!is_given_away || whose.contains(&there.uid))
    };
    if there.kind == entry.kind && there.links <= 1 && is_same && is_ours()? {
        Ok(fd)
    } else {
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, lchown};

    use super::*;
    use crate::restore::apply::{Applier, AttributeChoice};

    /// Another user who owns the folder swaps a thing that root has made there, before root opens it or afterwards.
    #[test]
    fn nothing_but_what_was_made_gets_its_owner_and_mode() {
        let place = tempfile::tempdir().expect("tempdir");
        let path = |name: &str| place.path().join(name);
        fs::write(path("roots"), "root's").expect("write");
        let before = Stat::at(
            rustix::fs::CWD,
            path("roots").as_os_str().as_encoded_bytes(),
            false,
        );
        let dir = OwnedFd::from(fs::File::open(place.path()).expect("open"));
        for (kind, target) in [(Kind::Fifo, ""), (Kind::Symlink, "elsewhere")] {
            let mut entry = Entry::new(b"special".to_vec(), kind);
            (entry.target, entry.mode) = (target.into(), 0o666);
            entry.mtime.secs = 1_000_000;
            let made = make_special(&dir, b"special", &entry, true).expect("made");
            fs::rename(path("special"), path("ours")).expect("rename");
            fs::hard_link(path("roots"), path("special")).expect("link");
            assert!(open_special(&dir, b"special", &entry, true).is_err());
            let applier = Applier {
                owners: false,
                modes: true,
                names: None,
                xattrs: &AttributeChoice::default(),
            };
            assert_eq!(
                applier.to_special(made.as_fd(), kind, &Meta::of(&entry)),
                []
            );
            let ours = Stat::at(&dir, b"ours", false).expect("stat");
            assert_eq!((ours.kind, ours.mtime.secs), (kind, 1_000_000));
            fs::remove_file(path("special")).expect("remove");
            fs::hard_link(path("ours"), path("special")).expect("link");
            let twice = open_special(&dir, b"special", &entry, true);
            assert_eq!(twice.err(), Some(Errno::STALE));
            fs::remove_file(path("ours")).expect("remove");
            assert!(open_special(&dir, b"special", &entry, true).is_ok());
            entry.target = b"another".to_vec();
            let is_another = open_special(&dir, b"special", &entry, true).is_err();
            assert_eq!(is_another, kind == Kind::Symlink);
            fs::remove_file(path("special")).expect("remove");
        }
        let after = Stat::at(&dir, b"roots", false).expect("stat");
        let before = before.expect("stat");
        assert_eq!((after.mode, after.mtime), (before.mode, before.mtime));
    }

    /// Simulates a file system that shows all files as owned by the folder's owner.
    #[test]
    fn what_is_shown_as_the_folders_owners_is_ours() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().expect("tempdir");
        let dir = OwnedFd::from(fs::File::open(place.path()).expect("open"));
        for kind in [Kind::Fifo, Kind::Symlink, Kind::CharDevice] {
            let mut entry = Entry::new(b"special".to_vec(), kind);
            (entry.target, entry.rdev) = (b"elsewhere".to_vec(), rustix::fs::makedev(1, 3));
            chown(place.path(), Some(0), None).expect("chown");
            make_special(&dir, b"special", &entry, true).expect("made");
            let path = place.path().join("special");
            lchown(&path, Some(1234), None).expect("chown");
            let opened = |is_given_away| open_special(&dir, b"special", &entry, is_given_away);
            assert_eq!(opened(true).err(), Some(Errno::STALE), "{kind:?}");
            assert!(opened(false).is_ok(), "{kind:?}");
            chown(place.path(), Some(1234), None).expect("chown");
            assert!(opened(true).is_ok(), "{kind:?}");
            fs::remove_file(path).expect("remove");
        }
    }
}
