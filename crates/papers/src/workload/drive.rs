//! Runs an index under a stream: each key is looked up, and inserted if it was not found.

use std::time::{Duration, Instant};

use onefold_chunk::Fingerprint;

use onefold_index::{ChunkIndex, ContainerId, Location, Result};

/// Number of keys in a batch.
const BATCH: usize = 512;
/// Chunks of a container.
const CONTAINER_CHUNKS: u64 = 1023;

/// The device's time so far, in microseconds of modelled time; always 0 for a real device.
pub type Clock<'a> = &'a dyn Fn() -> f64;

/// The costs of a stream.
#[derive(Clone, Copy, Default, Debug)]
pub struct DriveReport {
    /// Number of keys that were looked up.
    pub lookups: u64,
    /// Number of keys that were found.
    pub hits: u64,
    /// Number of keys that were inserted.
    pub inserts: u64,
    /// Modelled device time of lookups, in microseconds.
    pub lookup_us: f64,
    /// Modelled device time of insertions and the last checkpoint, in microseconds.
    pub insert_us: f64,
    /// Wall time of lookups and insertions.
    pub wall: Duration,
}

/// Looks `keys` up batch by batch, inserts those not found (unless `is_query`, where nothing is inserted), and
/// checkpoints at the end.
///
/// Keys that repeat within a batch are looked up once more and inserted once, as by a dedup store.
///
/// # Errors
/// Errors of the index, at the first call that fails.
pub fn drive(
    index: &mut dyn ChunkIndex,
    keys: &mut dyn Iterator<Item = Fingerprint>,
    is_query: bool,
    clock: Clock<'_>,
) -> Result<DriveReport> {
    let mut report = DriveReport::default();
    let mut batch: Vec<Fingerprint> = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        batch.extend(keys.take(BATCH));
        if batch.is_empty() {
            break;
        }
        let (start, before) = (Instant::now(), clock());
        let mut found = vec![None; batch.len()];
        index.lookup(&batch, &mut found)?;
        let between = clock();
        let mut new = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (key, found) in batch.iter().zip(&found) {
            match found {
                Some(_) => report.hits += 1,
                None if is_query || !seen.insert(*key) => {}
                None => {
                    let container = ContainerId(report.inserts / CONTAINER_CHUNKS);
                    new.push((*key, Location { container }));
                    report.inserts += 1;
                }
            }
        }
        index.insert(&new)?;
        report.lookups += batch.len() as u64;
        report.lookup_us += between - before;
        report.insert_us += clock() - between;
        report.wall += start.elapsed();
    }
    if !is_query {
        let (start, before) = (Instant::now(), clock());
        index.checkpoint()?;
        report.insert_us += clock() - before;
        report.wall += start.elapsed();
    }
    Ok(report)
}
