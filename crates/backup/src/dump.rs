//! Writing a file of a snapshot, or a folder as a tar or zip archive, to a stream.

pub(crate) mod acl;
mod tar;
mod zip;

use std::io::Write;

use onefold_store::ChunkReader;

pub use tar::tar;
pub use zip::zip;

use crate::tree::{Visit, visit_items};
use crate::{Entry, Error, Result};

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes a file's content; holes are zeros.
///
/// # Errors
/// [`Error::Io`], without a path, where `out` fails; [`Error::Store`] or [`Error::Malformed`] where a chunk cannot be
/// had. What is before it is written.
pub fn file(entry: &Entry, reader: &mut ChunkReader, out: &mut dyn Write) -> Result<()> {
    let failed = |e| Error::io("write", b"", e);
    visit_items(&entry.content, reader, &mut |visit, reader| {
        match visit {
            Visit::Recipe(_) => {}
            Visit::Data(chunk, _) => out.write_all(&reader.read(&chunk)?).map_err(failed)?,
            Visit::Hole(_, mut len) => {
                while len > 0 {
                    let some = len.min(ZEROS.len() as u64);
                    out.write_all(&ZEROS[..some as usize]).map_err(failed)?;
                    len -= some;
                }
            }
        }
        Ok(true)
    })
}
