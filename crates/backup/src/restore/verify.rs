//! Reading back what a window restored: every chunk's fingerprint again, this time from the target.

use std::fs::File as Opened;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use onefold_chunk::Fingerprint;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::open_files::folders_max;
use super::open_folders::{OpenFolders, open};
use super::window::{File, Made, State, Use, Window};
use super::write::Writer;
use crate::tree::{Visit, visit_items};
use crate::{Entry, Error, Result};

impl Writer<'_> {
    /// Reads the files of a window that was carried out; tells those that differ. Returns how many are as they should be, without the last where it
    /// goes on in the next window.
    pub fn verify(&self, window: &Window, last_continues: bool) -> Result<u64> {
        let mut uses: Vec<&Use> = window.uses.iter().collect();
        uses.sort_unstable_by_key(|one| (one.file, one.offset));
        let (mut rest, mut verified) = (&uses[..], 0);
        let folders = Mutex::new(OpenFolders::new(folders_max()));
        let open = |number: u32| open(&folders, self.target, window, number);
        for (number, file) in window.files.iter().enumerate() {
            self.progress.check()?;
            let len = rest.partition_point(|one| one.file as usize <= number);
            let (own, others) = rest.split_at(len);
            rest = others;
            let State::Made(made) = *file.state.lock() else {
                continue;
            };
            let folder = open(file.folder).map_err(|failed| failed.why.into());
            match folder.and_then(|folder| self.verify_file(&folder, file, made, own)) {
                Ok(()) => {
                    let is_whole = !last_continues || number + 1 < window.files.len();
                    verified += u64::from(is_whole);
                }
                Err(e) => {
                    *file.state.lock() = State::Failed(Some(made));
                    let path = window.path_of(file);
                    self.failed(&path, &self.target.error("verify", &path, e));
                }
            }
        }
        self.remember_failed(window);
        for link in window.links.iter().filter(|it| it.is_copy.load(Relaxed)) {
            let path = window.path_in(link.folder, &link.entry.name);
            let folder =
                open(link.folder).map_err(|failed| self.target.error("verify", &path, failed.why));
            match folder.and_then(|folder| self.verify_copy(&folder, &link.entry, &path)) {
                Ok(()) => verified += 1,
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(e) => self.failed(&path, &e),
            }
        }
        Ok(verified)
    }

    fn verify_file(
        &self,
        folder: &OwnedFd,
        file: &File,
        made: Made,
        uses: &[&Use],
    ) -> io::Result<()> {
        let name = made.place.name(&file.name);
        let opened = self.open_restored(folder, &name, file.size)?;
        let mut buffer = Vec::new();
        uses.iter().try_for_each(|one| {
            let place = (one.offset, one.len);
            self.compare(&opened, place, &one.fingerprint, &mut buffer)
        })
    }

    /// A further name of a file, which got the content itself.
    fn verify_copy(&self, folder: &OwnedFd, entry: &Entry, path: &[u8]) -> Result<()> {
        let failed = |e: io::Error| self.target.error("verify", path, e);
        let opened = self
            .open_restored(folder, &entry.name, entry.size)
            .map_err(failed)?;
        let (mut buffer, mut reader) = (Vec::new(), self.session.reader()?);
        visit_items(&entry.content, &mut reader, &mut |visit, _| {
            self.progress.check()?;
            if let Visit::Data(chunk, offset) = visit {
                let place = (offset, chunk.len);
                self.compare(&opened, place, &chunk.fingerprint, &mut buffer)
                    .map_err(failed)?;
            }
            Ok(true)
        })
    }

    /// Opens a file that was restored; it must have `size` bytes.
    fn open_restored(&self, dir: &OwnedFd, name: &[u8], size: u64) -> io::Result<Opened> {
        // whoever may write there may have put a pipe in its place
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = |flags| rustix::fs::openat(dir, name, flags, Mode::empty());
        let fd = match open(flags | OFlags::NOATIME) {
            // Only the owner may leave the access time alone.
            Err(Errno::PERM) => open(flags)?,
            other => other?,
        };
        let opened = Opened::from(fd);
        let there = opened.metadata()?;
        if !there.is_file() {
            return differs("it is no regular file".into());
        }
        let len = there.len();
        if len != size {
            return differs(format!("it has {len} bytes, expected {size}"));
        }
        Ok(opened)
    }

    fn compare(
        &self,
        opened: &Opened,
        (offset, len): (u64, u32),
        expected: &Fingerprint,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        buffer.resize(len as usize, 0);
        opened.read_exact_at(buffer, offset)?;
        if self.session.fingerprinter().fingerprint(buffer) != *expected {
            return differs(format!(
                "what was written at byte {offset} reads differently"
            ));
        }
        Ok(())
    }
}

fn differs<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, what))
}
