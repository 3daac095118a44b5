//! Lookups, a batch of a stream at a time.
//!
//! The order for each key: tail; then what is loose, which is newer than any run; then the prefetch cache, whose answer
//! stands if no newer run may hold the key; then every run whose filter says "maybe", newest first, one page read each.
//! A run's record proves the fingerprint by 128 bits and tells log page and span, which the view turns into the
//! container; the log itself is read for locality, and where a page has too many spans.
//!
//! Reads are in waves. The first wave resolves one key in 64 and reads 64 KiB of the log for each: where the stream
//! repeats an earlier one, the others then stand in the cache. The second resolves one in 8 with single pages, for
//! short repeats. The last takes the rest at once, so that the device sees a deep queue, and reads no log. A stream
//! without locality has the last wave only; that it has come back is seen without a read, by neighbouring keys that
//! runs find on neighbouring log pages.
//!
//! A stream that repeats an earlier one for long asks no run at all: see `follow`. Of an index of some MiB the device
//! is told as a whole, the first time that anything of it is read.

mod filters;
mod follow;
mod reads;
mod whole;

use onefold_chunk::Fingerprint;

use filters::{TOGETHER, ask_filters};
use follow::tell_all;

use super::cache::PageCache;
use super::log::Said;
use super::manifest::FileId;
use super::options::Plan;
use super::run::hash_of;
use super::view::View;
use crate::{ContainerId, IndexStats, Result};

/// Pages that a scout reads: 64 KiB.
const WINDOW_PAGES: u32 = 16;
const SCOUT_STRIDE: usize = 64;
const SHORT_STRIDE: usize = 8;
/// Below this share of keys that a wave's pages resolved, the stream counts as one without locality.
const LOCALITY_MIN: f32 = 0.05;
/// So few keys say nothing of a stream's locality.
const TELLING_KEYS: usize = 16;

/// What lookups keep from one to the next.
pub struct Lookups {
    /// The prefetch cache.
    pub cache: PageCache,
    /// RAM that it may take.
    cache_bytes: usize,
    /// Log pages that were read into it, and whether all were.
    pages_read: u64,
    whole: bool,
    locality: f32,
    /// The log page that a stream has come to, if one was seen in the cache.
    reached: Option<u32>,
    /// Whether the device was told of the whole index, if it is small.
    told: bool,
    /// Run pages that are read at once.
    pages_max: usize,
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
    /// The oldest run to be asked: the one after that of the cached record, or the first.
    from: usize,
}

/// A run's record of a key that is asked for.
#[derive(Clone, Copy)]
struct Reference {
    asking: usize,
    run: usize,
    page: u32,
    /// What the record says; `None` where only the log page can tell.
    said: Option<Said>,
}

impl Lookups {
    /// With a cache of `cache_bytes` until an index is followed, reading at most `pages_max` pages of runs at once.
    pub fn new(cache_bytes: usize, pages_max: usize) -> Lookups {
        Lookups {
            cache: PageCache::new(cache_bytes),
            cache_bytes,
            pages_read: 0,
            whole: false,
            locality: 1.0,
            reached: None,
            told: false,
            pages_max,
            buf: Vec::new(),
            born: 0,
            generation: 0,
        }
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.cache.ram_bytes() + self.buf.capacity()
    }

    /// Forgets pages of files that `view` has not: they were dropped, joined or compacted. Forgets all where it is of
    /// another index than before: somebody deleted that. The cache begins anew where the filters leave more or less to
    /// it than they did.
    pub fn follow(&mut self, view: &View, plan: &Plan) {
        let manifest = &view.manifest;
        if (self.born, self.generation) == (manifest.born, manifest.generation) {
            return;
        }
        let is_another = self.born != manifest.born || self.generation > manifest.generation;
        let cache_bytes = view.cache_bytes(plan);
        if is_another || self.cache_bytes != cache_bytes {
            // the old one goes before there is a new one
            self.cache = PageCache::new(0);
            self.cache = PageCache::new(cache_bytes);
            (self.cache_bytes, self.reached) = (cache_bytes, None);
            (self.pages_read, self.whole) = (0, false);
        } else {
            let is_of =
                |page: u32, file: FileId| view.log_of(page).is_some_and(|log| log.entry.id == file);
            self.cache.retain(is_of);
        }
        (self.born, self.generation) = (manifest.born, manifest.generation);
    }

    /// The cache gives back what the filters of `view` need, for who looks nothing up for long.
    pub fn give_back(&mut self, view: &View, plan: &Plan) {
        if view.cache_bytes(plan) < self.cache_bytes {
            self.follow(view, plan);
        }
    }

    /// Fills `found[place]` for all `wanted` (place, key); places that stay empty are absent.
    pub fn resolve(
        &mut self,
        view: &View,
        wanted: &[(usize, Fingerprint)],
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut asking = ask_loose(view, wanted, found);
        self.ask_cache(view, &mut asking);
        let behind = self.reach(&asking, SHORT_STRIDE).unwrap_or(0);
        ask_filters(view, &mut asking);
        settle(&mut asking, found);
        if wanted.len() >= SHORT_STRIDE {
            self.go_on(view, behind, &mut asking, found, stats)?;
        }
        if asking.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.told, true) {
            tell_all(view);
        }
        self.take_in(view, &mut asking, found, stats)?;
        if self.locality >= LOCALITY_MIN {
            self.wave(view, &mut asking, SCOUT_STRIDE, WINDOW_PAGES, found, stats)?;
            if asking.len() > SHORT_STRIDE {
                self.wave(view, &mut asking, SHORT_STRIDE, 1, found, stats)?;
            }
            self.wave(view, &mut asking, 1, 0, found, stats)
        } else {
            let references = self.read(view, &asking, 0, found, stats)?;
            self.sense(&references);
            Ok(())
        }
    }

    /// Whether a stream without locality has found it again: its keys lie near each other in the log.
    fn sense(&mut self, references: &[Reference]) {
        if references.len() >= TELLING_KEYS {
            let near = references
                .windows(2)
                .filter(|pair| pair[0].page.abs_diff(pair[1].page) < WINDOW_PAGES)
                .count();
            self.locality = self.locality * 0.5 + near as f32 / references.len() as f32 * 0.5;
        }
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
            self.ask_cache(view, &mut rest);
            settle_again(&mut rest, found);
            let resolved = (before - rest.len()) as f32 / before as f32;
            self.locality = self.locality * 0.5 + resolved * 0.5;
        }
        *asking = rest;
        Ok(())
    }

    /// Believes the cache where the page is one that no record of its own run supersedes.
    fn ask_cache(&mut self, view: &View, asking: &mut [Asking<'_>]) {
        // neighbours in a stream stand on one page
        let (mut last, mut run) = (None, None);
        for some in asking.chunks_mut(TOGETHER) {
            some.iter()
                .for_each(|asked| self.cache.prefetch(asked.hash));
            for asked in some {
                let Some((page, Some(container))) = self.cache.get(asked.key, asked.hash) else {
                    continue;
                };
                if last.replace(page) != Some(page) {
                    run = view.believed_run_of(page);
                }
                // runs older than an answer from before were not asked, so only a newer page may take its place
                if let Some(run) = run.filter(|run| *run + 1 >= asked.from)
                    && !view.retired.contains(&container)
                {
                    asked.cached = Some(Answer { container, page });
                    asked.from = run + 1;
                }
            }
        }
    }
}

/// Answers what loose pages know, and gives what is still to be asked for.
fn ask_loose<'a>(
    view: &View,
    wanted: &'a [(usize, Fingerprint)],
    found: &mut [Option<Answer>],
) -> Vec<Asking<'a>> {
    let mut asking = Vec::with_capacity(wanted.len());
    for (place, key) in wanted {
        match view.loose_answer(key) {
            Some(answer) => found[*place] = answer,
            None => asking.push(Asking {
                key,
                hash: hash_of(key),
                place: *place,
                runs: 0,
                cached: None,
                from: 0,
            }),
        }
    }
    asking
}

/// As [`settle`], where the cache was asked after the filters: runs older than what it knows need not be asked.
fn settle_again(asking: &mut Vec<Asking<'_>>, found: &mut [Option<Answer>]) {
    for asked in asking.iter_mut() {
        asked.runs &= u128::MAX.checked_shl(asked.from as u32).unwrap_or(0);
    }
    settle(asking, found);
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
