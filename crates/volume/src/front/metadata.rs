//! Which chunks hold metadata of a file system, asked only when a page is lacking: they may use the reserve, so that
//! files can be deleted on a full device.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::batcher::BatchChunk;
use super::state::Shared;
use crate::depot::config::BYTES_MAX;
use crate::hints::{MetadataRanges, looks_like_metadata};
use crate::{Buffer, ChunkRead, Error, HeadId, Lbn, Result};

/// What was found is looked up anew after this many questions: somebody may have made another file system.
const ASKED_MAX: u64 = 16_384;

/// What is known of each volume.
#[derive(Default)]
pub(super) struct Metadata(Mutex<HashMap<HeadId, Known>>);

struct Known {
    ranges: MetadataRanges,
    asked: u64,
}

impl Shared {
    /// Whether a chunk is metadata of a file system, by its place or its bytes. A wrong answer costs a page of the
    /// reserve, or a write that fails though it need not have.
    pub fn is_metadata(&self, chunk: &BatchChunk) -> bool {
        if looks_like_metadata(chunk.run.chunk(chunk.index)) {
            return true;
        }
        let chunk_bytes = u64::from(self.chunk_bytes);
        let (head, start) = (chunk.run.head, chunk.lbn() * chunk_bytes);
        let mut all = self.metadata.0.lock();
        let known = all.get_mut(&head).filter(|known| known.asked < ASKED_MAX);
        let known = match known {
            Some(known) => known,
            None => {
                let ranges = self.find_metadata(head).unwrap_or_default();
                all.entry(head)
                    .insert_entry(Known { ranges, asked: 0 })
                    .into_mut()
            }
        };
        known.asked += 1;
        known.ranges.touch(start..start + chunk_bytes)
    }

    fn find_metadata(&self, head: HeadId) -> Result<MetadataRanges> {
        MetadataRanges::find(BYTES_MAX, &mut |offset, buffer| {
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
