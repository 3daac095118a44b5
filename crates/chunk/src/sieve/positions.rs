//! The positions that the linear pass searches, and those that it finds.

use alloc::boxed::Box;

/// The positions to search, `from..to`, and the linear bits of the position before that must be zero.
#[derive(Clone, Copy)]
pub struct Area {
    pub from: usize,
    pub to: usize,
    pub mask: u8,
}

/// Largest number of candidates of a scan, except for those of the last [`STEP`] positions.
pub const FOUND_MAX: usize = 128;
/// Positions that a scan searches at a time.
pub const STEP: usize = 128;

/// Candidate positions, ascending; there is room for those of one step more than [`FOUND_MAX`].
#[derive(Clone)]
pub struct Positions {
    pub(super) positions: Box<[u32; FOUND_MAX + STEP]>,
    pub(super) base: usize,
    pub(super) count: usize,
}

impl Positions {
    /// An empty list.
    pub fn new() -> Self {
        Self {
            positions: Box::new([0; FOUND_MAX + STEP]),
            base: 0,
            count: 0,
        }
    }

    /// The positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let found = &self.positions[..self.count];
        found.iter().map(|position| self.base + *position as usize)
    }

    pub(super) fn push(&mut self, position: usize) {
        self.positions[self.count] = (position - self.base) as u32;
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= FOUND_MAX
    }
}
