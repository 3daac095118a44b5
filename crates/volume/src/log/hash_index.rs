//! The hash index: from a chunk's hash to the zone that holds it. Advice: what it says is proved by the zone's rows.

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_keys::Fingerprinter;

use super::layout::ZoneId;
use super::seals::Seals;
use super::zone::{ChunkHash, NO_HASH, chunk_hash};
use crate::{Error, Result};

/// A fingerprint index in which a container is a zone. It may answer with anything it was ever told. In an encrypted
/// depot it is told hashes of hashes: its files hold none that a zone's rows have.
pub struct HashIndex {
    index: Box<dyn ChunkIndex>,
    rehash: Option<Fingerprinter>,
}

impl HashIndex {
    /// Asks and tells `index`.
    pub fn new(index: Box<dyn ChunkIndex>, seals: &Seals) -> Self {
        let rehash = seals.rehash();
        Self { index, rehash }
    }

    /// The index takes whole fingerprints: the half that zones keep, and zeros.
    fn key(&self, hash: &ChunkHash) -> Fingerprint {
        let hash = match &self.rehash {
            Some(rehash) => chunk_hash(&rehash.fingerprint(hash)),
            None => *hash,
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&hash);
        Fingerprint(bytes)
    }

    /// Fills `zones[i]` with the zone that is said to hold `hashes[i]`.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn lookup(&mut self, hashes: &[ChunkHash], zones: &mut Vec<Option<ZoneId>>) -> Result<()> {
        let keys: Vec<Fingerprint> = hashes.iter().map(|hash| self.key(hash)).collect();
        let mut found = vec![None; keys.len()];
        self.index.lookup(&keys, &mut found).map_err(failed)?;
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
            let key = self.key(&hash);
            self.index
                .say(&key, Some(ContainerId(zone.0)))
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
        self.index.retire(&containers).map_err(failed)
    }

    /// Whether it knows nothing: a new one, or one that was lost.
    pub fn is_empty(&self) -> bool {
        self.index.stats().entries == 0
    }

    /// Makes what it was told durable.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.index.checkpoint().map_err(failed)
    }

    /// Entries, RAM in bytes, page reads of lookups.
    pub fn figures(&self) -> (u64, u64, u64) {
        let stats = self.index.stats();
        (
            stats.entries,
            self.index.ram_bytes() as u64,
            stats.lookup_reads,
        )
    }
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
