//! Which chunks hold metadata of a file system. Where a page is lacking, such chunks may use the reserve, so that files
//! can be deleted on a full device; a guess is enough for that. With [`Options::infer`](super::Options::infer) those
//! that are metadata for certain are not deduplicated, either.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::batcher::BatchChunk;
use super::state::FrontShared;
use crate::depot::config::BYTES_MAX;
use crate::hints::{FileSystem, looks_like_metadata};
use crate::{Buffer, ChunkRead, Error, HeadId, Lbn, Result};

/// The file system is looked for anew after this many questions: somebody may have made another one.
const ASKED_MAX: u64 = 16_384;
/// The same after a superblock was written: what it tells of is written about then.
const ASKED_AFTER_SUPERBLOCK: u64 = 256;

/// Knowledge about each volume.
#[derive(Default)]
pub(super) struct HeadsMetadata(Mutex<HashMap<HeadId, KnownMetadata>>);

struct KnownMetadata {
    file_system: FileSystem,
    /// Questions that are left until the file system is looked for anew.
    questions_left: u64,
}

impl FrontShared {
    /// Whether a chunk is metadata of a file system, by its place or its bytes. A wrong answer costs a page of the
    /// reserve, or a write that fails though it need not have.
    pub fn is_metadata(&self, chunk: &BatchChunk) -> bool {
        let bytes = chunk.run.chunk(chunk.index);
        looks_like_metadata(bytes) || self.has_metadata(chunk.run.head, chunk.lbn(), bytes)
    }

    /// For each chunk of a batch whether it is metadata for certain, where that is asked for.
    pub fn inferred(&self, batch: &[BatchChunk]) -> Vec<bool> {
        if !self.options.infer {
            return vec![false; batch.len()];
        }
        let has_metadata = |chunk: &BatchChunk| {
            let bytes = chunk.run.chunk(chunk.index);
            self.has_metadata(chunk.run.head, chunk.lbn(), bytes)
        };
        batch.iter().map(has_metadata).collect()
    }

    fn has_metadata(&self, head: HeadId, lbn: u64, chunk: &[u8]) -> bool {
        let start = lbn * u64::from(self.chunk_bytes);
        let mut all = self.metadata.0.lock();
        let known = all.get_mut(&head).filter(|known| known.questions_left > 0);
        let known = match known {
            Some(known) => known,
            None => {
                let file_system = self.find_file_system(head).unwrap_or_default();
                all.entry(head)
                    .insert_entry(KnownMetadata {
                        file_system,
                        questions_left: ASKED_MAX,
                    })
                    .into_mut()
            }
        };
        known.questions_left -= 1;
        if FileSystem::is_told_at(&(start..start + u64::from(self.chunk_bytes))) {
            known.questions_left = known.questions_left.min(ASKED_AFTER_SUPERBLOCK);
        }
        known.file_system.has_metadata(start, chunk)
    }

    fn find_file_system(&self, head: HeadId) -> Result<FileSystem> {
        FileSystem::find(BYTES_MAX, &mut |offset, buffer| {
            self.read_now(head, offset, buffer)
        })
    }

    /// Reads bytes of a volume, as a client would.
    fn read_now(&self, head: HeadId, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if offset > BYTES_MAX {
            return Err(Error::Invalid {
                what: format!("no volume has a byte {offset}"),
            });
        }
        let span = self.span(offset, buffer.len() as u64);
        for lbn in span.touched() {
            let staged = self.lock().staging.get(head, lbn).cloned();
            let mut chunk = Buffer::zeroed(self.chunk_bytes as usize);
            match staged {
                Some(staged) => chunk.copy_from_slice(staged.bytes()),
                None => self.reader.read(
                    head,
                    &mut [ChunkRead {
                        lbn: Lbn(lbn),
                        buffer: &mut chunk,
                    }],
                )?,
            }
            let within = span.within(lbn);
            let at = (lbn * span.chunk_bytes + within.start as u64 - offset) as usize;
            buffer[at..at + within.len()].copy_from_slice(&chunk[within]);
        }
        Ok(())
    }
}
