//! Reading back what a window restored: every chunk's fingerprint again, this time from the target.

use std::fs::File as Opened;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::window::{File, State, Use, Window};
use super::write::Writer;
use crate::path::join;
use crate::{Error, Result};

impl Writer<'_> {
    /// Reads the files of a window that was carried out; tells those that differ. Returns how many are as they should be.
    pub fn verify(&self, window: &Window) -> Result<u64> {
        let mut uses: Vec<&Use> = window.uses.iter().collect();
        uses.sort_unstable_by_key(|one| (one.file, one.offset));
        let (mut rest, mut verified) = (&uses[..], 0);
        for (number, file) in window.files.iter().enumerate() {
            self.progress.check()?;
            let len = rest.partition_point(|one| one.file as usize <= number);
            let (own, others) = rest.split_at(len);
            rest = others;
            if *file.state.lock() != State::Made {
                continue;
            }
            let path = join(&window.folders[file.folder as usize].path, &file.name);
            match self.verify_file(window, file, own) {
                Ok(()) => verified += 1,
                Err(e) => self.failed(&path, &Error::io("verify", &path, e)),
            }
        }
        Ok(verified)
    }

    fn verify_file(&self, window: &Window, file: &File, uses: &[&Use]) -> io::Result<()> {
        let differs = |what: String| Err(io::Error::new(ErrorKind::InvalidData, what));
        let dir = self
            .target
            .open_folder(&window.folders[file.folder as usize].path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&dir, &file.name[..], flags, Mode::empty());
        let fd = match open(flags | OFlags::NOATIME) {
            // Only the owner may leave the access time alone.
            Err(Errno::PERM) => open(flags)?,
            other => other?,
        };
        let opened = Opened::from(fd);
        let len = opened.metadata()?.len();
        if len != file.size {
            return differs(format!("it has {len} bytes, expected {}", file.size));
        }
        let fingerprinter = self.session.fingerprinter();
        let mut buffer = Vec::new();
        for one in uses {
            buffer.resize(one.len as usize, 0);
            opened.read_exact_at(&mut buffer, one.offset)?;
            if fingerprinter.fingerprint(&buffer) != one.fingerprint {
                return differs(format!(
                    "what was written at byte {} reads differently",
                    one.offset
                ));
            }
        }
        Ok(())
    }
}
