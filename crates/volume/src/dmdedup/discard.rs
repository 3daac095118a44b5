//! Discards: LBNs are unmapped. Data stays while a hash names it; the data device is not told.

use std::ops::Range;
use std::sync::Arc;

use super::Dmdedup;
use super::read::LOOKUPS_MAX;
use crate::{Key, Result};

impl Dmdedup {
    pub(super) fn discard_range(&mut self, lbns: Range<u64>) -> Result<()> {
        self.shared.check(&lbns)?;
        let shared = Arc::clone(&self.shared);
        let mut at = lbns.start;
        while at < lbns.end {
            let end = lbns
                .end
                .min(at + self.changeable(LOOKUPS_MAX as usize)? as u64);
            let keys: Vec<_> = (at..end).map(Key::Linear).collect();
            let mut pbns = vec![None; keys.len()];
            let mut backend = shared.backend()?;
            backend.lookup(shared.lbns, &keys, &mut pbns)?;
            let mut writes = 0;
            for (lbn, old) in (at..end).zip(pbns) {
                if old.is_some() {
                    self.is_changed = true;
                    writes += 1;
                    self.counts.discards += 1;
                    self.map(&mut backend, lbn, old, None)?;
                }
            }
            drop(backend);
            self.add_to_transaction(writes)?;
            at = end;
        }
        Ok(())
    }
}
