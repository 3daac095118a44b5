//! The worst index that keeps its promise: whatever it answers, it was told once.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, IndexStats, Location};
use onefold_io::Random;
use parking_lot::Mutex;

/// All answers that were ever given for each key: the index never forgets, survives every crash, and gives any of them.
pub type EverSaid = Arc<Mutex<(HashMap<Fingerprint, Vec<ContainerId>>, Random)>>;

/// An index that answers with anything it was ever told, or with nothing.
pub struct AdversarialIndex(pub EverSaid);

impl ChunkIndex for AdversarialIndex {
    fn lookup(
        &self,
        keys: &[Fingerprint],
        found: &mut [Option<Location>],
    ) -> onefold_index::Result<()> {
        let (said, random) = &mut *self.0.lock();
        for (key, found) in keys.iter().zip(found) {
            let all = said.get(key).filter(|_| !random.one_in(8));
            *found = all.map(|all| Location {
                container: all[random.below(all.len() as u64) as usize],
            });
        }
        Ok(())
    }

    fn say(
        &mut self,
        key: &Fingerprint,
        container: Option<ContainerId>,
    ) -> onefold_index::Result<()> {
        self.0.lock().0.entry(*key).or_default().extend(container);
        Ok(())
    }

    fn retire(&mut self, _: &[ContainerId]) -> onefold_index::Result<()> {
        Ok(())
    }

    fn checkpoint(&mut self) -> onefold_index::Result<()> {
        Ok(())
    }

    fn iterate(
        &mut self,
        _: &mut dyn FnMut(Fingerprint, Location) -> onefold_index::Result<()>,
    ) -> onefold_index::Result<()> {
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        0
    }

    fn stats(&self) -> IndexStats {
        IndexStats::default()
    }
}

/// Nothing was said yet.
pub fn ever_said(seed: u64) -> EverSaid {
    Arc::new(Mutex::new((HashMap::new(), Random(seed))))
}
