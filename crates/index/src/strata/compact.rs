//! Compacting the log: a log file that mostly speaks of retired containers gives its live records to a new one and goes.
//!
//! The new log and its run are entered as a sealed tail is, so records become newer than they were. That is right because only the newest
//! record of a fingerprint is taken, and because nothing is entered if anybody sealed meanwhile; then it is tried again later. Always holds:
//! before and after, a lookup gives the same answers. Runs keep records of the old pages until they are merged, and those
//! count for nothing.

use std::sync::atomic::Ordering;

use onefold_chunk::Fingerprint;

use super::gone::gone_pages;
use super::log::{self, LogPage, Said};
use super::lookup::Lookups;
use super::manifest::RUNS_MAX;
use super::page::PAGE_BYTES;
use super::run::hash_of;
use super::seal::{self, Sealed};
use super::shared::Shared;
use super::view::{OpenLog, View};
use crate::{IndexStats, Result};

/// A log file is compacted when this share of its pages is gone, in percent.
const GONE_PERCENT: u64 = 50;
/// Cache of the lookups that tell which records are the newest.
const CACHE_BYTES: usize = 1 << 18;
/// Log pages that are looked at together.
const READ_PAGES: u32 = 16;

/// Compacts one log file where it is due. The caller holds the merge lock.
pub fn compact_locked(shared: &Shared) -> Result<bool> {
    let view = shared.refresh()?;
    if view.retired.is_empty() {
        return Ok(false);
    }
    let gone = gone_pages(&view)?;
    let share = |log: &OpenLog| {
        let (first, end) = (log.entry.first_page, log.entry.end_page());
        let within = gone
            .pages
            .iter()
            .map(|pages| u64::from(pages.end.min(end).saturating_sub(pages.start.max(first))));
        within.sum::<u64>() * 100 / u64::from(log.entry.pages.max(1))
    };
    let due =
        |place: &usize| !gone.logs.contains(place) && share(&view.logs[*place]) >= GONE_PERCENT;
    let Some(place) = (0..view.logs.len()).find(due) else {
        return Ok(false);
    };
    let mut sealed = Vec::new();
    let compacted = compact_log(shared, &view, &view.logs[place], &mut sealed);
    if !matches!(compacted, Ok(true)) {
        let names: Vec<String> = sealed.iter().flat_map(Sealed::names).collect();
        shared.folder.remove_unentered(&names);
    }
    compacted
}

/// Puts what is live of a log file in its place. `sealed` tells the new files; `false`: they were not entered.
fn compact_log(
    shared: &Shared,
    view: &View,
    log: &OpenLog,
    sealed: &mut Vec<Sealed>,
) -> Result<bool> {
    let met = view.manifest.runs.first().map_or(0, |run| run.end_page);
    if !seal_live(shared, view, log, log.entry.end_page() > met, sealed)? {
        return Ok(false);
    }
    let before = view.manifest.next_page;
    let mut entered = false;
    shared.folder.commit(|manifest| {
        let room = manifest.runs.len() + sealed.len() <= RUNS_MAX;
        if !room
            || manifest.born != view.manifest.born
            || manifest.next_page != before
            || !manifest.logs.iter().any(|other| other.id == log.entry.id)
        {
            return Ok(false);
        }
        manifest.logs.retain(|other| other.id != log.entry.id);
        sealed
            .iter()
            .try_for_each(|sealed| sealed.enter(manifest))?;
        entered = true;
        Ok(true)
    })?;
    if entered {
        shared.let_go(std::slice::from_ref(&log.path))?;
    }
    Ok(entered)
}

/// Seals the newest records of a log file whose container is not retired, and its removals where older records may still need them, a tail's
/// worth at once, into `sealed`. `false` where the index is being closed.
fn seal_live(
    shared: &Shared,
    view: &View,
    log: &OpenLog,
    keep_removals: bool,
    sealed: &mut Vec<Sealed>,
) -> Result<bool> {
    let mut lookups = Lookups::new(CACHE_BYTES, shared.plan.batch_pages);
    let (mut live, mut buf, mut first) = (Vec::new(), Vec::new(), 0);
    while first < log.entry.pages {
        if shared.folder.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let pages = READ_PAGES.min(log.entry.pages - first);
        log::read_pages(&*log.disk, &log.path, first, pages as usize, &mut buf)?;
        for (number, bytes) in (log.entry.first_page + first..).zip(buf.chunks_exact(PAGE_BYTES)) {
            let counts = |said: &Said| {
                said.map_or(keep_removals, |container| {
                    !view.retired.contains(&container)
                })
            };
            let records: Vec<_> = LogPage::checked(bytes)
                .records()
                .filter(|(_, said)| counts(said))
                .collect();
            let newest = are_newest(view, &mut lookups, number, &records)?;
            live.extend(
                records
                    .into_iter()
                    .zip(newest)
                    .filter(|(_, newest)| *newest)
                    .map(|(record, _)| record),
            );
        }
        first += pages;
        if live.len() >= shared.plan.tail_records || first == log.entry.pages && !live.is_empty() {
            let bits = shared
                .plan
                .filter_bits(view.manifest.records(), live.len() as u64);
            sealed.push(seal::seal(
                &shared.folder,
                live.iter(),
                &shared.plan,
                bits,
                &shared.written,
            )?);
            live.clear();
        }
    }
    Ok(true)
}

/// Which of `records`, all of log page `number`, are the newest of their fingerprints.
fn are_newest(
    view: &View,
    lookups: &mut Lookups,
    number: u32,
    records: &[(Fingerprint, Said)],
) -> Result<Vec<bool>> {
    let sure = |key: &Fingerprint| view.is_newest(number, hash_of(key));
    let mut newest: Vec<bool> = records.iter().map(|(key, _)| sure(key)).collect();
    let doubtful: Vec<_> = records
        .iter()
        .enumerate()
        .filter(|(i, _)| !newest[*i])
        .map(|(i, (key, _))| (i, *key))
        .collect();
    let mut answers = vec![None; records.len()];
    lookups.resolve(view, &doubtful, &mut answers, &mut IndexStats::default())?;
    for (i, _) in doubtful {
        newest[i] = match (records[i].1, answers[i]) {
            (Some(_), answer) => answer.is_some_and(|answer| answer.page == number),
            (None, answer) => answer.is_none(),
        };
    }
    Ok(newest)
}
