//! Reads beside the writer: map → zone → pages, each proved by its check.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::ReadAt;

use super::changes::VisitChanges;
use super::layout::{Address, PAGE_BYTES, WHOLE, ZoneNo, on_device};
use super::map::extent::Extent;
use super::map::levels::Levels;
use super::packed_reads::PackedReads;
use super::shared::Shared;
use super::zone::chunk_hash;
use crate::{
    ChangeKind, ChunkRead, ChunkReader, Error, ExtentKind, Finding, HeadId, NameChunks, Result,
};

/// How often an address is resolved and read before a wrong check counts as damage. Between resolving and reading, a
/// group may have been written or a zone cleaned and filled anew; then the map has the new address.
const TRIES: u32 = 4;

/// Reads chunks of a depot.
pub struct LogReader(pub Arc<Shared>);

/// Outcome of one try to read one chunk.
#[derive(Clone, PartialEq, Debug)]
enum ReadOutcome {
    /// The buffer holds it.
    Whole,
    /// A map says that it lies there.
    Mapped(Address),
    /// The chunk is to be read from this place.
    At(Address, ZoneNo),
    /// The chunk was moved meanwhile, or is damaged: the words say what was found.
    Again(String),
}

impl ChunkReader for LogReader {
    fn read(&self, head: HeadId, reads: &mut [ChunkRead<'_>]) -> Result<()> {
        let chunk_bytes = self.0.layout.chunk_bytes();
        let mut outcomes: Vec<Vec<ReadOutcome>> = (reads.iter())
            .map(|read| vec![ReadOutcome::Again(String::new()); read.buffer.len() / chunk_bytes])
            .collect();
        for attempt in 0..TRIES {
            if attempt > 1 {
                self.0.data.forget_cached();
            }
            self.resolve(head, reads, &mut outcomes)?;
            let packed = self.read_resolved(reads, &outcomes)?;
            self.verify(reads, &packed, &mut outcomes, attempt + 1 == TRIES);
            if outcomes
                .iter()
                .flatten()
                .all(|outcome| *outcome == ReadOutcome::Whole)
            {
                return Ok(());
            }
        }
        Err(first_damage(head, reads, &outcomes))
    }

    fn read_and_remember(
        &self,
        head: HeadId,
        reads: &mut [ChunkRead<'_>],
        name: NameChunks<'_>,
    ) -> Result<()> {
        self.read(head, reads)?;
        self.remember(head, reads, name)
    }

    fn extents(
        &self,
        head: HeadId,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, ExtentKind) -> bool,
    ) -> Result<()> {
        // Neighbours of one kind are told together.
        let mut last: Option<(Range<u64>, ExtentKind)> = None;
        let mut goes_on = true;
        let mut at = lbns.start;
        while at < lbns.end && goes_on {
            let (window, levels) = self.window(head, at..lbns.end);
            at = window.last().map_or(lbns.end, |(lbns, _)| lbns.end);
            let mut tell = |extent: Extent| {
                if !goes_on {
                    return false;
                }
                let kind = match extent.target {
                    Some(_) => ExtentKind::Data,
                    None => ExtentKind::Hole,
                };
                match &mut last {
                    Some((lbns, known)) if *known == kind => lbns.end = extent.end(),
                    last => {
                        let told = last.replace((extent.lbn..extent.end(), kind));
                        goes_on &= told.is_none_or(|(lbns, kind)| visit(lbns, kind));
                    }
                }
                goes_on
            };
            for (lbns, extent) in window {
                match extent {
                    Some(extent) => _ = tell(extent),
                    None => levels.visit(lbns, &self.0.map_pages, &mut tell)?,
                }
            }
        }
        if let Some((lbns, kind)) = last.filter(|_| goes_on) {
            visit(lbns, kind);
        }
        Ok(())
    }

    fn changes(
        &self,
        base: Option<HeadId>,
        head: HeadId,
        lbns: Range<u64>,
        visit: VisitChanges<'_>,
    ) -> Result<()> {
        let levels = |head| Some(Arc::clone(&self.0.maps.read().get(&head)?.levels));
        match base.map(|base| (levels(base), levels(head))) {
            Some((Some(base), Some(head))) => self.0.changes(&base, &head, lbns, visit),
            _ => self.extents(head, lbns, &mut |lbns, kind| match kind {
                ExtentKind::Data => visit(lbns, ChangeKind::Data),
                ExtentKind::Hole => visit(lbns, ChangeKind::Hole),
            }),
        }
    }

    /// Pages have checks of their own, which each read proves.
    fn check(
        &self,
        _: Option<NameChunks<'_>>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Finding>> {
        self.0.check_zones(goes_on)
    }
}

/// Neighbouring LBNs, each range with its extent in the memtable, or `None` where the memtable says nothing.
type Window = Vec<(Range<u64>, Option<Extent>)>;

/// Parts of a window at most: the maps are locked while it is taken.
const WINDOW_PARTS_MAX: usize = 1024;

impl LogReader {
    /// Returns the memtable's extents of the first LBNs of `lbns`, and the levels below it at that moment.
    fn window(&self, head: HeadId, lbns: Range<u64>) -> (Window, Arc<Levels>) {
        let maps = self.0.maps.read();
        let Some(map) = maps.get(&head) else {
            return (vec![(lbns, None)], Arc::default());
        };
        let mut window = Window::new();
        map.memtable.visit(lbns, &mut |lbns, extent| {
            window.push((lbns, extent));
            window.len() < WINDOW_PARTS_MAX
        });
        (window, Arc::clone(&map.levels))
    }

    /// Finds where each chunk lies that is not whole yet; holes and chunks of the open group are read at once.
    fn resolve(
        &self,
        head: HeadId,
        reads: &mut [ChunkRead<'_>],
        outcomes: &mut [Vec<ReadOutcome>],
    ) -> Result<()> {
        let (gaps, levels) = self.resolve_newest(head, reads, outcomes);
        for (place, lbns) in gaps {
            let (read, outcomes) = (&mut reads[place], &mut outcomes[place]);
            levels.visit(lbns, &self.0.map_pages, &mut |extent| {
                self.note(extent, read, outcomes, &[]);
                true
            })?;
        }
        let zones = self.0.zones.read();
        for outcome in outcomes.iter_mut().flatten() {
            if let ReadOutcome::Mapped(address) = *outcome {
                *outcome = match zones.locate(address) {
                    Some((address, no)) => ReadOutcome::At(address, no),
                    None => ReadOutcome::Again(format!(
                        "mapped to zone {}, which is not there",
                        address.zone.0
                    )),
                };
            }
        }
        Ok(())
    }

    /// Remembers in which zones chunks lie that were just read. Whoever uses that looks whether the zone's rows say the
    /// same, as of an answer of the index: a chunk may have been written or moved since it was read.
    fn remember(
        &self,
        head: HeadId,
        reads: &mut [ChunkRead<'_>],
        name: NameChunks<'_>,
    ) -> Result<()> {
        let chunk_bytes = self.0.layout.chunk_bytes();
        let unknown = |read: &ChunkRead<'_>| {
            vec![ReadOutcome::Again(String::new()); read.buffer.len() / chunk_bytes]
        };
        let mut outcomes: Vec<_> = reads.iter().map(unknown).collect();
        self.resolve(head, reads, &mut outcomes)?;
        let (mut places, mut chunks) = (Vec::new(), Vec::new());
        for (read, outcomes) in reads.iter().zip(outcomes) {
            for (outcome, chunk) in outcomes.iter().zip(read.buffer.chunks_exact(chunk_bytes)) {
                if let ReadOutcome::At(address, _) = outcome {
                    places.push(*address);
                    chunks.push(chunk);
                }
            }
        }
        for (address, fingerprint) in places.into_iter().zip(name(&chunks)) {
            let hash = chunk_hash(&fingerprint);
            self.0.prefetched.insert(hash, address);
        }
        Ok(())
    }

    /// Takes what memtable and open group know, and returns the LBNs of which they know nothing, by read.
    fn resolve_newest(
        &self,
        head: HeadId,
        reads: &mut [ChunkRead<'_>],
        outcomes: &mut [Vec<ReadOutcome>],
    ) -> (Vec<(usize, Range<u64>)>, Arc<Levels>) {
        let open = self.0.open_group.read();
        let maps = self.0.maps.read();
        let map = maps.get(&head);
        let mut gaps = Vec::new();
        for (place, (read, outcomes)) in reads.iter_mut().zip(outcomes).enumerate() {
            let lbns = read.lbn.0..read.lbn.0 + outcomes.len() as u64;
            let Some(map) = map else {
                gaps.push((place, lbns));
                continue;
            };
            map.memtable.visit(lbns, &mut |lbns, extent| {
                match extent {
                    Some(extent) => self.note(extent, read, outcomes, open.data.data()),
                    None => gaps.push((place, lbns)),
                }
                true
            });
        }
        (
            gaps,
            map.map_or_else(Arc::default, |map| Arc::clone(&map.levels)),
        )
    }

    /// Notes what a map says of some chunks of a read.
    fn note(
        &self,
        extent: Extent,
        read: &mut ChunkRead<'_>,
        outcomes: &mut [ReadOutcome],
        open_data: &[u8],
    ) {
        let layout = &self.0.layout;
        let first = (extent.lbn - read.lbn.0) as usize;
        let buffers = read.buffer.chunks_exact_mut(layout.chunk_bytes());
        let chunks = buffers.zip(outcomes).skip(first);
        for (ahead, (buffer, outcome)) in (0..extent.chunks).zip(chunks) {
            if *outcome == ReadOutcome::Whole {
                continue;
            }
            *outcome = match extent.target_at(ahead, layout.chunk_pages) {
                None => {
                    buffer.fill(0);
                    ReadOutcome::Whole
                }
                Some(address) if address.zone.is_pending() => {
                    let start = address.page as usize * PAGE_BYTES;
                    buffer.copy_from_slice(&open_data[start..start + layout.chunk_bytes()]);
                    ReadOutcome::Whole
                }
                Some(address) => ReadOutcome::Mapped(address),
            };
        }
    }

    /// Reads all resolved chunks from the device together; those that lie one behind the other by one read. Returns
    /// the pages of packed ones.
    fn read_resolved(
        &self,
        reads: &mut [ChunkRead<'_>],
        outcomes: &[Vec<ReadOutcome>],
    ) -> Result<PackedReads> {
        let layout = self.0.layout;
        let in_slots = outcomes
            .iter()
            .flatten()
            .filter_map(|outcome| match outcome {
                ReadOutcome::At(address, no) if address.slot != WHOLE => Some((*address, *no)),
                _ => None,
            });
        let mut packed = PackedReads::of(in_slots);
        let mut wanted = Vec::new();
        packed.reads(&layout, &mut wanted);
        for (read, outcomes) in reads.iter_mut().zip(outcomes) {
            let (mut rest, mut at) = (&mut *read.buffer, 0);
            while at < outcomes.len() {
                let count = self.stretch(&outcomes[at..]);
                let (buf, behind) = rest.split_at_mut(count * layout.chunk_bytes());
                if let ReadOutcome::At(address, no) = outcomes[at]
                    && address.slot == WHOLE
                {
                    let offset = layout.page_offset(no, address.page);
                    wanted.push(ReadAt { offset, buf });
                }
                (rest, at) = (behind, at + count);
            }
        }
        if !wanted.is_empty() {
            self.0.data.read_many_at(&mut wanted)?;
        }
        packed.prove(|address, no, bytes| self.check(address, no, bytes));
        Ok(packed)
    }

    /// How many of the first chunks lie one behind the other on the device; 1 where the first is not read from there,
    /// or is packed.
    fn stretch(&self, outcomes: &[ReadOutcome]) -> usize {
        let first = match outcomes[0] {
            ReadOutcome::At(first, _) if first.slot == WHOLE => first,
            _ => return 1,
        };
        let chunk_pages = self.0.layout.chunk_pages;
        let follows = |(ahead, outcome): &(usize, &ReadOutcome)| match outcome {
            ReadOutcome::At(address, _) => {
                first.is_followed_by(*address, *ahead as u64, chunk_pages)
            }
            _ => false,
        };
        outcomes.iter().enumerate().take_while(follows).count()
    }

    /// Compares each page that was read with its check, opens what is sealed, and unpacks what is packed. What the last
    /// try finds wrong is damaged.
    fn verify(
        &self,
        reads: &mut [ChunkRead<'_>],
        packed: &PackedReads,
        outcomes: &mut [Vec<ReadOutcome>],
        is_last_try: bool,
    ) {
        for (read, outcomes) in reads.iter_mut().zip(outcomes) {
            let chunks = read.buffer.chunks_exact_mut(self.0.layout.chunk_bytes());
            for (buffer, outcome) in chunks.zip(outcomes) {
                if let ReadOutcome::At(address, no) = *outcome {
                    let proved = match address.slot {
                        WHOLE => self.check(address, no, buffer),
                        _ => packed.unpack(address, buffer),
                    };
                    *outcome = match proved {
                        Ok(()) => ReadOutcome::Whole,
                        Err(what) => {
                            if is_last_try {
                                self.0.damaged.note(address);
                            }
                            ReadOutcome::Again(what)
                        }
                    };
                }
            }
        }
    }

    /// Proves the pages of a chunk or a packed page, and opens them where they are sealed.
    fn check(&self, address: Address, no: ZoneNo, bytes: &mut [u8]) -> Result<(), String> {
        let pages = (bytes.len() / PAGE_BYTES) as u32;
        let open = {
            let all = self.0.open_checks.read();
            all.get(&address.zone)
                .map(|zone| zone.of_pages(address, pages))
        };
        let expected = match open {
            Some(expected) => expected,
            None => {
                let zone = self.0.tables.checks(address.zone, no);
                let zone = zone.map_err(|error| error.to_string())?;
                zone.of_pages(address, pages)
            }
        };
        let opened = expected.sealer.open(address, bytes, &expected.checks);
        opened.map_err(|wrong| {
            let offset = on_device(self.0.layout.page_offset(no, wrong.page));
            format!("data at offset {offset}: {}", wrong.what)
        })
    }
}

/// The error of the first chunk that could not be read whole.
fn first_damage(head: HeadId, reads: &[ChunkRead<'_>], outcomes: &[Vec<ReadOutcome>]) -> Error {
    let all = reads
        .iter()
        .zip(outcomes)
        .flat_map(|(read, outcomes)| (read.lbn.0..).zip(outcomes));
    let damaged = all.filter_map(|(lbn, outcome)| match outcome {
        ReadOutcome::Again(what) => Some((lbn, what.clone())),
        _ => None,
    });
    let (lbn, what) = damaged.into_iter().next().expect("some chunk is not whole");
    Error::Damaged {
        place: format!("volume {}, chunk {lbn}", head.0),
        what,
    }
}
