//! One stream on several cores, with exactly the cuts of one core.
//!
//! Nearly all the work is to find and rate candidates, and none of that depends on where chunks begin. Pieces of a
//! buffer are therefore [searched](Sieve::candidates) side by side, and one core then [cuts](Sieve::cuts_from) among
//! the few candidates. The caller provides the threads.

use alloc::vec::Vec;
use core::ops::Range;

use super::search::CutCandidate;
use super::{CANDIDATES_MAX, Sieve};

/// The candidates of a piece of a buffer, from [`Sieve::candidates`].
///
/// ```
/// use onefold_chunk::{Chunker, sieve::Sieve};
///
/// let mut sieve = Sieve::new(4096);
/// let data = [b"to be or not ".repeat(500), b"to be".repeat(999)].concat();
/// let found = sieve.candidates(&data, 0..data.len());
/// let mut covered = 0;
/// sieve.cuts_from(&data, &[found], true, &mut |length| covered += length);
/// assert_eq!(covered, data.len());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// Range of ends that were searched: the piece, or less of it where it has very many candidates.
    searched: Range<usize>,
    found: Vec<CutCandidate>,
}

/// A piece with a candidate in fewer bytes than this on average is not searched to its end, which bounds the memory of
/// its list (crafted data can have one at every byte). The rest is searched when cuts are made, where not every
/// candidate is needed.
const BYTES_PER_CANDIDATE_MIN: usize = 32;

impl Sieve {
    /// Finds the candidates for chunks that end in `piece`, a range of `data`.
    ///
    /// The search reads nothing but the piece and the 32 bytes before it. Pieces may be any; neighbouring ones without
    /// gaps are best, of some 100 KiB and more. The result takes 16 bytes of memory a candidate: one in 512 bytes at a
    /// mean of 8 KiB, and never more than one in 32.
    ///
    /// ```
    /// use onefold_chunk::{Chunker, sieve::Sieve};
    ///
    /// let data: Vec<u8> = (0..500_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
    /// let mut sieve = Sieve::new(8192);
    /// let found = std::thread::scope(|scope| {
    ///     let pieces = [0..1_000_000, 1_000_000..data.len()];
    ///     let (sieve, data) = (&sieve, &data);
    ///     let search = |piece| scope.spawn(move || sieve.candidates(data, piece));
    ///     pieces.map(search).map(|thread| thread.join().unwrap())
    /// });
    /// let (mut one_core, mut two_cores) = (Vec::new(), Vec::new());
    /// sieve.cuts(&data, true, &mut |length| one_core.push(length));
    /// sieve.cuts_from(&data, &found, true, &mut |length| two_cores.push(length));
    /// assert_eq!(one_core, two_cores);
    /// ```
    ///
    /// # Panics
    /// If `piece` is not within `data`.
    pub fn candidates(&self, data: &[u8], piece: Range<usize>) -> Candidates {
        assert!(piece.start <= piece.end && piece.end <= data.len());
        let data = &data[..piece.end];
        let mut scanner = self.scanner.clone();
        scanner.ahead = 0;
        // No chunk that begins in `data` ends before `min`.
        let from = piece.start.max(self.limits.min);
        let (mut searched, mut found) = (from, Vec::new());
        let most = piece.len() / BYTES_PER_CANDIDATE_MIN + CANDIDATES_MAX;
        while searched < piece.end && found.len() < most {
            searched = scanner.scan(data, searched, piece.end, &mut found);
        }
        Candidates {
            searched: from..searched,
            found,
        }
    }

    /// The same cuts as [`Chunker::cuts`](crate::Chunker::cuts), but candidates `found` in pieces of the same `data`,
    /// ascending, are not searched for again.
    pub fn cuts_from(
        &mut self,
        data: &[u8],
        pieces: &[Candidates],
        ends: bool,
        chunk: &mut dyn FnMut(usize),
    ) -> usize {
        let mut pieces = pieces.iter().peekable();
        self.cuts_with(data, ends, chunk, |scanner, from, to, candidates| {
            while pieces.next_if(|piece| piece.searched.end <= from).is_some() {}
            match pieces.peek() {
                Some(piece) if piece.searched.start <= from => piece.portion(from, candidates),
                Some(piece) => scanner.scan(data, from, to.min(piece.searched.start), candidates),
                None => scanner.scan(data, from, to, candidates),
            }
        })
    }
}

impl Candidates {
    /// Appends some of the piece's candidates from `from` on, and returns the end up to which the list is complete.
    fn portion(&self, from: usize, candidates: &mut Vec<CutCandidate>) -> usize {
        let first = self.found.partition_point(|candidate| candidate.end < from);
        let rest = &self.found[first..];
        match rest.get(CANDIDATES_MAX) {
            Some(next) => {
                candidates.extend_from_slice(&rest[..CANDIDATES_MAX]);
                next.end
            }
            None => {
                candidates.extend_from_slice(rest);
                self.searched.end
            }
        }
    }
}
