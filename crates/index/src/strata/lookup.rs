//! Lookups, a segment of a stream at a time.
//!
//! The order for each key: tail; then the prefetch cache, whose answer stands if no newer run may hold the key; then every run whose filter
//! says "maybe", newest first, one page read each. A run's record proves the fingerprint by 128 bits and tells log page and span,
//! which the view turns into the container; the log itself is read for locality, and where a page has too many spans.
//!
//! Reads are in waves. The first wave resolves one key in 64 and reads 64 KiB of the log for each: where the stream repeats an
//! earlier one, the others then stand in the cache. The second resolves one in 8 with single pages, for short repeats. The last
//! takes the rest at once, so that the device sees a deep queue, and reads no log. A stream without locality has the last wave only; that
//! it has come back is seen without a read, by neighbouring keys that runs find on neighbouring log pages.

use onefold_chunk::Fingerprint;

use super::cache::PageCache;
use super::log::{LogPage, Said};
use super::manifest::Manifest;
use super::page::{PAGE_BYTES, read_pages};
use super::ribbon::Question;
use super::run::{Run, hash_of};
use super::run_page::{Asked, RunPage, proof_of};
use super::view::{OpenLog, View};
use crate::{ContainerId, IndexStats, Result};

/// Pages that a scout reads: 64 KiB.
const WINDOW_PAGES: u32 = 16;
const SCOUT_STRIDE: usize = 64;
const SHORT_STRIDE: usize = 8;
/// Below this share of keys that a wave's pages resolved, the stream counts as one without locality.
const LOCALITY_MIN: f32 = 0.05;
/// Keys that a filter is asked for together: their lines are fetched while the filter before is asked.
const TOGETHER: usize = u32::BITS as usize;
/// So few keys say nothing of a stream's locality.
const TELLING_KEYS: usize = 16;

/// What lookups keep from one to the next.
pub struct Lookups {
    /// The prefetch cache.
    pub cache: PageCache,
    locality: f32,
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

/// A page of a run to be asked for a key.
struct Step {
    asking: usize,
    run: usize,
    page: u32,
    /// The last page of the partition.
    last: u32,
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
    /// With a cache of `cache_bytes`, reading at most `pages_max` pages of runs at once.
    pub fn new(cache_bytes: usize, pages_max: usize) -> Lookups {
        Lookups {
            cache: PageCache::new(cache_bytes),
            locality: 1.0,
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
                from: 0,
            })
            .collect();
        self.ask_cache(view, &mut asking);
        ask_filters(view, &mut asking);
        settle(&mut asking, found);
        let first = asking.len();
        if first == 0 {
            return Ok(());
        }
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
            for asked in &mut rest {
                asked.runs &= u128::MAX.checked_shl(asked.from as u32).unwrap_or(0);
            }
            settle(&mut rest, found);
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

    /// Reads the run pages of all `asking`, and brings `window` log pages into the cache from each that they name, and where one does not tell the
    /// container, its page. Gives the newest reference of each key.
    fn read(
        &mut self,
        view: &View,
        asking: &[Asking<'_>],
        window: u32,
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<Vec<Reference>> {
        let mut references = self.read_runs(view, asking, stats)?;
        // newest first; one of each key a round, so that a round's reads go out together
        references
            .sort_unstable_by_key(|reference| (reference.asking, std::cmp::Reverse(reference.run)));
        asking
            .iter()
            .for_each(|asked| found[asked.place] = asked.cached);
        let mut newest = Vec::new();
        while !references.is_empty() {
            let mut round: Vec<Reference> = Vec::with_capacity(references.len());
            let mut later = Vec::new();
            for reference in references.drain(..) {
                match round.last() {
                    Some(last) if last.asking == reference.asking => later.push(reference),
                    _ => round.push(reference),
                }
            }
            let wanted = round
                .iter()
                .filter(|reference| window > 0 || reference.said.is_none());
            self.read_logs(view, wanted, window.max(1), stats)?;
            let mut open = Vec::new();
            for reference in &round {
                if !self.answer(view, &asking[reference.asking], reference, found)? {
                    open.push(reference.asking);
                }
            }
            // a key whose newest record counts for nothing is asked for in older runs
            later.retain(|reference| open.binary_search(&reference.asking).is_ok());
            references = later;
            if newest.is_empty() {
                newest = round;
            }
        }
        Ok(newest)
    }

    /// Enters what a record says of its key; `false` where it counts for nothing.
    fn answer(
        &mut self,
        view: &View,
        asked: &Asking<'_>,
        reference: &Reference,
        found: &mut [Option<Answer>],
    ) -> Result<bool> {
        let said = match reference.said {
            None => self.proof(view, reference.page, asked.key)?,
            known => known,
        };
        Ok(match said {
            Some(Some(container)) if view.retired.contains(&container) => false,
            Some(said) => {
                found[asked.place] = said.map(|container| Answer {
                    container,
                    page: reference.page,
                });
                true
            }
            None => false,
        })
    }

    /// Asks every run that may hold a key, all in one batch; a page that overflowed sends to the next.
    fn read_runs(
        &mut self,
        view: &View,
        asking: &[Asking<'_>],
        stats: &mut IndexStats,
    ) -> Result<Vec<Reference>> {
        let mut references = Vec::with_capacity(asking.len());
        let mut steps: Vec<Step> = Vec::new();
        for (number, asked) in asking.iter().enumerate() {
            let mut runs = asked.runs;
            while runs != 0 {
                let run = runs.trailing_zeros() as usize;
                runs &= runs - 1;
                let (page, last) = view.runs[run].page_of(asked.hash);
                steps.push(Step {
                    asking: number,
                    run,
                    page,
                    last,
                });
            }
        }
        while !steps.is_empty() {
            // no more at once than there are buffers for
            let waiting = steps.split_off(steps.len().min(self.pages_max));
            let wanted = steps.iter().map(|step| {
                let run = &view.runs[step.run];
                (&*run.disk, step.page, 1)
            });
            let pages = read_pages(wanted, &mut self.buf)?;
            stats.lookup_reads += steps.len() as u64;
            let mut next = waiting;
            for (step, bytes) in steps.iter().zip(pages.chunks_exact(PAGE_BYTES)) {
                match RunPage::check(bytes, &view.runs[step.run].path, step.page)?
                    .ask(asking[step.asking].hash)
                {
                    Asked::Found(record) if record.proof == proof_of(asking[step.asking].key) => {
                        let page = view.manifest.runs[step.run]
                            .first_page
                            .saturating_add(record.page);
                        // the log file of a record may have been dropped, with all it said
                        references.extend(view.log_of(page).map(|log| Reference {
                            asking: step.asking,
                            run: step.run,
                            page,
                            said: log.said(page, &record),
                        }));
                    }
                    Asked::Next if step.page < step.last => next.push(Step {
                        page: step.page + 1,
                        ..*step
                    }),
                    _ => stats.false_reads += 1,
                }
            }
            steps = next;
        }
        Ok(references)
    }

    /// Brings log pages that records name into the cache, `window` pages from each, in one batch; what two windows share is read once.
    fn read_logs<'a>(
        &mut self,
        view: &View,
        round: impl Iterator<Item = &'a Reference>,
        window: u32,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut firsts: Vec<u32> = round
            .map(|reference| reference.page)
            .filter(|page| !self.cache.holds(*page))
            .collect();
        firsts.sort_unstable();
        firsts.dedup();
        let mut spans: Vec<(&OpenLog, u32, u32)> = Vec::with_capacity(firsts.len());
        let mut covered = 0;
        for first in firsts {
            let Some(log) = view.log_of(first) else {
                continue;
            };
            let (from, end) = (
                first.max(covered),
                first.saturating_add(window).min(log.entry.end_page()),
            );
            spans.extend((from < end).then_some((&**log, from, end)));
            covered = covered.max(end);
        }
        stats.lookup_reads += spans.len() as u64;
        // no more at once than there are buffers for
        let at_once = (self.pages_max / window as usize).max(1);
        spans
            .chunks(at_once)
            .try_for_each(|spans| self.read_spans(spans))
    }

    fn read_spans(&mut self, spans: &[(&OpenLog, u32, u32)]) -> Result<()> {
        let wanted = spans.iter().map(|(log, from, end)| {
            let first = from - log.entry.first_page;
            (&*log.disk, first, (end - from) as usize)
        });
        let pages = read_pages(wanted, &mut self.buf)?;
        let numbers = spans
            .iter()
            .flat_map(|(log, from, end)| (*from..*end).map(move |page| (log, page)));
        for ((log, page), bytes) in numbers.zip(pages.chunks_exact(PAGE_BYTES)) {
            LogPage::check(bytes, &log.path, page - log.entry.first_page)?;
            self.cache.insert(page, bytes);
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
        let bytes = read_pages(std::iter::once((&*log.disk, within, 1)), &mut self.buf)?;
        Ok(LogPage::check(bytes, &log.path, within)?.find(key))
    }
}

/// Asks the filters of all runs, for some keys at once, so that memory is waited for once: while the first columns of one run are looked at, those of the next are on
/// their way, and the others of the one before.
fn ask_filters(view: &View, asking: &mut [Asking<'_>]) {
    let mut questions = [Question::default(); TOGETHER];
    // of the run before, of this one and of the next
    let mut starts = [[0; TOGETHER]; 3];
    for some in asking.chunks_mut(TOGETHER) {
        let oldest = some.iter().map(|asked| asked.from).min().unwrap_or(0);
        let Some(run) = view.runs.get(oldest) else {
            continue;
        };
        for (asked, question) in some.iter().zip(&mut questions) {
            *question = Question::new(asked.hash);
        }
        let questions = &questions[..some.len()];
        seek(run, questions, &mut starts[oldest % 3]);
        let mut before = 0;
        for number in oldest..=view.runs.len() {
            if let Some(newer) = view.runs.get(number + 1) {
                seek(newer, questions, &mut starts[(number + 1) % 3]);
            }
            let mut near = 0;
            if let Some(run) = view.runs.get(number) {
                let starts = &starts[number % 3];
                for (place, (question, asked)) in questions.iter().zip(&*some).enumerate() {
                    let may = run.near(question, starts[place]) & (asked.from <= number);
                    near |= u32::from(may) << place;
                }
                places(near).for_each(|place| run.prefetch_far(&questions[place], starts[place]));
            }
            for place in places(before) {
                let start = starts[(number - 1) % 3][place];
                if view.runs[number - 1].far(&questions[place], start) {
                    some[place].runs |= 1 << (number - 1);
                }
            }
            before = near;
        }
    }
}

/// Where the filters of `run` answer the questions.
fn seek(run: &Run, questions: &[Question], starts: &mut [u32]) {
    for (question, start) in questions.iter().zip(starts) {
        *start = run.seek(question);
    }
}

/// The places of the bits that are set.
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < TOGETHER).then_some(place)
    })
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
