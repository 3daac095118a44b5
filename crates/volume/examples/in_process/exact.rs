//! Duplicates that a depot finds, of those that a perfect index would find.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;

use crate::CHUNK;

/// Duplicates that are found, of exact ones.
const GOAL: f64 = 0.995;

/// The contents that a volume holds, and what was written.
#[derive(Default)]
pub struct ExactIndex {
    known: HashSet<Fingerprint>,
    duplicates: u64,
}

impl ExactIndex {
    /// Knows the chunks of these bytes.
    pub fn holding(bytes: &[u8]) -> Self {
        let mut index = Self::default();
        index.write(bytes);
        index.duplicates = 0;
        index
    }

    /// Notes that these bytes are written.
    pub fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK as usize) {
            let is_zero = chunk.iter().all(|byte| *byte == 0);
            if !is_zero && !self.known.insert(Fingerprint::of(chunk)) {
                self.duplicates += 1;
            }
        }
    }

    /// Says how many of its duplicates were found.
    pub fn judge(&self, found: u64) {
        let share = found as f64 / self.duplicates as f64;
        let judged = if share >= GOAL { "kept" } else { "MISSED" };
        println!(
            "{share:11.4}  duplicates found, of exact: {found} of {}  goal {GOAL}: {judged}",
            self.duplicates
        );
    }
}
