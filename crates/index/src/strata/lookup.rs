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
//! Callers look up side by side: see [`callers`].
//!
//! A stream that repeats an earlier one for long asks no run at all: see `follow`. Of an index of some MiB the device
//! is told as a whole, the first time that anything of it is read.

mod callers;
mod filters;
mod follow;
mod reads;
mod whole;

use onefold_chunk::Fingerprint;

pub use callers::Lookups;
use callers::Stream;
use filters::{TOGETHER, ask_filters};
use follow::tell_all;

use super::log::Said;
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

/// A lookup under way, of one caller, with one view of the index.
pub struct Lookup<'a> {
    lookups: &'a Lookups,
    view: &'a View,
    stream: Stream,
    buf: Vec<u8>,
    /// What the lookup did.
    pub stats: IndexStats,
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

impl Lookup<'_> {
    /// Fills `found[place]` for all `wanted` (place, key); places that stay empty are absent.
    pub fn resolve(
        &mut self,
        wanted: &[(usize, Fingerprint)],
        found: &mut [Option<Answer>],
    ) -> Result<()> {
        let view = self.view;
        let mut asking = ask_loose(view, wanted, found);
        self.ask_cache(&mut asking);
        let behind = self.reach(&asking, SHORT_STRIDE).unwrap_or(0);
        ask_filters(view, &mut asking);
        settle(&mut asking, found);
        if wanted.len() >= SHORT_STRIDE {
            self.go_on(behind, &mut asking, found)?;
        }
        if asking.is_empty() {
            return Ok(());
        }
        if self.lookups.is_first() {
            tell_all(view);
        }
        self.take_in(&mut asking, found)?;
        if self.stream.locality >= LOCALITY_MIN {
            self.wave(&mut asking, SCOUT_STRIDE, WINDOW_PAGES, found)?;
            if asking.len() > SHORT_STRIDE {
                self.wave(&mut asking, SHORT_STRIDE, 1, found)?;
            }
            self.wave(&mut asking, 1, 0, found)
        } else {
            let references = self.read(&asking, 0, found)?;
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
            self.stream.locality =
                self.stream.locality * 0.5 + near as f32 / references.len() as f32 * 0.5;
        }
    }

    /// Resolves every `stride`th key by reads, then asks the cache again for the others.
    fn wave(
        &mut self,
        asking: &mut Vec<Asking<'_>>,
        stride: usize,
        window: u32,
        found: &mut [Option<Answer>],
    ) -> Result<()> {
        if asking.is_empty() {
            return Ok(());
        }
        let mut number = 0;
        let (chosen, mut rest): (Vec<_>, Vec<_>) = asking.drain(..).partition(|_| {
            number += 1;
            (number - 1) % stride == 0
        });
        self.read(&chosen, window, found)?;
        if !rest.is_empty() {
            let before = rest.len();
            self.ask_cache(&mut rest);
            settle_again(&mut rest, found);
            let resolved = (before - rest.len()) as f32 / before as f32;
            self.stream.locality = self.stream.locality * 0.5 + resolved * 0.5;
        }
        *asking = rest;
        Ok(())
    }

    /// Believes the cache where the page is one that no record of its own run supersedes.
    fn ask_cache(&self, asking: &mut [Asking<'_>]) {
        let view = self.view;
        let Some(cache) = self.lookups.cache_of(view) else {
            return;
        };
        // neighbours in a stream stand on one page
        let (mut last, mut run) = (None, None);
        for some in asking.chunks_mut(TOGETHER) {
            some.iter().for_each(|asked| cache.prefetch(asked.hash));
            for asked in some {
                let Some((page, Some(container))) = cache.get(asked.key, asked.hash) else {
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
