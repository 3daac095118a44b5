//! Offline garbage collection (report §3.4): blocks that only a hash names are given up, the hash first and the last
//! reference after it.

use super::faults::{DmdedupFault, is_on};
use super::{Dmdedup, HASH_KEY_BYTES, Shared};
use crate::{Collected, Effort, Error, Key, Pbn, Result, Supported};

/// Hashes that are given up in one pass over the index: 24 MB of RAM.
const VICTIMS_MAX: usize = 1 << 20;
/// Those of a step.
const STEP_VICTIMS_MAX: usize = 4096;

type Victim = ([u8; HASH_KEY_BYTES], Pbn);

impl Dmdedup {
    pub(super) fn collect_garbage(&mut self, effort: Effort) -> Result<Collected> {
        let mut done = Collected::default();
        self.room.ask_again(&self.shared.data)?;
        let Some(mapped) = self.shared.mapped_blocks()? else {
            return Ok(done);
        };
        let victims_max = match effort {
            Effort::Whole => VICTIMS_MAX,
            Effort::Step => STEP_VICTIMS_MAX,
        };
        let mut freed = Vec::new();
        loop {
            let victims = self.shared.victims(&mapped, victims_max)?;
            self.is_changed |= !victims.is_empty();
            let mut rest = &victims[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(self.changeable(rest.len())?);
                self.shared.give_up(now)?;
                rest = later;
            }
            freed.extend(victims.iter().map(|(_, pbn)| pbn.0));
            done.is_more = victims.len() == victims_max;
            if !done.is_more || effort == Effort::Step {
                break;
            }
        }
        done.pages_freed = freed.len() as u64;
        self.garbage = self.garbage.saturating_sub(done.pages_freed);
        self.counts.collections += 1;
        if !freed.is_empty() {
            self.release(freed)?;
        }
        Ok(done)
    }

    /// Has the freed blocks become free, and the device take them back, which may be what its file system waits for.
    fn release(&mut self, mut freed: Vec<u64>) -> Result<()> {
        self.shared.data.sync()?;
        self.shared.wait_for_readers();
        self.shared.backend()?.save()?;
        self.is_changed = false;
        freed.sort_unstable();
        for run in freed.chunk_by(|a, b| a + 1 == *b) {
            self.shared.data.discard(Pbn(run[0]), run.len() as u64)?;
        }
        Ok(())
    }
}

/// Knowledge about the blocks of a depot that is opened.
pub(super) struct KnownBlocks {
    /// Blocks that only a hash names; 0 where the backend cannot tell.
    pub garbage: u64,
    /// The highest block that anything names, and one more.
    pub end: u64,
}

impl Shared {
    pub(super) fn garbage_and_end(&self) -> Result<KnownBlocks> {
        let mut known = KnownBlocks { garbage: 0, end: 0 };
        let Some(mapped) = self.mapped_blocks()? else {
            return Ok(known);
        };
        known.end = mapped.end();
        self.backend()?.iterate(self.hashes, &mut |_, pbn| {
            known.garbage += u64::from(!mapped.has(pbn));
            // A block that the device does not have is damage: reads tell it.
            known.end = known
                .end
                .max(pbn.0.saturating_add(1))
                .min(self.data.blocks());
            Ok(())
        })?;
        Ok(known)
    }

    /// The blocks that LBNs are mapped to; `None` where the backend does not tell.
    fn mapped_blocks(&self) -> Result<Option<BlockSet>> {
        let mut mapped = BlockSet::new(self.data.blocks());
        let supported = self.backend()?.iterate(self.lbns, &mut |_, pbn| {
            mapped.insert(pbn);
            Ok(())
        })?;
        Ok((supported == Supported::Yes).then_some(mapped))
    }

    /// At most `max` hashes of blocks that no LBN is mapped to.
    fn victims(&self, mapped: &BlockSet, max: usize) -> Result<Vec<Victim>> {
        let mut victims = Vec::new();
        self.backend()?.iterate(self.hashes, &mut |key, pbn| {
            if let Key::Sparse(key) = key
                && victims.len() < max
                && !mapped.has(pbn)
            {
                let key = key.first_chunk().ok_or_else(|| Error::Damaged {
                    place: "hash index".into(),
                    what: format!("a key of {} bytes", key.len()),
                })?;
                victims.push((*key, pbn));
            }
            Ok(())
        })?;
        Ok(victims)
    }

    fn give_up(&self, victims: &[Victim]) -> Result<()> {
        let mut backend = self.backend()?;
        for (key, pbn) in victims {
            if !is_on(DmdedupFault::HashOutlivesItsBlock) {
                backend.delete(self.hashes, Key::Sparse(key))?;
            }
            let count = backend.dec_ref(*pbn)?;
            self.forget_prefetched(*pbn, count);
        }
        Ok(())
    }
}

/// A bit for each block.
struct BlockSet(Vec<u64>);

impl BlockSet {
    fn new(blocks: u64) -> Self {
        Self(vec![0; blocks.div_ceil(64) as usize])
    }

    fn insert(&mut self, pbn: Pbn) {
        if let Some(word) = self.0.get_mut((pbn.0 / 64) as usize) {
            *word |= 1 << (pbn.0 % 64);
        }
    }

    /// The highest one, and one more.
    fn end(&self) -> u64 {
        let last = self.0.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| {
            at as u64 * 64 + 64 - u64::from(self.0[at].leading_zeros())
        })
    }

    fn has(&self, pbn: Pbn) -> bool {
        let word = self.0.get((pbn.0 / 64) as usize);
        word.is_some_and(|word| word >> (pbn.0 % 64) & 1 == 1)
    }
}
