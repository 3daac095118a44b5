//! The cuts among the candidates: a search goes on where the search of the previous chunk ended.

use super::CANDIDATES_MAX;
use super::isa::SieveIsa;
use super::positions::{Area, Positions, STEP};
use super::scan;
use super::strong::Strong;
use alloc::vec::Vec;

/// Finds and rates candidates. They depend on content alone, never on where chunks begin.
#[derive(Clone)]
pub struct Scanner {
    pub isa: SieveIsa,
    /// Mask of the linear bits that must be zero at the position before a candidate.
    pub mask: u8,
    pub strong: Strong,
    /// Smallest number of bytes to scan at a time.
    pub ahead: usize,
    /// Largest number of bytes to scan at a time: [`SCAN_BYTES_MAX`].
    pub scan_bytes_max: usize,
    pub found: Positions,
    pub hashes: Vec<u64>,
}

/// Largest number of bytes in a scan, which lists positions in 32 bits. Longer data is scanned in parts, on every
/// machine.
pub const SCAN_BYTES_MAX: usize = 1 << 31;

/// A possible end of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutCandidate {
    /// Offset of the end from the beginning of the data, in bytes.
    pub end: usize,
    /// Strong hash of the window before the end; the smallest wins.
    pub hash: u64,
}

impl Scanner {
    /// Appends candidates whose `end` is `from` or more, and returns the end from which on nothing was searched: `to`;
    /// more where `data` goes on, for the next search; or less where there are many candidates or `to` is far.
    pub fn scan(
        &mut self,
        data: &[u8],
        from: usize,
        to: usize,
        candidates: &mut Vec<CutCandidate>,
    ) -> usize {
        // Scans whole steps, and many, if there is enough data. The last byte of a chunk is the position before its
        // end.
        let ahead = to.max(from + self.ahead) - from;
        let bytes = ahead.next_multiple_of(STEP).min(self.scan_bytes_max);
        let to = data.len().min(from + bytes);
        let area = Area {
            from: from - 1,
            to: to - 1,
            mask: self.mask,
        };
        let done = scan::scan(self.isa, data, area, &mut self.found) + 1;
        self.hashes.clear();
        self.strong
            .hash_all(data, self.found.iter().map(|t| t + 1), &mut self.hashes);
        let rated = self.found.iter().zip(&self.hashes);
        candidates.extend(rated.map(|(t, hash)| CutCandidate {
            end: t + 1,
            hash: *hash,
        }));
        done
    }
}

/// The range in which one chunk may end.
#[derive(Clone, Copy)]
pub struct Range {
    pub from: usize,
    pub to: usize,
    /// The first candidate with a hash below this ends the search; 0: no candidate does.
    pub threshold: u64,
    /// Whether the stream ends at `to`: then a chunk without a hash below the threshold stays whole.
    pub rest: bool,
}

/// The state of the search in one buffer.
///
/// Searches of neighbouring chunks overlap: the next range begins `min` behind a cut, which lies anywhere in the
/// present range. Candidates stay in a list, so that every byte is scanned at most once, and every candidate rated
/// once.
#[derive(Clone, Default)]
pub struct CutSearch {
    candidates: Vec<CutCandidate>,
    /// Number of candidates at the front that no later chunk can end at.
    passed: usize,
    /// The end from which on nothing was searched.
    searched: usize,
}

impl CutSearch {
    /// Begins anew at the front of another buffer.
    pub fn restart(&mut self) {
        self.candidates.clear();
        (self.passed, self.searched) = (0, 0);
    }

    /// The end of a chunk that may end in `range`, which begins no earlier than the range before it since the last
    /// restart.
    ///
    /// The chunk ends at the first candidate whose hash is below `range.threshold`; where there is none, at the
    /// candidate with the smallest hash, or at the end of the range where it has no candidate or is one of the stream's
    /// `rest`. `more` is like [`Scanner::scan`]: it appends candidates from its first argument on, towards the second,
    /// and returns how far it came.
    pub fn end(
        &mut self,
        range: Range,
        more: &mut impl FnMut(usize, usize, &mut Vec<CutCandidate>) -> usize,
    ) -> usize {
        let Range { from, to, .. } = range;
        self.pass(from);
        let most = self.passed + CANDIDATES_MAX;
        let mut best = CutCandidate {
            end: to,
            hash: if range.rest { 0 } else { u64::MAX },
        };
        let mut looked = self.passed;
        loop {
            let known = most.min(self.candidates.len());
            for candidate in &self.candidates[looked..known] {
                if candidate.end >= to {
                    return best.end;
                }
                if candidate.hash < range.threshold {
                    return candidate.end;
                }
                if candidate.hash < best.hash {
                    best = *candidate;
                }
            }
            looked = known;
            if self.searched >= to || looked == most {
                return best.end;
            }
            self.searched = more(self.searched, to, &mut self.candidates);
        }
    }

    /// Drops candidates before `from`.
    fn pass(&mut self, from: usize) {
        while self
            .candidates
            .get(self.passed)
            .is_some_and(|candidate| candidate.end < from)
        {
            self.passed += 1;
        }
        if self.passed >= PASSED_MAX {
            self.candidates.drain(..self.passed);
            self.passed = 0;
        }
        self.searched = self.searched.max(from);
    }
}

/// Number of passed candidates that are kept in the list: moving the others up is not worth it for fewer.
const PASSED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::{Sieve, linear};
    use super::*;
    use crate::Chunker;
    use alloc::vec;

    /// Pseudo-random bytes; `choose` appends each one by the bytes before it.
    fn bytes(len: usize, choose: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut data = vec![];
        let mut state = 1u64;
        while data.len() < len {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
            data.push((state >> 56) as u8);
            choose(&mut data);
        }
        data
    }

    fn random(len: usize) -> Vec<u8> {
        bytes(len, |_| ())
    }

    /// For any eight bytes before, one value of a byte makes its linear bits zero: from the ninth byte on all positions
    /// are candidates.
    fn all_candidates(len: usize) -> Vec<u8> {
        bytes(len, |data| {
            let last = data.len() - 1;
            if last >= linear::REACH {
                data[last] ^= linear::bits_at(data, last);
            }
        })
    }

    #[test]
    fn what_is_scanned_in_parts_has_the_candidates_of_the_whole() {
        const { assert!(SCAN_BYTES_MAX <= u32::MAX as usize) };
        let zeros = vec![0; 30_000];
        let mixed = [
            random(20_000),
            all_candidates(1000),
            zeros.clone(),
            random(20_000),
        ]
        .concat();
        for (data, isa) in [&mixed, &zeros].into_iter().flat_map(|data| {
            SieveIsa::available()
                .into_iter()
                .map(move |isa| (data, isa))
        }) {
            let mut sieve = Sieve::new(1024).on(isa).expect("available");
            let whole = sieve.candidates(data, 0..data.len());
            let mut cuts = vec![];
            sieve.cuts(data, true, &mut |length| cuts.push(length));
            for most in [1, 64, STEP, 1000, 10 * STEP] {
                sieve.scanner.scan_bytes_max = most;
                let parts = sieve.candidates(data, 0..data.len());
                assert!(parts == whole, "{most} on {isa:?}");
                let mut in_parts = vec![];
                sieve.cuts(data, true, &mut |length| in_parts.push(length));
                assert_eq!(in_parts, cuts, "{most} on {isa:?}");
            }
        }
    }

    /// The number of strong hashes computed to cut `data`, and the number of chunks.
    fn hashes_for(sieve: &mut Sieve, data: &[u8]) -> (usize, usize) {
        let (mut hashes, mut chunks) = (0, 0);
        let count = &mut |_| chunks += 1;
        sieve.cuts_with(data, true, count, |scanner, from, to, candidates| {
            let before = candidates.len();
            let done = scanner.scan(data, from, to, candidates);
            assert_eq!(scanner.hashes.len(), candidates.len() - before);
            hashes += scanner.hashes.len();
            done
        });
        (hashes, chunks)
    }

    /// See *Worst case* of the module above.
    #[test]
    fn crafted_data_costs_a_strong_hash_in_eight_bytes_at_a_mean_of_8_kib() {
        let crafted = all_candidates(4 << 20);
        let random = random(4 << 20);
        for isa in SieveIsa::available() {
            for mean in [256, 1024, 8192, 65_536] {
                let mut sieve = Sieve::new(mean).on(isa).expect("available");
                let (hashes, chunks) = hashes_for(&mut sieve, &crafted);
                assert!(hashes <= crafted.len(), "none twice");
                assert!(hashes <= chunks * CANDIDATES_MAX, "{hashes}, {mean}");
                let (few, _) = hashes_for(&mut sieve, &random);
                assert!(
                    few < random.len() / 200 && hashes > 5 * few,
                    "{few}, {mean}"
                );
            }
            let (hashes, _) = hashes_for(&mut Sieve::new(8192).on(isa).expect("it"), &crafted);
            let part = crafted.len() as f64 / hashes as f64;
            assert!((7.5..9.0).contains(&part), "one in {part} bytes");
        }
    }
}
