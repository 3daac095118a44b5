//! Reads a folder's ignore files.

use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use super::{FolderVisit, read_start};
use crate::exclude::{IgnoreFile, is_utf16};
use crate::{Error, path};

/// Largest number of bytes of an ignore file that are read.
const IGNORE_FILE_BYTES_MAX: usize = 1 << 20;
/// Largest number of bytes of a folder's ignore files, with those of the folders above it.
const IGNORE_FILES_BYTES_MAX: usize = 4 << 20;
/// Lock of the thread that compiles an ignore file.
static COMPILING: Mutex<()> = Mutex::new(());

impl FolderVisit<'_> {
    pub(super) fn read_ignore_files(&mut self, dir: &OwnedFd) {
        if self.options.excludes.ignore_files.is_empty() {
            return;
        }
        // Compiling takes more RAM than its result, so only one thread does it at a time.
        let _one_at_a_time = COMPILING.lock();
        for name in &self.options.excludes.ignore_files {
            let above = IgnoreFile::text_bytes(self.ignore.as_deref());
            let bytes_max = IGNORE_FILE_BYTES_MAX.min(IGNORE_FILES_BYTES_MAX - above);
            let Some(mut text) = read_start(dir, name, bytes_max + 1) else {
                continue;
            };
            let file = path::join(&self.piece.folder, name);
            if is_utf16(&text) {
                let what = "it is passed over: it is in UTF-16, in which no pattern matches";
                self.piece.warnings.push((file, Error::Usage(what.into())));
                continue;
            }
            if text.len() > bytes_max {
                // half a line would be another pattern, and mostly a wider one
                let lines = text[..bytes_max].iter().rposition(|byte| *byte == b'\n');
                text.truncate(lines.map_or(0, |end| end + 1));
                let what = format!("only its first {bytes_max} bytes are looked at");
                let what = match bytes_max {
                    IGNORE_FILE_BYTES_MAX => what,
                    _ => format!("{what}: those of the folders above have too many"),
                };
                self.piece.warnings.push((file.clone(), Error::Usage(what)));
            }
            match IgnoreFile::new(self.ignore.clone(), &self.piece.folder, &text) {
                Ok((ignore, passed_over)) => {
                    self.piece.ignore_bytes += ignore.heap_bytes();
                    self.ignore = Some(ignore);
                    let told = |why| Error::Usage(format!("a line is passed over: {why}"));
                    let warnings = passed_over.into_iter().map(|why| (file.clone(), told(why)));
                    self.piece.warnings.extend(warnings);
                }
                Err(e) => self.piece.errors.push((file, e)),
            }
        }
    }
}
