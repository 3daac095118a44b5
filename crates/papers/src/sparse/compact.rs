//! Passes over the whole log: writing it anew without dead records, and visiting live ones.
//!
//! Invariant: the new log gets its name only when durable as a whole, so a crash leaves the old one or the new one.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;
use onefold_io::create_anew;

use super::ledger::Ledger;
use super::part::{ManifestPart, ManifestRecord};
use super::{LOG, LOG_FRAME, Sparse, empty_ledger, read_records};
use crate::pagelog::PageLog;
use onefold_index::{ContainerId, Location, Result};

const TMP: &str = "sparse-log-tmp";
/// RAM of a fingerprint that is to be visited, in bytes.
const SHOWN_BYTES: u64 = 90;

impl Sparse {
    /// Writes the log anew, and makes the ledger from it. The live part of the open segment must be written already.
    pub(super) fn compact(&mut self) -> Result<()> {
        let made = create_anew(&*self.dir, TMP)?;
        let mut made = PageLog::open(made, LOG, LOG_FRAME, &mut |_, _| Ok(()))?;
        let (mut ledger, mut part) = (empty_ledger(&self.options), ManifestPart::default());
        for number in 0..self.ledger.next() {
            let live = self.live_records(number)?;
            if part.records.len() + live.len() > self.options.segment_chunks {
                append(&mut made, &mut ledger, &mut part)?;
            }
            part.records.extend(live);
        }
        append(&mut made, &mut ledger, &mut part)?;
        made.sync()?;
        self.dir.rename(TMP, LOG)?;
        // from here on the old log has no name, whatever fails
        self.bytes_written += self.log.bytes_written;
        (self.log, self.ledger) = (made, ledger);
        self.cache.clear();
        self.manifest = None;
        self.is_name_durable = false;
        self.sync_name()
    }

    /// Makes the log's name durable, if it is not.
    pub(super) fn sync_name(&mut self) -> Result<()> {
        if !self.is_name_durable {
            self.dir.sync()?;
            self.is_name_durable = true;
        }
        Ok(())
    }

    /// The records of manifest `number` that were not removed and whose containers are not retired.
    fn live_records(&self, number: u32) -> Result<Vec<ManifestRecord>> {
        let extent = self.ledger.manifests[number as usize];
        let mut records = read_records(&self.log, &[extent])?.remove(0);
        records.retain(|record| {
            !self.ledger.is_retired(&record.container)
                && !self.ledger.is_removed(&record.key, number)
        });
        Ok(records)
    }

    /// Passes each fingerprint with its newest location to `visit`, one range of fingerprints after the other, so that
    /// a range fits into RAM.
    pub(super) fn visit_newest(
        &self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        let ram = (self.options.hook_bytes + self.options.cache_bytes).max(1 << 20) as u64;
        let ranges = (self.ledger.records * SHOWN_BYTES).div_ceil(ram).max(1);
        for range in 0..ranges {
            let mut newest: HashMap<Fingerprint, ContainerId> = HashMap::new();
            for number in 0..self.ledger.next() {
                for record in self.live_records(number)? {
                    let own = (u128::from(record.key.prefix()) * u128::from(ranges)) >> 64;
                    if own == u128::from(range) {
                        newest.insert(record.key, record.container);
                    }
                }
            }
            for (key, container) in newest {
                visit(key, Location { container })?;
            }
        }
        Ok(())
    }
}

/// Appends `part` and notes it in the ledger, as reading the log does; `part` is empty afterwards.
fn append(log: &mut PageLog, ledger: &mut Ledger, part: &mut ManifestPart) -> Result<()> {
    if !part.is_empty() {
        let extent = log.append(&part.encode())?;
        ledger.note(extent, part);
        part.records.clear();
    }
    Ok(())
}
