//! The naive twin for crashes: what each chunk may hold after one.

use std::collections::HashMap;

/// For each chunk the contents written since the last answered flush, and the one of before.
#[derive(Clone)]
pub struct CrashModel {
    chunk_bytes: usize,
    /// Contents that may be found; the last is the newest.
    versions: HashMap<u64, Vec<Vec<u8>>>,
}

impl CrashModel {
    /// A device of zeros.
    pub fn new(chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes,
            versions: HashMap::new(),
        }
    }

    /// The newest content of a chunk.
    pub fn newest(&self, lbn: u64) -> Vec<u8> {
        match self.versions.get(&lbn).and_then(|versions| versions.last()) {
            Some(bytes) => bytes.clone(),
            None => vec![0; self.chunk_bytes],
        }
    }

    /// Bytes at `offset` were written, or are about to be: the chunk may hold either after a crash.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let chunk = self.chunk_bytes as u64;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (lbn, skip) = (at / chunk, (at % chunk) as usize);
            let count = rest.len().min(self.chunk_bytes - skip);
            let (now, later) = rest.split_at(count);
            let mut content = self.newest(lbn);
            let before = content.clone();
            content[skip..skip + count].copy_from_slice(now);
            self.versions
                .entry(lbn)
                .or_insert_with(|| vec![before])
                .push(content);
            at += count as u64;
            rest = later;
        }
    }

    /// A flush was answered: of each chunk only the newest content may be found.
    pub fn flushed(&mut self) {
        for versions in self.versions.values_mut() {
            versions.drain(..versions.len() - 1);
        }
    }

    /// Whether the chunk may hold this after a crash.
    pub fn allows(&self, lbn: u64, found: &[u8]) -> bool {
        match self.versions.get(&lbn) {
            Some(versions) => versions.iter().any(|version| version == found),
            None => found.iter().all(|byte| *byte == 0),
        }
    }
}
