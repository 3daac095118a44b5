//! Lookups, a batch of a stream at a time.
//!
//! The order for each key: the tail; then the loose pages, which are newer than any run; then the prefetch cache, whose
//! answer stands if no newer run may hold the key; then every run whose filter says "maybe", newest first, one page
//! read each. A run's record proves the fingerprint by 128 bits and tells log page and span, which the view turns into
//! the container; the log itself is read for locality, and where a page has too many spans.
//!
//! Reads are in waves. The first wave resolves one key in 64 and reads 64 KiB of the log for each: where the stream
//! repeats an earlier one, the others then stand in the cache. The second resolves one in 8 with single pages, for
//! short repeats. The last takes the rest at once, so that the device sees a deep queue, and reads no log. A stream
//! without locality has the last wave only; the return of its locality is seen without a read, when runs find
//! neighbouring keys on neighbouring log pages.
//!
//! Callers look up side by side: see [`callers`].
//!
//! A stream that repeats an earlier one for long asks no run at all: see `follow`. A small index, of some MiB, is read
//! ahead as a whole when any of it is first read.

mod callers;
mod filters;
mod follow;
mod reads;
mod whole;

use onefold_chunk::Fingerprint;

use callers::CallerStream;
pub use callers::Lookups;
use filters::{TOGETHER, ask_filters};
use follow::tell_all;

use super::log::Said;
use super::log_location::LogLocation;
use super::run::hash_of;
use super::view::View;
use crate::{IndexStats, Result};

/// Pages that a scout reads: 64 KiB.
const WINDOW_PAGES: u32 = 16;
const SCOUT_STRIDE: usize = 64;
const SHORT_STRIDE: usize = 8;
/// Below this share of keys that a wave's pages resolved, the stream counts as one without locality.
const LOCALITY_MIN: f32 = 0.05;
/// The fewest keys from which a stream's locality is estimated.
const TELLING_KEYS: usize = 16;

/// A lookup under way, of one caller, with one view of the index.
pub struct Lookup<'a> {
    lookups: &'a Lookups,
    view: &'a View,
    stream: CallerStream,
    buf: Vec<u8>,
    /// Counters of this lookup.
    pub stats: IndexStats,
}

/// A key that has no answer yet.
struct PendingKey<'a> {
    key: &'a Fingerprint,
    hash: u64,
    /// Position of the key in the caller's batch, where the answer goes.
    place: usize,
    /// Runs that may hold the key, a bit each.
    runs: u128,
    /// The cache's answer, right if no newer run says otherwise.
    cached: Option<LogLocation>,
    /// The oldest run to ask: the one after that of the cached record, or the first.
    from: usize,
}

/// A run's record of a key that is looked up.
#[derive(Clone, Copy)]
struct Reference {
    asking: usize,
    run: usize,
    page: u32,
    /// The content of the run's record; `None` where only the log page can tell.
    said: Option<Said>,
}

impl Lookup<'_> {
    /// Looks up all `wanted` (place, key) and fills `found[place]`; places that stay empty are absent.
    pub fn resolve(
        &mut self,
        wanted: &[(usize, Fingerprint)],
        found: &mut [Option<LogLocation>],
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

    /// Notes whether a stream without locality has it again: its keys lie near each other in the log.
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
        asking: &mut Vec<PendingKey<'_>>,
        stride: usize,
        window: u32,
        found: &mut [Option<LogLocation>],
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

    /// Takes the cache's answer for keys whose page has no record that its own run supersedes.
    fn ask_cache(&self, asking: &mut [PendingKey<'_>]) {
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
                // older runs than the earlier answer's were not asked, so only a newer page may replace that answer
                if let Some(run) = run.filter(|run| *run + 1 >= asked.from)
                    && !view.retired.contains(&container)
                {
                    asked.cached = Some(LogLocation { container, page });
                    asked.from = run + 1;
                }
            }
        }
    }
}

/// Answers the keys that loose pages know, and returns the others.
fn ask_loose<'a>(
    view: &View,
    wanted: &'a [(usize, Fingerprint)],
    found: &mut [Option<LogLocation>],
) -> Vec<PendingKey<'a>> {
    let mut asking = Vec::with_capacity(wanted.len());
    for (place, key) in wanted {
        match view.loose_answer(key) {
            Some(answer) => found[*place] = answer,
            None => asking.push(PendingKey {
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

/// Like [`settle`], where the cache was asked after the filters: runs older than the cache's answer need not be asked.
fn settle_again(asking: &mut Vec<PendingKey<'_>>, found: &mut [Option<LogLocation>]) {
    for asked in asking.iter_mut() {
        asked.runs &= u128::MAX.checked_shl(asked.from as u32).unwrap_or(0);
    }
    settle(asking, found);
}

/// Answers and takes out the keys that need no run: the cache's answer stands, or there is none.
fn settle(asking: &mut Vec<PendingKey<'_>>, found: &mut [Option<LogLocation>]) {
    asking.retain(|asked| {
        if asked.runs == 0 {
            found[asked.place] = asked.cached;
        }
        asked.runs != 0
    });
}
