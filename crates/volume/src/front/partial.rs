//! Partial chunks: LBNs of which a part is written are locked while the rest is read, merged and staged (report Figure
//! 3.2). Whole chunks need no lock; they only leave a mark where somebody is at work.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::MutexGuard;

use super::state::{FrontShared, FrontState};
use crate::{HeadId, Result};

/// LBNs at which a partial write is at work, and discards that have not reached the engine.
#[derive(Default)]
pub(super) struct Partials {
    /// Whether somebody else wrote to the LBN since the lock was taken or renewed.
    locked: HashMap<(HeadId, u64), bool>,
    discards: Vec<(u64, HeadId, Range<u64>)>,
}

impl Partials {
    fn is_free(&self, head: HeadId, lbn: u64) -> bool {
        let is_covered =
            |(_, of, lbns): &(u64, HeadId, Range<u64>)| *of == head && lbns.contains(&lbn);
        !self.locked.contains_key(&(head, lbn)) && !self.discards.iter().any(is_covered)
    }

    /// Somebody wrote or discards these chunks: what others read of them is old.
    pub fn touch(&mut self, head: HeadId, lbns: Range<u64>) {
        if !self.locked.is_empty() {
            self.locked
                .iter_mut()
                .filter(|((of, lbn), _)| *of == head && lbns.contains(lbn))
                .for_each(|(_, is_old)| *is_old = true);
        }
    }

    pub fn add_discard(&mut self, sequence: u64, head: HeadId, lbns: Range<u64>) {
        self.touch(head, lbns.clone());
        self.discards.push((sequence, head, lbns));
    }

    pub fn end_discard(&mut self, sequence: u64) {
        self.discards.retain(|(of, _, _)| *of != sequence);
    }

    /// How many discards have not reached the engine.
    pub fn discards(&self) -> usize {
        self.discards.len()
    }

    pub fn forget_discards(&mut self) {
        self.discards.clear();
    }

    /// Whether none of them was written to since they were locked or this was asked last.
    pub fn are_unchanged(&mut self, head: HeadId, lbns: &[u64]) -> bool {
        let mut unchanged = true;
        for lbn in lbns {
            if let Some(is_old) = self.locked.get_mut(&(head, *lbn)) {
                unchanged &= !std::mem::take(is_old);
            }
        }
        unchanged
    }

    pub fn unlock(&mut self, head: HeadId, lbns: &[u64]) {
        for lbn in lbns {
            self.locked.remove(&(head, *lbn));
        }
    }

    /// Whether a discard of one of them has not reached the engine.
    pub fn are_discarded(&self, head: HeadId, lbns: &[u64]) -> bool {
        self.discards
            .iter()
            .any(|(_, of, range)| *of == head && lbns.iter().any(|lbn| range.contains(lbn)))
    }
}

impl FrontShared {
    /// Waits until nobody is at work on these LBNs, and locks them all at once.
    ///
    /// # Errors
    /// The front has failed or is closed.
    pub fn lock_lbns(
        &self,
        state: &mut MutexGuard<'_, FrontState>,
        head: HeadId,
        lbns: &[u64],
    ) -> Result<()> {
        while !lbns.iter().all(|lbn| state.partials.is_free(head, *lbn)) {
            self.wait(state)?;
        }
        let locked = lbns.iter().map(|lbn| ((head, *lbn), false));
        state.partials.locked.extend(locked);
        Ok(())
    }
}
