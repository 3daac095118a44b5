//! The open segment: the last chunks of the stream, inserted or found.
//!
//! Invariant: a fingerprint is in the segment at most once, with its newest container.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::part::ManifestRecord;
use onefold_index::ContainerId;

/// The open segment: the last chunks of the stream, each once.
#[derive(Default)]
pub struct OpenSegment {
    chunks: Vec<SegmentChunk>,
    places: HashMap<Fingerprint, u32>,
    /// Number of inserted chunks.
    news: usize,
}

struct SegmentChunk {
    key: Fingerprint,
    container: ContainerId,
    state: ChunkStatus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChunkStatus {
    /// The chunk was found; an earlier manifest has it.
    Repeats,
    /// The chunk was inserted, and is not in the log yet.
    New,
    /// The chunk was inserted, and is in the log.
    Said,
}

impl OpenSegment {
    /// The container of the chunk, if the segment has it.
    pub fn get(&self, key: &Fingerprint) -> Option<ContainerId> {
        let at = *self.places.get(key)?;
        Some(self.chunks[at as usize].container)
    }

    /// Adds a chunk that was found.
    pub fn repeat(&mut self, key: &Fingerprint, container: ContainerId) {
        if !self.places.contains_key(key) {
            self.push(key, container, ChunkStatus::Repeats);
        }
    }

    /// Adds a chunk that was inserted.
    pub fn say(&mut self, key: &Fingerprint, container: ContainerId) {
        match self.places.get(key) {
            Some(at) => {
                let chunk = &mut self.chunks[*at as usize];
                self.news += usize::from(chunk.state == ChunkStatus::Repeats);
                (chunk.container, chunk.state) = (container, ChunkStatus::New);
            }
            None => self.push(key, container, ChunkStatus::New),
        }
    }

    fn push(&mut self, key: &Fingerprint, container: ContainerId, state: ChunkStatus) {
        self.places.insert(*key, self.chunks.len() as u32);
        self.news += usize::from(state != ChunkStatus::Repeats);
        self.chunks.push(SegmentChunk {
            key: *key,
            container,
            state,
        });
    }

    /// Removes chunks for which `goes` returns `true`.
    pub fn forget(&mut self, goes: impl Fn(&Fingerprint, ContainerId) -> bool) {
        self.retain(|chunk| !goes(&chunk.key, chunk.container));
    }

    /// Removes chunks that were only found.
    pub fn forget_repeats(&mut self) {
        self.retain(|chunk| chunk.state != ChunkStatus::Repeats);
    }

    fn retain(&mut self, stays: impl Fn(&SegmentChunk) -> bool) {
        self.chunks.retain(stays);
        self.places.clear();
        let keys = self.chunks.iter().map(|chunk| chunk.key);
        self.places.extend(keys.zip(0..));
        let is_new = |chunk: &&SegmentChunk| chunk.state != ChunkStatus::Repeats;
        self.news = self.chunks.iter().filter(is_new).count();
    }

    /// The chunks that the log does not have yet: inserted ones and, if asked for, those that were found.
    pub fn unwritten(&self, with_repeats: bool) -> Vec<ManifestRecord> {
        let mut records = Vec::new();
        for chunk in &self.chunks {
            let is_new = chunk.state == ChunkStatus::New;
            if is_new || (with_repeats && chunk.state == ChunkStatus::Repeats) {
                records.push(ManifestRecord {
                    key: chunk.key,
                    container: chunk.container,
                    is_new,
                });
            }
        }
        records
    }

    /// Notes that the log has all inserted chunks.
    pub fn written(&mut self) {
        let news = self.chunks.iter_mut();
        news.filter(|chunk| chunk.state == ChunkStatus::New)
            .for_each(|chunk| chunk.state = ChunkStatus::Said);
    }

    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// The number of inserted chunks.
    pub fn news(&self) -> usize {
        self.news
    }

    /// All chunks with their containers.
    pub fn chunks(&self) -> impl Iterator<Item = (Fingerprint, ContainerId)> {
        self.chunks.iter().map(|chunk| (chunk.key, chunk.container))
    }

    /// Begins another segment.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.places.clear();
        self.news = 0;
    }

    /// RAM of the segment, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<SegmentChunk>()
            + self.places.capacity() * 8 / 7 * (size_of::<(Fingerprint, u32)>() + 1)
    }
}
