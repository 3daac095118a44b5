//! Checking a depot: whether its structures are whole, and, where wanted, whether every chunk of every volume can be
//! read as it was written. Runs beside writers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_chunk::fingerprints;

use super::{Depot, Head};
use crate::{ChunkRead, ChunkReader, Error, ExtentKind, Finding, Lbn, Result};

/// Chunks that are read together.
const CHUNKS_AT_ONCE: u64 = 256;
/// Stretches of a map that are looked up together.
const STRETCHES_AT_ONCE: usize = 4096;
/// Structures are one in this many bytes of a data device.
const STRUCTURES_SHARE: u64 = 100;
/// Damaged stretches that are listed; what lies behind is counted.
const LISTED_MAX: usize = 1000;

/// Findings of a check.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckReport {
    /// Faults of the engine's own structures, or of stored chunks as such.
    pub findings: Vec<Finding>,
    /// Chunks that were read.
    pub chunks_read: u64,
    /// Chunks that could not be read as they were written.
    pub chunks_damaged: u64,
    /// Where these are, by volume: the first 1,000 stretches.
    pub damaged: Vec<DamagedStretch>,
}

/// Neighbouring chunks of a volume that are damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedStretch {
    /// The volume's name.
    pub volume: String,
    /// The chunks.
    pub lbns: Range<u64>,
    /// Description of the first one's fault.
    pub what: String,
}

impl CheckReport {
    /// Whether nothing is amiss.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.chunks_damaged == 0
    }

    fn add(&mut self, volume: &str, lbn: u64, what: String) {
        self.chunks_damaged += 1;
        let last = self.damaged.last_mut();
        if let Some(last) = last.filter(|last| last.volume == volume && last.lbns.end == lbn) {
            last.lbns.end += 1;
        } else if self.damaged.len() < LISTED_MAX {
            self.damaged.push(DamagedStretch {
                volume: volume.to_owned(),
                lbns: lbn..lbn + 1,
                what,
            });
        }
    }
}

/// How far a check is, for others to see and to end.
#[derive(Default, Debug)]
pub struct CheckProgress {
    done: AtomicU64,
    total: AtomicU64,
    is_stopped: AtomicBool,
}

impl CheckProgress {
    /// Bytes that were looked at, and those of the whole check as far as it knows.
    pub fn bytes(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.done), get(&self.total))
    }

    /// Ends the check that goes on, and later ones.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Notes work that was done.
    ///
    /// # Errors
    /// [`Error::Closing`]: the check is to end.
    pub fn add(&self, bytes: u64) -> Result<()> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.is_stopped.load(Ordering::Relaxed) {
            Err(Error::Closing)
        } else {
            Ok(())
        }
    }
}

impl Depot {
    /// Checks the depot's structures, and with `read_data` every chunk.
    ///
    /// # Errors
    /// A device failed. Damage is no error: the report tells it.
    pub fn check(&self, read_data: bool) -> Result<CheckReport> {
        self.check_with(read_data, &CheckProgress::default())
    }

    /// As [`check`](Self::check), with progress. Takes some MiB of RAM, whatever the depot holds.
    ///
    /// # Errors
    /// As of [`check`](Self::check); [`Error::Closing`] where it was ended.
    pub fn check_with(&self, read_data: bool, progress: &CheckProgress) -> Result<CheckReport> {
        let reader = self.front.reader();
        let key = self.config.hash_key;
        let name = |chunks: &[&[u8]]| fingerprints(Some(&key), chunks.iter().copied());
        let chunk_bytes = u64::from(self.config.chunk_bytes);
        let (engine, space) = self.front.engine_stats()?;
        let structures = space.total * chunk_bytes / STRUCTURES_SHARE;
        let data = if read_data {
            engine.mapped_lbns * chunk_bytes
        } else {
            0
        };
        progress.begin(structures + data);
        let mut report = CheckReport {
            findings: reader.check(read_data.then_some(&name), &|| progress.add(0))?,
            ..CheckReport::default()
        };
        progress.add(structures)?;
        let chunks = report.findings.iter().flat_map(|finding| &finding.chunks);
        for (head, lbn) in chunks.copied().collect::<BTreeSet<_>>() {
            let heads = self.heads();
            let named = heads.iter().find(|named| named.id == head);
            let volume = named.map_or("", |head| &head.name);
            report.add(volume, lbn, "its block is damaged".into());
        }
        if read_data {
            for head in self.heads() {
                self.read_all(&head, &reader, progress, &mut report)?;
            }
        }
        Ok(report)
    }

    /// Reads all that a head maps, some stretches at a time.
    fn read_all(
        &self,
        head: &Head,
        reader: &Arc<dyn ChunkReader>,
        progress: &CheckProgress,
        report: &mut CheckReport,
    ) -> Result<()> {
        let lbns = head.bytes / u64::from(self.config.chunk_bytes);
        let mut buffer = vec![0; CHUNKS_AT_ONCE as usize * self.config.chunk_bytes as usize];
        let mut at = 0;
        while at < lbns {
            let (mut stretches, mut behind) = (Vec::new(), lbns);
            let found = reader.extents(head.id, at..lbns, &mut |stretch, kind| {
                behind = stretch.end;
                stretches.extend((kind == ExtentKind::Data).then_some(stretch));
                stretches.len() < STRETCHES_AT_ONCE
            });
            at = match found {
                // Nobody knows what lay behind: what lies before is read.
                Err(Error::Damaged { place, what }) => {
                    report.findings.push(Finding {
                        place,
                        what,
                        chunks: Vec::new(),
                    });
                    lbns
                }
                found => found.map(|()| behind)?,
            };
            for stretch in stretches {
                self.read_stretch(head, reader, stretch, &mut buffer, progress, report)?;
            }
        }
        Ok(())
    }

    fn read_stretch(
        &self,
        head: &Head,
        reader: &Arc<dyn ChunkReader>,
        stretch: Range<u64>,
        buffer: &mut [u8],
        progress: &CheckProgress,
        report: &mut CheckReport,
    ) -> Result<()> {
        let chunk_bytes = self.config.chunk_bytes as usize;
        for first in stretch.clone().step_by(CHUNKS_AT_ONCE as usize) {
            let chunks = CHUNKS_AT_ONCE.min(stretch.end - first);
            let mut read = |lbn: u64, chunks: u64| {
                let buffer = &mut buffer[..chunks as usize * chunk_bytes];
                let lbn = Lbn(lbn);
                reader.read(head.id, &mut [ChunkRead { lbn, buffer }])
            };
            report.chunks_read += chunks;
            progress.add(chunks * chunk_bytes as u64)?;
            match read(first, chunks) {
                Err(Error::Damaged { .. }) => {}
                done => {
                    done?;
                    continue;
                }
            }
            for lbn in first..first + chunks {
                match read(lbn, 1) {
                    Err(Error::Damaged { what, .. }) => report.add(&head.name, lbn, what),
                    done => done?,
                }
            }
        }
        Ok(())
    }
}
