//! An extent: neighbouring LBNs, and what they are mapped to.

use std::ops::Range;

use crate::log::layout::Address;

/// Neighbouring LBNs and their chunks, which lie one behind the other; or a hole, which hides what older levels say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first LBN.
    pub lbn: u64,
    /// How many LBNs, at least one.
    pub chunks: u64,
    /// Where the first chunk lies; `None` is a hole.
    pub target: Option<Address>,
}

impl Extent {
    /// The LBN behind the last one.
    pub fn end(&self) -> u64 {
        self.lbn + self.chunks
    }

    /// LBNs that are mapped to a chunk.
    pub fn mapped(&self) -> u64 {
        self.target.map_or(0, |_| self.chunks)
    }

    /// The address of the chunk `ahead` chunks behind the first.
    pub fn target_at(&self, ahead: u64, chunk_pages: u32) -> Option<Address> {
        self.target.map(|first| first.ahead(ahead, chunk_pages))
    }

    /// The part of it that lies in `lbns`, with which it has an LBN in common.
    pub fn cut(&self, lbns: &Range<u64>, chunk_pages: u32) -> Self {
        let lbn = self.lbn.max(lbns.start);
        let end = self.end().min(lbns.end);
        debug_assert!(lbn < end, "{self:?} has nothing in {lbns:?}");
        Self {
            lbn,
            chunks: end - lbn,
            target: self.target_at(lbn - self.lbn, chunk_pages),
        }
    }

    /// Whether LBNs and chunks of `next` go on where this one ends.
    pub fn is_followed_by(&self, next: &Self, chunk_pages: u32) -> bool {
        let goes_on = match (self.target, next.target) {
            (None, None) => true,
            (Some(first), Some(second)) => first.is_followed_by(second, self.chunks, chunk_pages),
            _ => false,
        };
        self.end() == next.lbn && goes_on
    }
}
