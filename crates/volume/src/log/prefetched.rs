//! Chunks that were read with the hint PREFETCH, asked for before the index. What is remembered is trusted no more than
//! an answer of the index: the zone's rows must hold the hash.

use super::layout::ZoneId;
use super::writer::LogEngine;
use super::zone::ChunkHash;

impl LogEngine {
    /// Answers for the chunks that were remembered, and returns the others, for which the index is to be asked.
    pub(super) fn answer_prefetched(
        &mut self,
        mut asked: Vec<(usize, ChunkHash)>,
        answers: &mut [Option<ZoneId>],
    ) -> Vec<(usize, ChunkHash)> {
        if self.shared.prefetched.is_empty() {
            return asked;
        }
        asked.retain(|(at, hash)| {
            let remembered = self.shared.prefetched.take(hash);
            let proved =
                remembered.and_then(|address| self.known_elsewhere(hash, Some(address.zone)));
            self.totals.prefetch_hits += u64::from(proved.is_some());
            answers[*at] = proved.map(|address| address.zone);
            proved.is_none()
        });
        asked
    }
}
