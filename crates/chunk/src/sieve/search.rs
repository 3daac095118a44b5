//! The cuts among the candidates: a search that goes on where the search of the chunk before ended.

use super::CANDIDATES_MAX;
use super::scan::{self, Area, Found, Isa, STEP};
use super::strong::Strong;
use alloc::vec::Vec;

/// What finds candidates and rates them: all that depends on content, none of which depends on where chunks begin.
#[derive(Clone)]
pub struct Scanner {
    pub isa: Isa,
    /// Linear bits of the position before a candidate that are zero.
    pub mask: u8,
    pub strong: Strong,
    /// Bytes to scan at least at a time.
    pub ahead: usize,
    pub found: Found,
    pub hashes: Vec<u64>,
}

/// A place to cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where the chunk would end, in bytes from the begin of the data.
    pub end: usize,
    /// Its strong hash: the smallest wins.
    pub hash: u64,
}

impl Scanner {
    /// Appends candidates whose `end` is `from` or more, and gives the end from which on it has not searched: `to`, more where `data` goes on
    /// (the next search is glad of them), or less where there are many.
    pub fn scan(
        &mut self,
        data: &[u8],
        from: usize,
        to: usize,
        candidates: &mut Vec<Candidate>,
    ) -> usize {
        // Whole steps, and many, if there is enough data. The last byte of a chunk is the position before its end.
        let ahead = to.max(from + self.ahead);
        let to = data.len().min(from + (ahead - from).next_multiple_of(STEP));
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
        candidates.extend(rated.map(|(t, hash)| Candidate {
            end: t + 1,
            hash: *hash,
        }));
        done
    }
}

/// Where one chunk may end.
#[derive(Clone, Copy)]
pub struct Range {
    pub from: usize,
    pub to: usize,
    /// The first candidate whose hash is below ends the search; 0: none does.
    pub threshold: u64,
    /// The stream ends at `to`, and what has no hash below the threshold stays whole.
    pub rest: bool,
}

/// How far the search in one buffer has come.
///
/// Searches of neighbouring chunks overlap: the range of the next begins `min` behind a cut, which lies anywhere in the range of this. What was
/// found stays in a list, so that every byte is scanned at most once, and every candidate rated once.
#[derive(Clone, Default)]
pub struct Search {
    candidates: Vec<Candidate>,
    /// Candidates in front that no later chunk can end at.
    passed: usize,
    /// The end from which on nothing was searched.
    searched: usize,
}

impl Search {
    /// Begins at the front of another buffer.
    pub fn restart(&mut self) {
        self.candidates.clear();
        (self.passed, self.searched) = (0, 0);
    }

    /// Where a chunk ends that may end in `range`, which begins no earlier than the one before it since the last restart.
    ///
    /// That is at the first candidate whose hash is below `range.threshold`; where none is, at the one with the smallest hash, or at the end of the range
    /// where it has no candidate or is one of the stream's `rest`. `more` is as [`Scanner::scan`]: appends candidates from the one end on, towards the
    /// other, and gives the end it came to.
    pub fn end(
        &mut self,
        range: Range,
        more: &mut impl FnMut(usize, usize, &mut Vec<Candidate>) -> usize,
    ) -> usize {
        let Range { from, to, .. } = range;
        self.pass(from);
        let most = self.passed + CANDIDATES_MAX;
        let mut best = Candidate {
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

    /// Forgets what lies before `from`.
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

/// Candidates that are carried along though passed: moving the others up is not worth it for less.
const PASSED_MAX: usize = 1024;
