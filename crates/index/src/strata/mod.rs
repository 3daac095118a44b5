//! The index `strata`, the default: a log in the order of the stream, runs in the order of the hash, filters in RAM.
//!
//! ```text
//! insert ─▶ tail (RAM) ─seal─▶ log file:  fingerprints in the order of insertion, containers as runs of records
//!                              run:       128 bits of each fingerprint, sorted ─▶ its log page and span; merged in tiers;
//!                                         of the newest pages none, while they hold little: they are loose, and in RAM
//!                              filter:    a ribbon filter for each partition of a run, in RAM
//! lookup ─▶ tail ─▶ loose pages ─▶ prefetch cache ─▶ filters ─▶ one page of a run, which proves it
//!                                                           ─▶ where keys repeat a stream, 64 KiB of the log
//! ```
//!
//! The log keeps the locality of the stream: a lookup that finds one fingerprint of a stream has the next two thousand
//! in the cache. Runs find any fingerprint with one read, because its page is computed from its hash, and the
//! containers of the log's pages are few enough for RAM. Filters save that read for absent fingerprints.
//!
//! # Invariants
//! - Changes before a `checkpoint` that returned survive any crash; of later changes all or nothing.
//! - A hit agrees with the fingerprint in its first 128 bits at least: no two chunks of a repository do by chance
//!   (2^-128 a pair), and without the key of the fingerprints none can be made. Where fingerprints have no key, making
//!   two takes 2^64 work, and hurts the user who stores both. The newest location wins, except that of a retired
//!   container, which counts for nothing: then an older one may be found.
//! - Written bytes never change: logs grow behind them, and the manifest is replaced. Any number of processes share a
//!   folder; each sees what others checkpointed once it checkpoints or refreshes.
//! - Bytes from disk give [`Error::Damaged`](crate::Error::Damaged), never a panic; no allocation trusts a length that
//!   was read.
//!
//! # RAM
//! The budget B is divided once: tail 6 % (60 bytes a record), 60 KiB for loose records (1024 records at any budget,
//! because any opener may have written them), sealing two fifths of these two, prefetch cache 4 %, two partitions in
//! the making 5 %, read buffers 5 %, spans 1.5 %, each up to some MiB, and all the rest for filters: 75 % of a small
//! budget, 90 % of 256 MiB. Filters take `records × bits × 1.03 / 8` bytes; `bits` is what fits, up to 16, for a run
//! half as large one more, with the last bit in as many partitions as there is RAM for: at 1 billion chunks 1.04 GB for
//! 8 bits, 0.52 GB for 4. Where one bit for the largest run doesn't fit, it goes without and costs a page read a
//! lookup. Spans take 12 bytes a container; those that don't fit cost a hit at random one page of the log. Besides: 100
//! bytes for each partition of some 20,000 records, which count as filters, 100 for each log file, and 4 for each log
//! page with a superseded record.
//!
//! # I/O
//! Opening: a footer a file, filters, and the loose pages, 64 at most. Absent: `2^-bits` reads a run. Loose: no read.
//! Present at random: one run page. In stream order: two reads for 2000 keys. Inserts: 32 bytes of log (a checkpoint
//! takes a page and a footer at least, and the manifest), once more where sessions are small (see `join.rs`), and 20
//! bytes of run each time that a record passes a merge, some four times (see `choose.rs`): a write amplification of 3
//! against the 40 bytes of a key and its container, where the budget is 0.7 bytes a key or more.
//!
//! When not to choose it: where RAM holds all (`ram`), or where keys are updated in place all the time, because
//! superseded log records are only dropped with their container.

#[cfg(test)]
mod arbitrary;
mod bits;
pub mod cache;
mod choose;
mod compact;
mod folder;
mod gone;
mod join;
pub mod log;
mod log_location;
mod log_writer;
mod lookup;
mod loose;
mod manifest;
mod merge;
mod merge_thread;
mod merged_run;
mod open_log;
mod options;
pub mod page;
mod ribbon;
mod run;
mod run_filters;
mod run_page;
mod run_size;
mod run_writer;
mod seal;
mod spans;
mod state;
mod table;
mod tail;
mod view;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;

pub use manifest::FileId;
pub use options::StrataOptions;
pub use run::hash_of;

use crate::{ChunkIndex, ContainerId, IndexStats, Location, Result};
use folder::{Folder, NewFile};
use log::{LogPage, Said};
use log_location::LogLocation;
use lookup::{Lookup, Lookups};
use loose::Loose;
use manifest::{RUNS_MANY, RUNS_MAX};
use merge_thread::MergeThread;
use open_log::OpenLog;
use options::RamPlan;
use page::PAGE_BYTES;
use seal::Sealed;
use state::StrataState;
use tail::Tail;
use view::View;

/// Log pages that `iterate` reads at once.
const ITERATE_PAGES: u32 = 16;

/// The index `strata`: a log in the order of the stream, runs in the order of the hash, filters in RAM.
pub struct Strata {
    shared: Arc<StrataState>,
    merger: Option<MergeThread>,
    tail: Tail,
    /// Containers retired since the last checkpoint.
    retired: HashSet<ContainerId>,
    lookups: Lookups,
    /// The last sealed log file, to which the next seal adds.
    log_file: Option<NewFile>,
    /// Number of the index at the last look (the manifest's `born`); 0 where it was empty.
    born: u64,
    times_begun_anew: u64,
}

impl Strata {
    /// Opens the index in `dir`, or begins an empty one where there is none.
    ///
    /// # Errors
    /// [`Error::Held`](crate::Error::Held) as the options say; [`Error::Damaged`](crate::Error::Damaged) where the
    /// files are not what was written (delete the folder and build it anew from the containers);
    /// [`Error::Budget`](crate::Error::Budget) below 1 MiB; [`Error::Io`](crate::Error::Io).
    pub fn open(dir: Arc<dyn Dir>, options: StrataOptions) -> Result<Strata> {
        let plan = RamPlan::new(options.ram_budget_bytes)?;
        let folder = Folder::open(dir, options.unique, options.lock_wait_ms_max)?;
        let shared = Arc::new(StrataState::new(folder, plan)?);
        let merger = options
            .background_merges
            .then(|| MergeThread::start(Arc::clone(&shared)))
            .transpose()?;
        let born = shared.view().manifest.born;
        Ok(Strata {
            shared,
            merger,
            born,
            times_begun_anew: 0,
            tail: Tail::new(plan.tail_records),
            retired: HashSet::new(),
            lookups: Lookups::new(plan.cache_bytes, plan.batch_pages),
            log_file: None,
        })
    }

    /// Deletes the index in `dir`, damaged or not, while others may have it open: they read on correctly, and their
    /// next seal begins an empty index. Needs no space. Removing the files without this could let two openers enter at
    /// once, and remove files that an opener is about to enter.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): the lock cannot be had, or a file not be removed. Once the manifest is removed,
    /// the index is empty.
    pub fn delete(dir: &dyn Dir) -> Result<()> {
        folder::delete(dir)
    }

    /// Merges until nothing is due, after any merge that runs in the background. `checkpoint` merges as needed; this is
    /// for measurements, and for leaving the folder with few files.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), also where there is no room for the smallest merge that is due;
    /// [`Error::Damaged`](crate::Error::Damaged) for a page that is not what was written. Earlier merges stay done.
    pub fn merge_all(&mut self) -> Result<()> {
        while merge::merge_waiting(&self.shared)? {}
        Ok(())
    }

    /// Seals the tail and enters the retired containers.
    fn seal(&mut self) -> Result<()> {
        let retires = !self.retired.is_empty();
        let (says, mut log_file) = (self.says_anything(), self.log_file.take());
        if says {
            log_file = Some(self.seal_and_enter(log_file, retires)?);
        } else {
            self.enter(None, retires)?;
        }
        self.look()?;
        // set only here: a seal that adds to the file must know the manifest's entry of it
        self.log_file = log_file;
        if !says && !retires {
            // an opener without insertions merges nothing
            return Ok(());
        }
        let said = self.tail.records().len() as u64;
        self.shared.sealed.fetch_add(said, Ordering::Relaxed);
        self.shared.retires.fetch_or(retires, Ordering::Relaxed);
        self.tail.clear();
        self.retired.clear();
        self.maintain()
    }

    /// Seals the tail and enters the result, again until it is entered; returns the log file that it wrote to.
    fn seal_and_enter(&mut self, mut log_file: Option<NewFile>, retires: bool) -> Result<NewFile> {
        loop {
            self.look_if_changed()?;
            let loose = Arc::clone(&self.shared.view().loose);
            let sealed = self.seal_tail(log_file.take(), &loose)?;
            match self.enter(Some(&sealed), retires) {
                Ok(true) => return Ok(sealed.file),
                // others have sealed since: write once more, into a new file, with the records that they left loose
                Ok(false) => sealed.remove(&self.shared.folder),
                Err(error) => {
                    sealed.remove(&self.shared.folder);
                    return Err(error);
                }
            }
        }
    }

    /// Whether the tail has a record of a container that is not retired.
    fn says_anything(&self) -> bool {
        self.tail
            .records()
            .iter()
            .any(|record| self.is_live(record))
    }

    fn is_live(&self, (_, said): &(Fingerprint, Said)) -> bool {
        said.is_none_or(|container| !self.retired.contains(&container))
    }

    /// Writes the tail's records of containers that are not retired; the log goes behind the content of `log_file`, if
    /// that may grow.
    fn seal_tail(&self, log_file: Option<NewFile>, loose: &Loose) -> Result<Sealed> {
        let records = self.tail.records();
        let shared = &self.shared;
        // no view is held from here on: filters that a view holds cannot be narrowed in place
        let all = shared.view().records() + records.len() as u64;
        let growing = log_file.and_then(|file| seal::growing(file, &shared.view().manifest));
        let records = records.iter().filter(|record| self.is_live(record));
        seal::seal(shared, loose, all, records, growing)
    }

    /// Enters sealed files and retired containers into the manifest. `false`: the sealed files have no place there any
    /// more.
    fn enter(&mut self, sealed: Option<&Sealed>, retires: bool) -> Result<bool> {
        let mut entered = sealed.is_none() && !retires;
        let mut passed = false;
        while !entered {
            let (retired, tail) = (&self.retired, &self.tail);
            self.shared.folder.commit(|manifest| {
                if sealed.is_some_and(Sealed::has_run) && manifest.runs.len() >= RUNS_MAX {
                    return Ok(false);
                }
                // a container that is inserted has come back, if it was retired
                if !manifest.retired.is_empty() {
                    let told = tail.containers();
                    manifest
                        .retired
                        .retain(|container| !told.contains(container));
                }
                manifest.retired.extend(retired);
                manifest.retired.sort_unstable();
                manifest.retired.dedup();
                entered = sealed.map_or(Ok(true), |sealed| sealed.enter(manifest))?;
                passed = !entered;
                Ok(entered)
            })?;
            if passed {
                return Ok(false);
            }
            if !entered {
                // many openers sealed faster than merges ran, or merges had no room: try all of them again
                self.shared.forget_room();
                let merged = self.merge_all();
                match self.shared.view().runs.len() {
                    RUNS_MAX.. => merged?,
                    _ => self.shared.unless_full(merged)?,
                }
            }
        }
        Ok(true)
    }

    /// Reads the newest manifest, and counts it where another opener has begun the index anew.
    fn look(&mut self) -> Result<()> {
        let view = self.shared.refresh()?;
        self.lookups
            .give_back(|| self.shared.view(), &self.shared.plan);
        let born = view.manifest.born;
        // beginning an index where there was none takes nothing away
        if self.born != 0 && born != self.born {
            self.times_begun_anew += 1;
        }
        self.born = born;
        Ok(())
    }

    /// Like [`look`](Self::look), where another opener has changed the manifest: a seal without knowing it may be in
    /// vain.
    fn look_if_changed(&mut self) -> Result<()> {
        let newest = self.shared.folder.manifest()?;
        let is_known = newest == self.shared.view().manifest;
        if is_known { Ok(()) } else { self.look() }
    }

    /// Merges, or tells the merging thread to. Another opener's merge may take minutes, or be stopped, and is waited
    /// for only where runs become too many. All insertions are durable by now, so a merge that finds no room is no
    /// failure.
    fn maintain(&mut self) -> Result<()> {
        let runs = self.shared.view().runs.len();
        let merged = match &self.merger {
            Some(merger) if runs < RUNS_MANY => return merger.tell(),
            None if runs < RUNS_MANY => merge::merge_all(&self.shared, false),
            _ => self.merge_all(),
        };
        self.shared.unless_full(merged)
    }

    fn is_retired(&self, view: &View, container: ContainerId) -> bool {
        self.retired.contains(&container) || view.retired.contains(&container)
    }

    /// Looks up the keys of one batch, at most.
    fn lookup_batch(
        &self,
        lookup: &mut Lookup<'_>,
        keys: &[Fingerprint],
        found: &mut [Option<Location>],
    ) -> Result<()> {
        let mut wanted = Vec::with_capacity(keys.len());
        for (place, (key, slot)) in keys.iter().zip(found.iter_mut()).enumerate() {
            *slot = None;
            match self.tail.get(key) {
                Some(None) => {}
                // a record in the tail brings a gone container back
                Some(Some(container)) if !self.retired.contains(&container) => {
                    *slot = Some(Location { container })
                }
                _ => wanted.push((place, *key)),
            }
        }
        let mut answers = vec![None; keys.len()];
        lookup.resolve(&wanted, &mut answers)?;
        for (slot, answer) in found.iter_mut().zip(answers) {
            if let Some(LogLocation { container, .. }) =
                answer.filter(|answer| !self.retired.contains(&answer.container))
            {
                *slot = Some(Location { container });
            }
        }
        Ok(())
    }

    fn iterate_log(
        &self,
        view: &View,
        lookup: &mut Lookup<'_>,
        log: &OpenLog,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        let mut buf = Vec::new();
        let mut first = 0;
        while first < log.entry.pages {
            let pages = ITERATE_PAGES.min(log.entry.pages - first);
            log::read_pages(&*log.disk, log.named(), first, pages as usize, &mut buf)?;
            for (number, bytes) in (first..).zip(buf.chunks_exact(PAGE_BYTES)) {
                let page = LogPage::checked(bytes);
                let number = log.entry.first_page + number;
                self.iterate_page(view, lookup, (number, page), visit)?;
            }
            first += pages;
        }
        Ok(())
    }

    /// Visits the records of a page that are the newest of their fingerprints. On most pages all are, which is known
    /// without a read.
    fn iterate_page(
        &self,
        view: &View,
        lookup: &mut Lookup<'_>,
        (number, page): (u32, LogPage<'_>),
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        let mut doubtful = Vec::new();
        let mut containers = Vec::new();
        for (key, said) in page.records() {
            let Some(container) = said.filter(|container| !self.is_retired(view, *container))
            else {
                continue;
            };
            match self.tail.get(&key) {
                Some(Some(newest)) if self.retired.contains(&newest) => {}
                Some(_) => continue,
                None => {}
            }
            if view.is_newest(number, &key) {
                visit(key, Location { container })?;
            } else {
                doubtful.push((doubtful.len(), key));
                containers.push(container);
            }
        }
        let mut answers = vec![None; doubtful.len()];
        lookup.resolve(&doubtful, &mut answers)?;
        for (((_, key), container), answer) in doubtful.into_iter().zip(containers).zip(answers) {
            if answer.is_some_and(|answer| answer.page == number) {
                visit(key, Location { container })?;
            }
        }
        Ok(())
    }
}

impl ChunkIndex for Strata {
    fn lookup(&self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        assert_eq!(keys.len(), found.len(), "a place for each key");
        let shared = &self.shared;
        let view = self.lookups.follow(|| shared.view(), &shared.plan);
        let mut lookup = self.lookups.begin(&view);
        let batch = shared.plan.batch_keys;
        let mut batches = keys.chunks(batch).zip(found.chunks_mut(batch));
        let looked =
            batches.try_for_each(|(keys, found)| self.lookup_batch(&mut lookup, keys, found));
        if looked.is_ok() {
            lookup.stats.lookups = keys.len() as u64;
            lookup.stats.hits = found.iter().flatten().count() as u64;
        }
        self.lookups.end(lookup);
        looked
    }

    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()> {
        if self.tail.is_full() {
            self.seal()?;
        }
        if let Some(container) = container {
            // a container that was gone has come back
            self.retired.remove(&container);
        }
        self.tail.put(key, container);
        Ok(())
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.retired.extend(containers);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.seal()
    }

    fn refresh(&mut self) -> Result<()> {
        self.look()
    }

    fn times_begun_anew(&self) -> u64 {
        self.times_begun_anew
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        let view = (self.lookups).follow(|| self.shared.view(), &self.shared.plan);
        for (key, said) in self.tail.records() {
            if let Some(container) = said.filter(|container| !self.retired.contains(container)) {
                visit(*key, Location { container })?;
            }
        }
        let mut lookup = self.lookups.begin(&view);
        let mut logs = view.logs.iter();
        let iterated = logs.try_for_each(|log| self.iterate_log(&view, &mut lookup, log, visit));
        self.lookups.end(lookup);
        iterated
    }

    fn ram_bytes(&self) -> usize {
        let retired = self.retired.capacity() * 9;
        self.tail.ram_bytes() + self.lookups.ram_bytes() + self.shared.view().ram_bytes() + retired
    }

    fn stats(&self) -> IndexStats {
        let view = self.shared.view();
        IndexStats {
            entries: view.records() + self.tail.records().len() as u64,
            disk_bytes: view.manifest.file_bytes(),
            bytes_written: self.shared.written.load(Ordering::Relaxed),
            ..self.lookups.stats()
        }
    }
}
