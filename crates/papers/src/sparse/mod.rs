//! `sparse`: sparse indexing, which the ChunkStash slides compare with (Lillibridge and others, FAST 2009).
//!
//! ```text
//! RAM    hooks: one fingerprint in n, with the last manifests it was seen in │ some manifests │ the open segment
//! disk   sparse-log: a manifest a segment, the fingerprints of some thousand neighbours of the stream with their containers
//! ```
//!
//! The stream is cut into segments. A segment's hooks vote for manifests. Those with the most votes, its champions, are
//! read, each by one sequential read, and their fingerprints are found. A chunk in no champion is not found, even if it
//! is stored: RAM is a sample of the fingerprints and no more. Here n is not fixed: it is `sample` until the table of
//! hooks is full, and doubles whenever it is, so a small index knows all fingerprints.
//!
//! A manifest holds the new chunks of its segment, and the duplicates too where new chunks are at least one in
//! `repeats`: then the next stream like it needs one champion instead of several. Elsewhere new chunks wait for those
//! of the next segments.
//!
//! Invariant: an answer was inserted, not removed since, and lies in no retired container. Of several locations of
//! one fingerprint the newest answers if it is a hook; otherwise an older one may, which is still true. The state in
//! RAM is made from the log at open. One opener at a time.

mod cache;
mod compact;
mod hooks;
mod ledger;
mod part;
mod segment;

use std::collections::HashMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::FrameKind;
use onefold_io::{Dir, LockGuard};

use self::cache::ManifestCache;
use self::hooks::Hooks;
use self::ledger::Ledger;
use self::part::{ManifestPart, ManifestRecord};
use self::segment::OpenSegment;
use crate::flashlog::open_or_create;
use crate::pagelog::{PageLog, PageRun};
use crate::turns::{InTurns, OneCaller};
use onefold_index::alone;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, IndexStats, Location, Result};

const LOG: &str = "sparse-log";
const LOG_FRAME: FrameKind = FrameKind {
    magic: *b"OFSPARSE",
    version: 1,
};
/// Largest number of chunks in a segment.
const SEGMENT_MAX: usize = 1024;
/// Largest number of removals in a part, and of retirements: 3 MiB for both.
const PART_SAID_MAX: usize = 1 << 16;
/// Largest number of pages of a manifest that many checkpoints cut into parts; four times those of a whole one.
const MANIFEST_PAGES_MAX: u32 = 36;

/// Options of a sparse index, which may differ from opening to opening.
#[derive(Clone, Copy, Debug)]
pub struct SparseOptions {
    /// Number of chunks in a segment.
    pub segment_chunks: usize,
    /// Sampling at the beginning: one fingerprint in this many is a hook.
    pub sample: u32,
    /// RAM for hooks in bytes. When it is used up, `sample` doubles.
    pub hook_bytes: usize,
    /// RAM in bytes for manifests that were read or written last.
    pub cache_bytes: usize,
    /// Largest number of manifests that are read for a segment.
    pub champions: usize,
    /// A segment's duplicates are written beside its new chunks where these are at least one in this many; 0 for never.
    pub repeats: usize,
}

impl SparseOptions {
    /// Options for a budget: half of it for hooks, a quarter for manifests; all fingerprints are hooks as long as they
    /// fit.
    pub fn new(ram_budget_bytes: usize) -> SparseOptions {
        SparseOptions {
            segment_chunks: (ram_budget_bytes / 2000).clamp(64, SEGMENT_MAX),
            sample: 1,
            hook_bytes: ram_budget_bytes / 2,
            cache_bytes: ram_budget_bytes / 4,
            champions: 10,
            repeats: 4,
        }
    }
}

/// The index `sparse`: sampled hooks lead to the manifests that a segment is likely to repeat.
pub struct Sparse {
    dir: Arc<dyn Dir>,
    options: SparseOptions,
    log: PageLog,
    /// Whether the log's name is durable: not after a compaction whose last sync failed.
    is_name_durable: bool,
    ledger: Ledger,
    segment: OpenSegment,
    cache: ManifestCache,
    /// The manifest that the next part of the open segment continues.
    manifest: Option<u32>,
    unsaid_removals: Vec<Fingerprint>,
    unsaid_retirements: Vec<ContainerId>,
    /// Bytes written to the logs before this one.
    bytes_written: u64,
    stats: IndexStats,
    _alone: Box<dyn LockGuard>,
}

/// Opens the log and makes its ledger.
fn open_log(dir: &dyn Dir, options: &SparseOptions) -> Result<(PageLog, Ledger)> {
    let disk = open_or_create(dir, LOG)?;
    dir.sync()?;
    let mut ledger = empty_ledger(options);
    let log = PageLog::open(disk, LOG, LOG_FRAME, &mut |extent, payload| {
        let offset = u64::from(extent.page) * PAGE_BYTES as u64;
        ledger.note(extent, &ManifestPart::decode(payload, LOG, offset)?);
        Ok(())
    })?;
    Ok((log, ledger))
}

/// The ledger of an empty log.
fn empty_ledger(options: &SparseOptions) -> Ledger {
    Ledger::new(Hooks::new(options.sample, options.hook_bytes))
}

impl InTurns<Sparse> {
    /// Opens the index in `dir`, or begins one; reads the whole log once.
    ///
    /// # Errors
    /// [`Error::Held`](onefold_index::Error::Held) where another opener has the index open;
    /// [`Error::Damaged`](onefold_index::Error::Damaged) for a damaged part of the log before a whole one;
    /// [`Error::Io`](onefold_index::Error::Io).
    pub fn open(dir: Arc<dyn Dir>, options: SparseOptions) -> Result<InTurns<Sparse>> {
        Sparse::open_one(dir, options).map(InTurns::new)
    }

    /// The present sampling: one fingerprint in this many is a hook.
    pub fn sample(&self) -> u64 {
        self.lock().ledger.hooks.sample()
    }
}

impl Sparse {
    fn open_one(dir: Arc<dyn Dir>, options: SparseOptions) -> Result<Sparse> {
        let alone = alone(&*dir, "sparse")?;
        let (log, ledger) = open_log(&*dir, &options)?;
        Ok(Sparse {
            options: SparseOptions {
                segment_chunks: options.segment_chunks.clamp(1, SEGMENT_MAX),
                ..options
            },
            dir,
            log,
            is_name_durable: true,
            ledger,
            segment: OpenSegment::default(),
            cache: ManifestCache::new(options.cache_bytes),
            manifest: None,
            unsaid_removals: Vec::new(),
            unsaid_retirements: Vec::new(),
            bytes_written: 0,
            stats: IndexStats::default(),
            _alone: alone,
        })
    }

    /// The container of `key`, as far as known without a read; it may be retired.
    fn find(&mut self, key: &Fingerprint) -> Option<ContainerId> {
        self.segment.get(key).or_else(|| {
            let (number, container) = self.cache.get(key)?;
            self.ledger.counts(key, number).then_some(container)
        })
    }

    /// Brings the champions of `keys`, a segment or part of one, into RAM.
    fn bring_champions(&mut self, keys: &[Fingerprint]) -> Result<()> {
        let mut votes: HashMap<u32, Vec<usize>> = HashMap::new();
        for (hook, key) in keys.iter().enumerate() {
            if self.ledger.hooks.is_hook(key) && self.find(key).is_none() {
                for number in self.ledger.hooks.manifests(key) {
                    votes.entry(number).or_default().push(hook);
                }
            }
        }
        let mut has_champion = vec![false; keys.len()];
        let mut champions = Vec::new();
        while champions.len() < self.options.champions {
            let left = |hooks: &[usize]| hooks.iter().filter(|hook| !has_champion[**hook]).count();
            let most = votes
                .iter()
                .map(|(number, hooks)| (left(hooks), *number))
                .max()
                .filter(|(votes, _)| *votes > 0);
            let Some((_, number)) = most else {
                break;
            };
            for hook in votes.remove(&number).unwrap_or_default() {
                has_champion[hook] = true;
            }
            if !self.cache.expose(number) {
                champions.push(number);
            }
        }
        // the champion with the most votes comes last, so that a small cache still has it
        champions.reverse();
        self.read_manifests(&champions)
    }

    fn read_manifests(&mut self, numbers: &[u32]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let extents: Vec<PageRun> = numbers
            .iter()
            .map(|number| self.ledger.manifests[*number as usize])
            .collect();
        let records = read_records(&self.log, &extents)?;
        self.stats.lookup_reads += extents.len() as u64;
        for (number, records) in numbers.iter().zip(records) {
            let records = records.iter().map(|record| (record.key, record.container));
            self.cache.insert(*number, records);
        }
        Ok(())
    }

    /// Appends chunks that the log does not have yet; durable after the next sync.
    fn write_part(&mut self, with_repeats: bool) -> Result<()> {
        while self
            .unsaid_removals
            .len()
            .max(self.unsaid_retirements.len())
            > PART_SAID_MAX
        {
            let part = ManifestPart {
                retired: first_of(&mut self.unsaid_retirements),
                removed: first_of(&mut self.unsaid_removals),
                ..ManifestPart::default()
            };
            self.append(part)?;
            self.manifest = None;
        }
        let part = ManifestPart {
            continues: self.manifest.is_some(),
            retired: std::mem::take(&mut self.unsaid_retirements),
            removed: std::mem::take(&mut self.unsaid_removals),
            records: self.segment.unwritten(with_repeats),
        };
        if part.is_empty() {
            return Ok(());
        }
        let number = self.append(part)?;
        self.segment.written();
        self.cache.forget(number);
        let pages = self.ledger.manifests[number as usize].pages;
        self.manifest = Some(number).filter(|_| pages < MANIFEST_PAGES_MAX);
        Ok(())
    }

    /// Appends a part and returns the number of its manifest. After a failure, its removals and retirements wait for
    /// another try.
    fn append(&mut self, mut part: ManifestPart) -> Result<u32> {
        let appended = self.log.append(&part.encode());
        if appended.is_err() {
            part.retired.append(&mut self.unsaid_retirements);
            part.removed.append(&mut self.unsaid_removals);
            (self.unsaid_retirements, self.unsaid_removals) = (part.retired, part.removed);
            return appended.map(|_| 0);
        }
        Ok(self.ledger.note(appended?, &part))
    }

    /// Ends the open segment: writes its manifest, or, where it is nearly a repeat, leaves its new chunks to the next
    /// segment.
    fn end_segment(&mut self) -> Result<()> {
        let with_repeats = self.segment.news() * self.options.repeats >= self.segment.len();
        if !with_repeats {
            self.segment.forget_repeats();
            if self.segment.len() < self.options.segment_chunks {
                return Ok(());
            }
        }
        self.write_part(with_repeats)?;
        if let Some(number) = self.ledger.next().checked_sub(1) {
            self.cache.insert(number, self.segment.chunks());
        }
        self.segment.clear();
        self.manifest = None;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.segment.len() >= self.options.segment_chunks
    }

    /// Whether too much of the log, or of the ledger, no longer counts.
    fn is_compaction_due(&self) -> bool {
        let options = &self.options;
        let dead = self.ledger.dead();
        dead > self.ledger.records / 2 + options.segment_chunks as u64
            || self.ledger.freeable_bytes() > options.hook_bytes / 8 + 4096
    }
}

/// Takes the first of `said` that fit into a part; the others stay.
fn first_of<T>(said: &mut Vec<T>) -> Vec<T> {
    let others = said.split_off(said.len().min(PART_SAID_MAX));
    std::mem::replace(said, others)
}

/// Reads the records of manifests, in one batch.
fn read_records(log: &PageLog, extents: &[PageRun]) -> Result<Vec<Vec<ManifestRecord>>> {
    let mut records = vec![Vec::new(); extents.len()];
    log.read_many(extents, &mut |place, payload| {
        let offset = u64::from(extents[place].page) * PAGE_BYTES as u64;
        let part = ManifestPart::decode(payload, LOG, offset)?;
        records[place].extend(part.records);
        Ok(())
    })?;
    Ok(records)
}

impl OneCaller for Sparse {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        let most = self.options.segment_chunks;
        for (keys, found) in keys.chunks(most).zip(found.chunks_mut(most)) {
            self.bring_champions(keys)?;
            for (key, slot) in keys.iter().zip(found) {
                let container = self.find(key);
                let container = container.filter(|gone| !self.ledger.is_retired(gone));
                *slot = container.map(|container| Location { container });
                let Some(container) = container else { continue };
                self.stats.hits += 1;
                if self.is_full() && self.segment.news() == 0 {
                    self.segment.clear();
                }
                // the rest of a full segment waits for the next insertion: a lookup writes nothing
                if !self.is_full() {
                    self.segment.repeat(key, container);
                }
            }
        }
        self.stats.lookups += keys.len() as u64;
        Ok(())
    }

    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()> {
        let Some(container) = container else {
            return self.remove(&[*key]);
        };
        if self.is_full() {
            self.end_segment()?;
        }
        self.ledger.told(&container);
        self.segment.say(key, container);
        Ok(())
    }

    /// Removes all keys at once, because each removal walks through the open segment.
    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        // removals are of records in earlier manifests
        self.manifest = None;
        let next = self.ledger.next();
        for key in keys {
            self.ledger.remove(key, next);
            self.unsaid_removals.push(*key);
        }
        let keys: std::collections::HashSet<&Fingerprint> = keys.iter().collect();
        self.segment.forget(|key, _| keys.contains(key));
        Ok(())
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        for container in containers {
            if self.ledger.retire(*container) {
                self.unsaid_retirements.push(*container);
            }
        }
        let gone: std::collections::HashSet<&ContainerId> = containers.iter().collect();
        self.segment
            .forget(|_, container| gone.contains(&container));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.write_part(false)?;
        self.log.sync()?;
        self.sync_name()?;
        if self.is_compaction_due() {
            self.compact()?;
        }
        Ok(())
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.write_part(false)?;
        self.visit_newest(visit)
    }

    fn ram_bytes(&self) -> usize {
        size_of::<Sparse>()
            + self.ledger.ram_bytes()
            + self.segment.ram_bytes()
            + self.cache.ram_bytes()
            + self.unsaid_removals.capacity() * 32
            + self.unsaid_retirements.capacity() * 8
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.ledger.records.saturating_sub(self.ledger.dead()),
            disk_bytes: u64::from(self.log.pages()) * PAGE_BYTES as u64,
            bytes_written: self.bytes_written + self.log.bytes_written,
            ..self.stats
        }
    }
}
