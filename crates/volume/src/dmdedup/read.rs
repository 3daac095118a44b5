//! Reads beside the writer: the LBN map says where, chunks that are not mapped are zeros (report §3.5).

use std::ops::Range;

use super::Shared;
use crate::{ChunkRead, ChunkReader, ExtentKind, Finding, HeadId, Key, NameChunks, Pbn, Result};

/// LBNs that are looked up at once.
pub(super) const LOOKUPS_MAX: u64 = 4096;

impl ChunkReader for Shared {
    fn read(&self, _head: HeadId, reads: &mut [ChunkRead<'_>]) -> Result<()> {
        let _gate = self.gate.read();
        self.read_blocks(reads).map(drop)
    }

    fn read_and_remember(
        &self,
        _head: HeadId,
        reads: &mut [ChunkRead<'_>],
        name: NameChunks<'_>,
    ) -> Result<()> {
        self.read_remembering(reads, name)
    }

    fn extents(
        &self,
        _head: HeadId,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, ExtentKind) -> bool,
    ) -> Result<()> {
        self.check(&lbns)?;
        let mut open: Option<(Range<u64>, ExtentKind)> = None;
        let mut at = lbns.start;
        while at < lbns.end {
            let end = lbns.end.min(at + LOOKUPS_MAX);
            let keys: Vec<_> = (at..end).map(Key::Linear).collect();
            let mut pbns = vec![None; keys.len()];
            self.backend()?.lookup(self.lbns, &keys, &mut pbns)?;
            for (lbn, pbn) in (at..end).zip(pbns) {
                let kind = pbn.map_or(ExtentKind::Hole, |_| ExtentKind::Data);
                match &mut open {
                    Some((range, of)) if *of == kind => range.end = lbn + 1,
                    _ => {
                        if let Some((range, of)) = open.replace((lbn..lbn + 1, kind))
                            && !visit(range, of)
                        {
                            return Ok(());
                        }
                    }
                }
            }
            at = end;
        }
        if let Some((range, kind)) = open {
            visit(range, kind);
        }
        Ok(())
    }

    fn check(
        &self,
        name: Option<NameChunks<'_>>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Finding>> {
        let mut findings = self.backend()?.check()?;
        // Where its own pages are damaged, the index cannot say which blocks to look at.
        if let (Some(name), true) = (name, findings.is_empty()) {
            findings.extend(self.check_blocks(name, goes_on)?);
        }
        Ok(findings)
    }
}

impl Shared {
    /// LBNs of a read's chunks.
    pub(super) fn lbns_of(&self, read: &ChunkRead<'_>) -> Range<u64> {
        let chunks = (read.buffer.len() / self.data.block_bytes()) as u64;
        read.lbn.0..read.lbn.0.saturating_add(chunks)
    }

    /// Reads chunks, and returns the block of each. The caller holds the gate.
    pub(super) fn read_blocks(&self, reads: &mut [ChunkRead<'_>]) -> Result<Vec<Option<Pbn>>> {
        let block_bytes = self.data.block_bytes();
        reads
            .iter()
            .try_for_each(|read| self.check(&self.lbns_of(read)))?;
        let lbns = reads.iter().flat_map(|read| self.lbns_of(read));
        let keys: Vec<_> = lbns.map(Key::Linear).collect();
        let mut pbns = vec![None; keys.len()];
        self.backend()?.lookup(self.lbns, &keys, &mut pbns)?;
        let mut pieces = Vec::new();
        let mut rest = &pbns[..];
        for read in reads {
            let (now, later) = rest.split_at(read.buffer.len() / block_bytes);
            rest = later;
            add_pieces(&mut pieces, now, read.buffer, block_bytes);
        }
        self.data.read(pieces)?;
        Ok(pbns)
    }
}

/// Cuts a read where its blocks are no neighbours; what is not mapped becomes zeros.
fn add_pieces<'a>(
    pieces: &mut Vec<(Pbn, &'a mut [u8])>,
    pbns: &[Option<Pbn>],
    mut buffer: &'a mut [u8],
    block_bytes: usize,
) {
    let mut rest = pbns;
    while let Some(first) = rest.first() {
        let count = match first {
            None => rest.iter().take_while(|pbn| pbn.is_none()).count(),
            Some(first) => rest
                .iter()
                .zip(0..)
                .take_while(|(pbn, ahead)| **pbn == first.0.checked_add(*ahead).map(Pbn))
                .count(),
        };
        let (now, later) = buffer.split_at_mut(count * block_bytes);
        match first {
            None => now.fill(0),
            Some(first) => pieces.push((*first, now)),
        }
        buffer = later;
        rest = &rest[count..];
    }
}
