//! The decision about the containers: which go, and which are rewritten.

use onefold_index::ContainerId;

use crate::container::StreamKind;

/// Decision about the containers.
#[derive(Default)]
pub(super) struct SweepPlan {
    pub(super) dead: Vec<ContainerId>,
    pub(super) compact: Vec<Candidate>,
    pub(super) candidates: Vec<Candidate>,
}

/// Which of a container's chunks are referred to: a bit each, since there may be very many containers that are to be
/// rewritten.
pub struct Live(Box<[u64]>);

impl Live {
    /// Asks of each of `chunks` chunks, by number.
    pub fn of(chunks: u32, is_live: impl Fn(u32) -> bool) -> Self {
        let word = |first: u32| {
            let numbers = first..chunks.min(first + 64);
            numbers
                .filter(|number| is_live(*number))
                .fold(0, |word, number| word | 1 << (number - first))
        };
        Self((0..chunks).step_by(64).map(word).collect())
    }

    /// Whether chunk `number` is.
    pub fn contains(&self, number: u32) -> bool {
        self.0[number as usize / 64] >> (number % 64) & 1 == 1
    }
}

/// A container that may be rewritten.
pub struct Candidate {
    pub id: ContainerId,
    pub stream: StreamKind,
    /// Chunks that are referred to.
    pub live: Live,
    /// Its bytes.
    pub stored: u64,
    /// Whether the container was condemned before: chunks in it that still live are to be rescued.
    pub is_condemned: bool,
    /// An estimate of those that nothing refers to.
    pub dead_bytes: u64,
    /// Share of the chunks' bytes that is referred to.
    pub share: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_chunks_are_those_that_were_said_to_be() {
        for chunks in [0, 1, 63, 64, 65, 1_000] {
            let live = Live::of(chunks, |number| number % 7 == 3);
            assert!((0..chunks).all(|number| live.contains(number) == (number % 7 == 3)));
        }
    }
}
