//! Lookups, a segment of a stream at a time.
//!
//! The order for each key: tail; then the prefetch cache, whose answer stands if no newer run may hold the key; then every run whose filter
//! says "maybe", newest first, one page read each; then the log page that a run's record names, which proves the fingerprint.
//!
//! Reads are in waves. The first wave resolves one key in 64 and reads 64 KiB of the log for each: where the stream repeats an
//! earlier one, the others then stand in the cache. The second resolves one in 8 with single pages, for short repeats. The last
//! takes the rest at once, so that the device sees a deep queue. A stream without locality skips the second wave and sends one scout only.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::ReadAt;

use super::cache::PageCache;
use super::log::{LogPage, Said};
use super::manifest::Manifest;
use super::page::PAGE_BYTES;
use super::run::{Run, hash_of};
use super::run_page::{Asked, RunPage};
use super::view::{OpenLog, View};
use crate::{ContainerId, Error, IndexStats, Result};

/// Pages that a scout reads: 64 KiB.
const WINDOW_PAGES: u32 = 16;
const SCOUT_STRIDE: usize = 64;
const SHORT_STRIDE: usize = 8;
/// Below this share of keys that a wave's pages resolved, the stream counts as one without locality.
const LOCALITY_MIN: f32 = 0.05;
/// The most runs a view may have: a bit each.
pub const RUNS_MAX: usize = 128;

/// What lookups keep from one to the next.
pub struct Lookups {
    /// The prefetch cache.
    pub cache: PageCache,
    locality: f32,
    buf: Vec<u8>,
    /// Which index the cached pages are of, and how new.
    born: u64,
    generation: u64,
}

/// Where a key is, and which log page proved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The chunk's container.
    pub container: ContainerId,
    /// The log page of the newest record.
    pub page: u32,
}

/// A key on its way.
struct Asking<'a> {
    key: &'a Fingerprint,
    hash: u64,
    /// Where the answer goes.
    place: usize,
    /// Runs that may hold it, a bit each.
    runs: u128,
    /// What the cache says, if no newer run says otherwise.
    cached: Option<Answer>,
    /// The run of the cached record, so that only newer ones are asked; -1 without one.
    cached_run: i32,
}

/// A run's record of a key that is asked for.
#[derive(Clone, Copy)]
struct Reference {
    asking: usize,
    run: usize,
    page: u32,
}

impl Lookups {
    /// With a cache of `cache_bytes`.
    pub fn new(cache_bytes: usize) -> Lookups {
        Lookups {
            cache: PageCache::new(cache_bytes),
            locality: 1.0,
            buf: Vec::new(),
            born: 0,
            generation: 0,
        }
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.cache.ram_bytes() + self.buf.capacity()
    }

    /// Forgets all pages where `manifest` is of another index than before: somebody deleted that.
    pub fn follow(&mut self, manifest: &Manifest) {
        if self.born != manifest.born || self.generation > manifest.generation {
            self.cache.clear();
        }
        (self.born, self.generation) = (manifest.born, manifest.generation);
    }

    /// Fills `found[place]` for all `wanted` (place, key); places that stay empty are absent.
    pub fn resolve(
        &mut self,
        view: &View,
        wanted: &[(usize, Fingerprint)],
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut asking: Vec<Asking<'_>> = wanted
            .iter()
            .map(|(place, key)| Asking {
                key,
                hash: hash_of(key),
                place: *place,
                runs: 0,
                cached: None,
                cached_run: -1,
            })
            .collect();
        asking
            .iter_mut()
            .for_each(|asked| self.ask_cache(view, asked));
        for (number, run) in view.runs.iter().enumerate() {
            for asked in &mut asking {
                let newer = asked.cached_run < number as i32;
                asked.runs |= u128::from(newer && run.may_contain(asked.hash)) << number;
            }
        }
        settle(&mut asking, found);
        let first = asking.len();
        if first == 0 {
            return Ok(());
        }
        let lonely = self.locality < LOCALITY_MIN;
        let stride = if lonely { usize::MAX } else { SCOUT_STRIDE };
        self.wave(view, &mut asking, stride, WINDOW_PAGES, found, stats)?;
        if !lonely && asking.len() > SHORT_STRIDE {
            self.wave(view, &mut asking, SHORT_STRIDE, 1, found, stats)?;
        }
        self.wave(view, &mut asking, 1, 1, found, stats)
    }

    /// Resolves every `stride`th key by reads, then asks the cache again for the others.
    fn wave(
        &mut self,
        view: &View,
        asking: &mut Vec<Asking<'_>>,
        stride: usize,
        window: u32,
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<()> {
        if asking.is_empty() {
            return Ok(());
        }
        let mut number = 0;
        let (chosen, mut rest): (Vec<_>, Vec<_>) = asking.drain(..).partition(|_| {
            number += 1;
            (number - 1) % stride == 0
        });
        self.read(view, &chosen, window, found, stats)?;
        if !rest.is_empty() {
            let before = rest.len();
            for asked in &mut rest {
                self.ask_cache(view, asked);
                let older = (asked.cached_run + 1) as u32;
                asked.runs &= u128::MAX.checked_shl(older).unwrap_or(0);
            }
            settle(&mut rest, found);
            let resolved = (before - rest.len()) as f32 / before as f32;
            self.locality = self.locality * 0.5 + resolved * 0.5;
        }
        *asking = rest;
        Ok(())
    }

    /// Believes the cache where the page is one that no record of its own run supersedes.
    fn ask_cache(&mut self, view: &View, asked: &mut Asking<'_>) {
        let Some((page, Some(container))) = self.cache.get(asked.key, asked.hash) else {
            return;
        };
        if view.is_dead(page) || view.retired.contains(&container) || view.log_of(page).is_none() {
            return;
        }
        if let Some(run) = view.run_of(page) {
            asked.cached = Some(Answer { container, page });
            asked.cached_run = run as i32;
        }
    }

    /// Reads the run pages of all `asking`, then the log pages that they name, newest first until one proves the key.
    fn read(
        &mut self,
        view: &View,
        asking: &[Asking<'_>],
        window: u32,
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut references = Vec::with_capacity(asking.len());
        for (number, run) in view.runs.iter().enumerate() {
            let of_run: Vec<usize> = (0..asking.len())
                .filter(|i| asking[*i].runs >> number & 1 == 1)
                .collect();
            self.read_run(run, asking, of_run, view, number, &mut references, stats)?;
        }
        // newest first; one of each key a round, so that a round's reads go out together
        references
            .sort_unstable_by_key(|reference| (reference.asking, std::cmp::Reverse(reference.run)));
        asking
            .iter()
            .for_each(|asked| found[asked.place] = asked.cached);
        let mut round: Vec<Reference> = Vec::new();
        let mut done = vec![false; asking.len()];
        while !references.is_empty() {
            round.clear();
            let mut later = Vec::new();
            for reference in references.drain(..) {
                match round.last() {
                    Some(last) if last.asking == reference.asking => later.push(reference),
                    _ => round.push(reference),
                }
            }
            self.read_logs(view, &round, window, stats)?;
            for reference in &round {
                let asked = &asking[reference.asking];
                let said = self.proof(view, reference.page, asked.key)?;
                done[reference.asking] = match said {
                    Some(Some(container)) if view.retired.contains(&container) => false,
                    Some(said) => {
                        found[asked.place] = said.map(|container| Answer {
                            container,
                            page: reference.page,
                        });
                        true
                    }
                    None => false,
                };
            }
            references = later
                .into_iter()
                .filter(|reference| !done[reference.asking])
                .collect();
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one step of `read`, which has them all at hand"
    )]
    fn read_run(
        &mut self,
        run: &Run,
        asking: &[Asking<'_>],
        mut of_run: Vec<usize>,
        view: &View,
        number: usize,
        references: &mut Vec<Reference>,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut pages: Vec<(u32, u32)> = of_run
            .iter()
            .map(|i| run.page_of(asking[*i].hash))
            .collect();
        while !of_run.is_empty() {
            let wanted: Vec<u32> = pages.iter().map(|(page, _)| *page).collect();
            read_pages(&*run.disk, &run.path, &wanted, &mut self.buf)?;
            stats.lookup_reads += wanted.len() as u64;
            let mut next = Vec::new();
            let mut next_pages = Vec::new();
            for ((i, (page, last)), bytes) in of_run
                .iter()
                .zip(&pages)
                .zip(self.buf.chunks_exact(PAGE_BYTES))
            {
                match RunPage::check(bytes, &run.path, *page)?.ask(asking[*i].hash) {
                    Asked::Found(record) => {
                        let page = view.manifest.runs[number]
                            .first_page
                            .saturating_add(record.page);
                        // the log file of a record may have been dropped, with all it said
                        references.extend(view.log_of(page).map(|_| Reference {
                            asking: *i,
                            run: number,
                            page,
                        }));
                    }
                    Asked::Next if page < last => {
                        next.push(*i);
                        next_pages.push((page + 1, *last));
                    }
                    _ => stats.false_reads += 1,
                }
            }
            (of_run, pages) = (next, next_pages);
        }
        Ok(())
    }

    /// Brings the log pages of a round into the cache, `window` pages from each.
    fn read_logs(
        &mut self,
        view: &View,
        round: &[Reference],
        window: u32,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut pages: Vec<u32> = round
            .iter()
            .map(|reference| reference.page)
            .filter(|page| !self.cache.holds(*page))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let mut at = 0;
        while at < pages.len() {
            let Some(log) = view.log_of(pages[at]).map(Arc::clone) else {
                at += 1;
                continue;
            };
            let of_log = pages[at..].partition_point(|page| *page < log.entry.end_page());
            let firsts: Vec<u32> = pages[at..at + of_log]
                .iter()
                .map(|page| page - log.entry.first_page)
                .collect();
            at += of_log;
            if window == 1 {
                read_pages(&*log.disk, &log.path, &firsts, &mut self.buf)?;
                stats.lookup_reads += firsts.len() as u64;
                self.take_in(&log.path, log.entry.first_page, &firsts)?;
            } else {
                self.read_windows(&log, &firsts, window, stats)?;
            }
        }
        Ok(())
    }

    /// Reads `window` pages from each of `firsts`, which rise, in one batch; what two windows share is read once.
    fn read_windows(
        &mut self,
        log: &OpenLog,
        firsts: &[u32],
        window: u32,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut pages: Vec<u32> = Vec::new();
        let mut lengths = Vec::new();
        for first in firsts {
            let from = pages.last().map_or(*first, |last| (*first).max(last + 1));
            let end = first.saturating_add(window).min(log.entry.pages);
            lengths.extend((from < end).then(|| (from, (end - from) as usize * PAGE_BYTES)));
            pages.extend(from..end);
        }
        self.buf.resize(pages.len() * PAGE_BYTES, 0);
        let mut rest = &mut self.buf[..];
        let mut reads = Vec::with_capacity(lengths.len());
        for (from, length) in lengths {
            let (buf, behind) = rest.split_at_mut(length);
            rest = behind;
            reads.push(ReadAt {
                offset: u64::from(from) * PAGE_BYTES as u64,
                buf,
            });
        }
        log.disk
            .read_many_at(&mut reads)
            .map_err(|error| Error::from_read(error, &log.path))?;
        stats.lookup_reads += reads.len() as u64;
        self.take_in(&log.path, log.entry.first_page, &pages)
    }

    fn take_in(&mut self, path: &str, first_page: u32, pages: &[u32]) -> Result<()> {
        for (page, bytes) in pages.iter().zip(self.buf.chunks_exact(PAGE_BYTES)) {
            LogPage::check(bytes, path, *page)?;
            self.cache.insert(first_page + page, bytes);
        }
        Ok(())
    }

    /// What log page `page` says of `key`. A cache smaller than a round has lost the page by now: then it is read again.
    fn proof(&mut self, view: &View, page: u32, key: &Fingerprint) -> Result<Option<Said>> {
        if let Some(page) = self.cache.page_of(page) {
            return Ok(page.find(key));
        }
        let Some(log) = view.log_of(page) else {
            return Ok(None);
        };
        let within = page - log.entry.first_page;
        read_pages(&*log.disk, &log.path, &[within], &mut self.buf)?;
        Ok(LogPage::check(&self.buf, &log.path, within)?.find(key))
    }
}

/// Takes out those that no run needs to be asked for: the cache's answer stands, or there is none.
fn settle(asking: &mut Vec<Asking<'_>>, found: &mut [Option<Answer>]) {
    asking.retain(|asked| {
        if asked.runs == 0 {
            found[asked.place] = asked.cached;
        }
        asked.runs != 0
    });
}

/// Reads single pages in one batch.
fn read_pages(
    disk: &dyn onefold_io::Disk,
    path: &str,
    pages: &[u32],
    buf: &mut Vec<u8>,
) -> Result<()> {
    buf.resize(pages.len() * PAGE_BYTES, 0);
    let mut reads: Vec<ReadAt<'_>> = pages
        .iter()
        .zip(buf.chunks_exact_mut(PAGE_BYTES))
        .map(|(page, buf)| ReadAt {
            offset: u64::from(*page) * PAGE_BYTES as u64,
            buf,
        })
        .collect();
    disk.read_many_at(&mut reads)
        .map_err(|error| Error::from_read(error, path))
}
