//! Compacting the log: a log file most of whose records point to retired containers is copied, live records only, into
//! a new file and removed. The same is done with many small files that cannot be joined ([`scattered`]).
//!
//! The new log and its run are entered as a sealed tail is, so copied records become newer than they were. This is
//! right because only the newest record of a fingerprint is copied, and because nothing is entered if another opener
//! sealed meanwhile; the compaction is then tried again later. Invariant: lookups before and after give the same
//! answers. Runs keep records of the old pages until they are merged, and lookups ignore these.

use std::sync::Arc;

use onefold_chunk::Fingerprint;

use super::gone::KnownGone;
use super::join::scattered;
use super::log::{self, LogPage, Said};
use super::lookup::Lookups;
use super::loose::Loose;
use super::manifest::{LogEntry, RUNS_MANY, RUNS_MAX};
use super::open_log::OpenLog;
use super::options::RamPlan;
use super::page::PAGE_BYTES;
use super::run_writer::RUN_RECORD_BYTES;
use super::seal::{self, Sealed};
use super::state::StrataState;
use super::view::View;
use crate::Result;

/// A log file is compacted when this percentage of its pages is gone.
const GONE_PERCENT: u64 = 50;
/// Bytes of cache for the lookups that tell which records are the newest.
const CACHE_BYTES: usize = 1 << 18;
/// Log pages that are read at once.
const READ_PAGES: u32 = 16;

/// Bytes of a record in the log and in a run.
const RECORD_BYTES: u64 = 32 + RUN_RECORD_BYTES;

/// Compacts log files that are due and have at most `most` records. The caller holds the merge lock.
pub fn compact_locked(shared: &StrataState, gone: &mut KnownGone, most: u64) -> Result<bool> {
    let view = shared.refresh()?;
    let most = most.min(shared.room_bytes() / RECORD_BYTES);
    let places = due(&view, gone, &shared.plan, most)?;
    let logs: Vec<Arc<OpenLog>> = places
        .iter()
        .map(|place| Arc::clone(&view.logs[*place]))
        .collect();
    if logs.is_empty() {
        return Ok(false);
    }
    let records: u64 = logs.iter().map(|log| log.entry.records).sum();
    let mut sealed = Vec::new();
    let compacted = compact(shared, view, &logs, &mut sealed);
    let compacted = shared.note_room(records * RECORD_BYTES, compacted);
    if !matches!(compacted, Ok(true)) {
        let names: Vec<String> = sealed.iter().flat_map(Sealed::names).collect();
        shared.folder.remove_unentered(&names);
    }
    compacted
}

/// The positions of the log files to compact, with at most `most` records: one file that is mostly gone, or small files
/// that cannot be joined with any other.
fn due(view: &View, gone: &mut KnownGone, plan: &RamPlan, most: u64) -> Result<Vec<usize>> {
    if !view.retired.is_empty() {
        let gone = gone.of(view)?;
        let is_due = |place: &usize| {
            let log = view.logs[*place].entry;
            let within = gone.pages_within(log.first_page..log.end_page());
            let percent = within * 100 / u64::from(log.pages.max(1));
            let live = log.records / 100 * 100u64.saturating_sub(percent);
            // the sealed copy needs places among the runs
            let runs = view.runs.len() as u64 + live / plan.tail_records as u64;
            percent >= GONE_PERCENT
                && runs < RUNS_MANY as u64
                && log.records <= most
                && !gone.logs.contains(place)
        };
        if let Some(place) = (0..view.logs.len()).find(is_due) {
            return Ok(vec![place]);
        }
    }
    let logs = &view.manifest.logs;
    let mut small = scattered(logs, plan.tail_records);
    if small.iter().map(|place| logs[*place].records).sum::<u64>() > most {
        small.clear();
    }
    Ok(small)
}

/// Replaces log files by a copy of their live records. `sealed` receives the new files; `false`: they were not entered.
/// The view is dropped before the new files are entered: RAM has no room for the filters of both.
fn compact(
    shared: &StrataState,
    view: Arc<View>,
    logs: &[Arc<OpenLog>],
    sealed: &mut Vec<Sealed>,
) -> Result<bool> {
    if !seal_live(shared, &view, logs, sealed)? {
        return Ok(false);
    }
    let (born, before) = (view.manifest.born, view.manifest.next_page);
    drop(view);
    let mut entered = false;
    shared.folder.commit(|manifest| {
        let room = manifest.runs.len() + sealed.len() <= RUNS_MAX;
        if !room
            || manifest.born != born
            || manifest.next_page != before
            || !logs.iter().all(|log| manifest.logs.contains(&log.entry))
        {
            return Ok(false);
        }
        let is_old = |entry: &LogEntry| logs.iter().any(|log| log.entry == *entry);
        manifest.logs.retain(|entry| !is_old(entry));
        entered = true;
        for sealed in sealed.iter() {
            entered &= sealed.enter(manifest)?;
        }
        Ok(entered)
    })?;
    if entered {
        let names: Vec<String> = logs.iter().map(|log| log.path.clone()).collect();
        shared.let_go(&names)?;
    }
    Ok(entered)
}

/// Seals the records that [`live_records`] finds on all pages of log files, a tail's worth at once, into `sealed`.
/// Returns `false` where the index is being closed.
fn seal_live(
    shared: &StrataState,
    view: &View,
    logs: &[Arc<OpenLog>],
    sealed: &mut Vec<Sealed>,
) -> Result<bool> {
    let lookups = Lookups::of(view, CACHE_BYTES, shared.plan.batch_pages);
    let mut live = Vec::new();
    let mut seal = |live: &mut Vec<(Fingerprint, Said)>| -> Result<()> {
        if !live.is_empty() {
            // the first seal stands behind the loose pages; a tail's worth has a run, so no loose page precedes the
            // next seal
            let none = Loose::default();
            let loose = if sealed.is_empty() {
                &view.loose
            } else {
                &none
            };
            sealed.push(seal::seal(
                shared,
                loose,
                view.records(),
                live.iter(),
                None,
            )?);
            live.clear();
        }
        Ok(())
    };
    let records: u64 = logs.iter().map(|log| log.entry.records).sum();
    for log in logs {
        for first in (0..log.entry.pages).step_by(READ_PAGES as usize) {
            if shared.is_closing() && records > shared.copies_at_most() {
                return Ok(false);
            }
            live_records(view, &lookups, log, first, &mut live)?;
            if live.len() >= shared.plan.tail_records {
                seal(&mut live)?;
            }
        }
    }
    seal(&mut live)?;
    Ok(true)
}

/// Adds to `live` the newest records of some pages of a log file, from page `first` on, whose container is not retired.
/// Removals are added where older records may still need them.
fn live_records(
    view: &View,
    lookups: &Lookups,
    log: &OpenLog,
    first: u32,
    live: &mut Vec<(Fingerprint, Said)>,
) -> Result<()> {
    let met = view.manifest.runs.first().map_or(0, |run| run.end_page);
    let keep_removals = log.entry.end_page() > met;
    let pages = READ_PAGES.min(log.entry.pages - first);
    let mut buf = Vec::new();
    log::read_pages(&*log.disk, log.named(), first, pages as usize, &mut buf)?;
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
        let newest = are_newest(view, lookups, number, &records)?;
        let kept = records.into_iter().zip(newest);
        live.extend(kept.filter(|(_, newest)| *newest).map(|(record, _)| record));
    }
    Ok(())
}

/// For each of `records`, all of log page `number`: whether it is the newest of its fingerprint.
fn are_newest(
    view: &View,
    lookups: &Lookups,
    number: u32,
    records: &[(Fingerprint, Said)],
) -> Result<Vec<bool>> {
    let sure = |key: &Fingerprint| view.is_newest(number, key);
    let mut newest: Vec<bool> = records.iter().map(|(key, _)| sure(key)).collect();
    let doubtful: Vec<_> = records
        .iter()
        .enumerate()
        .filter(|(i, _)| !newest[*i])
        .map(|(i, (key, _))| (i, *key))
        .collect();
    let mut answers = vec![None; records.len()];
    let mut lookup = lookups.begin(view);
    let resolved = lookup.resolve(&doubtful, &mut answers);
    lookups.end(lookup);
    resolved?;
    for (i, _) in doubtful {
        newest[i] = match (records[i].1, answers[i]) {
            (Some(_), answer) => answer.is_some_and(|answer| answer.page == number),
            (None, answer) => answer.is_none(),
        };
    }
    Ok(newest)
}
