//! The hash index: from a chunk's hash to the zone that holds it. Advice: what it says is proved by the zone's rows.

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location};

use super::layout::ZoneId;
use super::zone::{ChunkHash, NO_HASH};
use crate::{Error, Result};

/// A fingerprint index in which a container is a zone. It may answer with anything it was ever told.
pub struct HashIndex(Box<dyn ChunkIndex>);

impl HashIndex {
    /// Asks and tells `index`.
    pub fn new(index: Box<dyn ChunkIndex>) -> Self {
        Self(index)
    }

    /// Fills `zones[i]` with the zone that is said to hold `hashes[i]`.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn lookup(&mut self, hashes: &[ChunkHash], zones: &mut Vec<Option<ZoneId>>) -> Result<()> {
        let keys: Vec<Fingerprint> = hashes.iter().map(key).collect();
        let mut found = vec![None; keys.len()];
        self.0.lookup(&keys, &mut found).map_err(failed)?;
        zones.clear();
        zones.extend(
            found
                .iter()
                .map(|found: &Option<Location>| found.map(|at| ZoneId(at.container.0))),
        );
        Ok(())
    }

    /// Tells the index that these chunks lie in `zone`.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn insert(
        &mut self,
        hashes: impl IntoIterator<Item = ChunkHash>,
        zone: ZoneId,
    ) -> Result<()> {
        let told = hashes.into_iter().filter(|hash| *hash != NO_HASH);
        for hash in told {
            self.0
                .say(&key(&hash), Some(ContainerId(zone.0)))
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Forgets all that points to these zones.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn retire(&mut self, zones: &[ZoneId]) -> Result<()> {
        let containers: Vec<ContainerId> = zones.iter().map(|zone| ContainerId(zone.0)).collect();
        self.0.retire(&containers).map_err(failed)
    }

    /// Whether it knows nothing: a new one, or one that was lost.
    pub fn is_empty(&self) -> bool {
        self.0.stats().entries == 0
    }

    /// Makes what it was told durable.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.0.checkpoint().map_err(failed)
    }

    /// Entries, RAM in bytes, page reads of lookups.
    pub fn figures(&self) -> (u64, u64, u64) {
        let stats = self.0.stats();
        (stats.entries, self.0.ram_bytes() as u64, stats.lookup_reads)
    }
}

/// The index takes whole fingerprints: the half that zones keep, and zeros.
fn key(hash: &ChunkHash) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(hash);
    Fingerprint(bytes)
}

fn failed(error: onefold_index::Error) -> Error {
    match error {
        onefold_index::Error::Io(error) => error.into(),
        other => Error::Damaged {
            place: "index".to_string(),
            what: other.to_string(),
        },
    }
}
