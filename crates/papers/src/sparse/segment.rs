//! The open segment: the chunks that the stream showed last, new ones and ones that were found.
//!
//! Always holds: a fingerprint is here once at most, with what was last said of it.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::part::Record;
use onefold_index::ContainerId;

/// The open segment: the chunks that the stream showed last, each once.
#[derive(Default)]
pub struct Segment {
    chunks: Vec<Chunk>,
    places: HashMap<Fingerprint, u32>,
    /// Inserted ones.
    news: usize,
}

struct Chunk {
    key: Fingerprint,
    container: ContainerId,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Found; an earlier manifest has it.
    Repeats,
    /// Inserted, and not in the log yet.
    New,
    /// Inserted, and in the log.
    Said,
}

impl Segment {
    /// Where the chunk lies, if it is here.
    pub fn get(&self, key: &Fingerprint) -> Option<ContainerId> {
        let at = *self.places.get(key)?;
        Some(self.chunks[at as usize].container)
    }

    /// A chunk was found.
    pub fn repeat(&mut self, key: &Fingerprint, container: ContainerId) {
        if !self.places.contains_key(key) {
            self.push(key, container, State::Repeats);
        }
    }

    /// A chunk was inserted.
    pub fn say(&mut self, key: &Fingerprint, container: ContainerId) {
        match self.places.get(key) {
            Some(at) => {
                let chunk = &mut self.chunks[*at as usize];
                self.news += usize::from(chunk.state == State::Repeats);
                (chunk.container, chunk.state) = (container, State::New);
            }
            None => self.push(key, container, State::New),
        }
    }

    fn push(&mut self, key: &Fingerprint, container: ContainerId, state: State) {
        self.places.insert(*key, self.chunks.len() as u32);
        self.news += usize::from(state != State::Repeats);
        self.chunks.push(Chunk {
            key: *key,
            container,
            state,
        });
    }

    /// Forgets those that `goes` names.
    pub fn forget(&mut self, goes: impl Fn(&Fingerprint, ContainerId) -> bool) {
        self.retain(|chunk| !goes(&chunk.key, chunk.container));
    }

    /// Forgets what was only found.
    pub fn forget_repeats(&mut self) {
        self.retain(|chunk| chunk.state != State::Repeats);
    }

    fn retain(&mut self, stays: impl Fn(&Chunk) -> bool) {
        self.chunks.retain(stays);
        self.places.clear();
        let keys = self.chunks.iter().map(|chunk| chunk.key);
        self.places.extend(keys.zip(0..));
        let is_new = |chunk: &&Chunk| chunk.state != State::Repeats;
        self.news = self.chunks.iter().filter(is_new).count();
    }

    /// What the log does not have yet: new chunks and, if asked for, those that were found.
    pub fn unwritten(&self, with_repeats: bool) -> Vec<Record> {
        let mut records = Vec::new();
        for chunk in &self.chunks {
            let is_new = chunk.state == State::New;
            if is_new || (with_repeats && chunk.state == State::Repeats) {
                records.push(Record {
                    key: chunk.key,
                    container: chunk.container,
                    is_new,
                });
            }
        }
        records
    }

    /// The log has all new chunks.
    pub fn written(&mut self) {
        let news = self.chunks.iter_mut();
        news.filter(|chunk| chunk.state == State::New)
            .for_each(|chunk| chunk.state = State::Said);
    }

    /// Chunks that it has.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Of those, inserted ones.
    pub fn news(&self) -> usize {
        self.news
    }

    /// All chunks, and where they lie.
    pub fn chunks(&self) -> impl Iterator<Item = (Fingerprint, ContainerId)> {
        self.chunks.iter().map(|chunk| (chunk.key, chunk.container))
    }

    /// Begins another.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.places.clear();
        self.news = 0;
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
            + self.places.capacity() * 8 / 7 * (size_of::<(Fingerprint, u32)>() + 1)
    }
}
