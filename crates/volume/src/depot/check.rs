//! Checking a depot: whether its structures are whole, and, where wanted, whether every chunk of every volume can be
//! read as it was written. Runs beside writers.

use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::fingerprints;

use super::{Depot, Head};
use crate::{ChunkRead, ChunkReader, Error, ExtentKind, Finding, Lbn, Result};

/// Chunks that are read together.
const CHUNKS_AT_ONCE: u64 = 256;
/// Damaged stretches that are listed; what lies behind is counted.
const LISTED_MAX: usize = 1000;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckReport {
    /// What is amiss with the engine's own structures, or with stored chunks as such.
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
    /// What is wrong with the first one.
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

impl Depot {
    /// Checks the depot's structures, and with `read_data` every chunk.
    ///
    /// # Errors
    /// A device failed. Damage is no error: the report tells it.
    pub fn check(&self, read_data: bool) -> Result<CheckReport> {
        let reader = self.front.reader();
        let key = self.config.hash_key;
        let name = |chunks: &[&[u8]]| fingerprints(Some(&key), chunks.iter().copied());
        let mut report = CheckReport {
            findings: reader.check(read_data.then_some(&name))?,
            ..CheckReport::default()
        };
        for (head, lbn) in report
            .findings
            .iter()
            .flat_map(|finding| finding.chunks.clone())
            .collect::<std::collections::BTreeSet<_>>()
        {
            let heads = self.heads();
            let named = heads.iter().find(|named| named.id == head);
            let volume = named.map_or("", |head| &head.name);
            report.add(volume, lbn, "its block is damaged".into());
        }
        if read_data {
            for head in self.heads() {
                self.read_all(&head, &reader, &mut report)?;
            }
        }
        Ok(report)
    }

    fn read_all(
        &self,
        head: &Head,
        reader: &Arc<dyn ChunkReader>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let lbns = head.bytes / u64::from(self.config.chunk_bytes);
        let mut stretches = Vec::new();
        let found = reader.extents(head.id, 0..lbns, &mut |stretch, kind| {
            stretches.extend((kind == ExtentKind::Data).then_some(stretch));
            true
        });
        match found {
            // Nobody knows what lay behind: what lies before is read.
            Err(Error::Damaged { place, what }) => report.findings.push(Finding {
                place,
                what,
                chunks: Vec::new(),
            }),
            found => found?,
        }
        let chunk_bytes = self.config.chunk_bytes as usize;
        let mut buffer = vec![0; CHUNKS_AT_ONCE as usize * chunk_bytes];
        for stretch in stretches {
            for first in stretch.clone().step_by(CHUNKS_AT_ONCE as usize) {
                let chunks = CHUNKS_AT_ONCE.min(stretch.end - first);
                let mut read = |lbn: u64, chunks: u64| {
                    let buffer = &mut buffer[..chunks as usize * chunk_bytes];
                    let lbn = Lbn(lbn);
                    reader.read(head.id, &mut [ChunkRead { lbn, buffer }])
                };
                report.chunks_read += chunks;
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
        }
        Ok(())
    }
}
