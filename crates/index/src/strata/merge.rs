//! Merging: neighbouring runs of one size become one, and what nobody can ask for any more is dropped.
//!
//! The newest runs become one as soon as they are so many at least, and the oldest of them is no larger than such a part of the others together, as many as fulfil it: see [`FAN_IN`]. So runs of a
//! size are merged by four to thirteen or so, and a merge takes in what it would soon meet anyway. The smaller an index is, counted in tails, the less often its records were written yet, so the sooner
//! it merges. By simulation it has 5 runs in the mean up to 100 tails, 8 at most; 7.5 up to 400; 12 up to 1500 (0.7 bytes of RAM a key), 21 at most; and each record was written
//! 4.2 times at most to a run, 4.75 up to 2200 tails. That is what bounds write amplification: `(2 × 32.5 + 20.6 × 4.2) / 52 = 2.9`, the log being written twice, because tail-sized log
//! files are put together once. Thirteen runs and 35 % whatever the size, as was done before, is 8 runs in a small index and 9.5 up to 400 tails, 11 and a quarter fewer false reads up to 1500, and
//! writes 4.35 times (3.04 in all, measured at 200 million keys).
//! Always holds: only neighbours in age are merged, and the result takes their
//! place; of records of one hash the newest stays, and the pages of the others are marked dead, because a cached page must not be believed on them.
//! A removal is kept until it meets the oldest run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compact;
use super::log::PAGE_RECORDS_MAX as LOG_RECORDS_MAX;
use super::manifest::{FileId, LogEntry, Manifest, RunEntry};
use super::run::RunReader;
use super::run_page::RunRecord;
use super::run_writer::RunWriter;
use super::seal::LogWriter;
use super::shared::Shared;
use super::spans::{LogSpan, read_spans};
use super::view::View;
use crate::{ContainerId, Result};

/// While all runs have no more records than so many tails: runs that are merged, at least, and how many records the oldest of them has at most for 100 of the others.
const FAN_IN: [(u64, usize, u64); 4] = [
    (100, 4, 35),
    (520, 8, 35),
    (1000, 13, 30),
    (u64::MAX, 10, 19),
];
/// Smaller runs count as if they had so many records.
const RUN_RECORDS_MIN: u64 = 2048;
/// Log files that are put together, at least, where none is larger than two tails: so each record of the log is written twice, not more often.
const TAIL_LOGS: usize = 100;
/// Log files below [`SMALL_LOG_PAGES`], 16 MiB, that are put together whatever their size: a billion records are then some hundred files.
const SMALL_LOGS: usize = 128;
const SMALL_LOG_PAGES: u32 = 4096;
/// A run is written anew when this share of what it speaks of is gone, in percent.
const GONE_PERCENT: u64 = 30;

/// Does what is due, one thing at once: drops what retired containers leave, merges runs, compacts a log file. `false`: nothing was due, or somebody else merges.
pub fn merge_once(shared: &Shared) -> Result<bool> {
    match shared.folder.try_merge_lock()? {
        Some(_merging) => merge_locked(shared),
        None => Ok(false),
    }
}

/// As [`merge_once`], after whoever merges now.
pub fn merge_waiting(shared: &Shared) -> Result<bool> {
    let _merging = shared.folder.merge_lock()?;
    merge_locked(shared)
}

fn merge_locked(shared: &Shared) -> Result<bool> {
    let retires = !shared.view().retired.is_empty();
    Ok(retires && drop_retired(shared)?
        || merge_runs(shared)?
        || retires && compact::compact_locked(shared)?)
}

fn merge_runs(shared: &Shared) -> Result<bool> {
    let view = shared.refresh()?.without_filters();
    let gone = gone_pages(&view)?;
    let tail_records = shared.plan.tail_records as u64;
    let Some(group) = choose(&view.manifest, &gone.pages, tail_records) else {
        return Ok(false);
    };
    let Some(merged) = write_merged(shared, &view, group.clone(), &gone)? else {
        return Ok(false);
    };
    let tail_pages = (shared.plan.tail_records / LOG_RECORDS_MAX + 1) as u32;
    let small = small_logs(
        &view.manifest,
        &view.manifest.runs[group.clone()],
        tail_pages,
    );
    let joined = small
        .clone()
        .map(|logs| join_logs(shared, &view, logs))
        .transpose()?;
    let inputs: Vec<FileId> = view.manifest.runs[group].iter().map(|run| run.id).collect();
    let old_logs: Vec<FileId> = small
        .map(|logs| view.manifest.logs[logs].iter().map(|log| log.id).collect())
        .unwrap_or_default();
    let manifest = shared.folder.commit(|manifest| {
        let Some(at) = manifest.runs.iter().position(|run| run.id == inputs[0]) else {
            return Ok(false);
        };
        manifest.runs.splice(at..at + inputs.len(), [merged]);
        if let Some(joined) = joined {
            let at = manifest
                .logs
                .iter()
                .position(|log| log.id == old_logs[0])
                .expect("logs change under the merge lock only");
            manifest.logs.splice(at..at + old_logs.len(), [joined]);
        }
        Ok(true)
    })?;
    if !manifest.runs.iter().any(|run| run.id == merged.id) {
        // somebody deleted the index meanwhile
        let names =
            std::iter::once(merged.id.run_name()).chain(joined.map(|log| log.id.log_name()));
        shared.folder.remove(&names.collect::<Vec<_>>())?;
        return Ok(false);
    }
    shared.refresh()?;
    let names = inputs
        .iter()
        .map(|id| id.run_name())
        .chain(old_logs.iter().map(|id| id.log_name()));
    shared.folder.remove(&names.collect::<Vec<_>>())?;
    Ok(true)
}

/// Drops log files that speak of retired containers only, and forgets the retired that no log speaks of.
fn drop_retired(shared: &Shared) -> Result<bool> {
    let view = shared.refresh()?;
    let gone = gone_pages(&view)?;
    let logs: HashSet<FileId> = gone
        .logs
        .iter()
        .map(|log| view.manifest.logs[*log].id)
        .collect();
    let mut dropped = false;
    shared.folder.commit(|manifest| {
        // a log that came after the view may speak of them
        let is_same =
            manifest.born == view.manifest.born && manifest.next_page == view.manifest.next_page;
        let forgotten = is_same && !gone.forgotten.is_empty();
        if forgotten {
            manifest
                .retired
                .retain(|container| !gone.forgotten.contains(container));
        }
        manifest.logs.retain(|log| !logs.contains(&log.id));
        dropped = forgotten || !logs.is_empty();
        Ok(dropped)
    })?;
    if dropped {
        shared.refresh()?;
        shared
            .folder
            .remove(&logs.iter().map(|id| id.log_name()).collect::<Vec<_>>())?;
    }
    Ok(dropped)
}

/// What of the log nobody can ask for any more.
pub struct Gone {
    /// Ranges of log pages: retired as a whole, or their file was dropped.
    pub pages: Vec<Range<u32>>,
    /// Log files all of whose pages are such, as places in the manifest.
    pub logs: Vec<usize>,
    /// Retired containers that no page speaks of, those of `logs` not counted.
    forgotten: HashSet<ContainerId>,
}

/// See [`Gone`].
pub fn gone_pages(view: &View) -> Result<Gone> {
    let mut gone = Gone {
        pages: Vec::new(),
        logs: Vec::new(),
        forgotten: view.retired.clone(),
    };
    // removals have met every older record once they are in the oldest run
    let met = view.manifest.runs.first().map_or(0, |run| run.end_page);
    let mut end = 0;
    for (place, log) in view.logs.iter().enumerate() {
        gone.pages
            .extend((end < log.entry.first_page).then_some(end..log.entry.first_page));
        end = log.entry.end_page();
        if view.retired.is_empty() {
            continue;
        }
        let spans = read_spans(&log.entry, &log.path, &*log.disk)?;
        let is_live = |span: &&LogSpan| match span.said {
            Some(container) => !view.retired.contains(&container),
            None => end > met,
        };
        let live: Vec<(u32, u32)> = spans
            .iter()
            .filter(is_live)
            .map(|span| (span.first, span.last))
            .collect();
        if live.is_empty() {
            gone.logs.push(place);
        } else {
            for container in spans.iter().filter_map(|span| span.said) {
                gone.forgotten.remove(&container);
            }
        }
        let mut from = 0;
        for (first, last) in live.into_iter().chain([(log.entry.pages, log.entry.pages)]) {
            gone.pages.extend(
                (from < first).then(|| log.entry.first_page + from..log.entry.first_page + first),
            );
            from = from.max(last.saturating_add(1));
        }
    }
    gone.pages
        .extend((end < view.manifest.next_page).then_some(end..view.manifest.next_page));
    Ok(gone)
}

/// The runs to merge: the newest ones, as many as the module says, or one of whose pages too many are gone.
fn choose(manifest: &Manifest, gone: &[Range<u32>], tail_records: u64) -> Option<Range<usize>> {
    let runs = &manifest.runs;
    let sizes: Vec<u64> = runs.iter().map(|run| run.records).collect();
    if let Some(from) = due(&sizes, tail_records) {
        return Some(from..runs.len());
    }
    let too_much = |run: &RunEntry| {
        let within = gone.iter().map(|pages| {
            u64::from(
                pages
                    .end
                    .min(run.end_page)
                    .saturating_sub(pages.start.max(run.first_page)),
            )
        });
        run.records > 0
            && within.sum::<u64>() * 100 > u64::from(run.end_page - run.first_page) * GONE_PERCENT
            && may_shrink(run)
    };
    runs.iter().position(too_much).map(|run| run..run + 1)
}

/// Where the runs begin that are to become one, by the records of all runs from the oldest on.
fn due(runs: &[u64], tail_records: u64) -> Option<usize> {
    let all: u64 = runs.iter().sum();
    let fits = |(tails, ..): &&(u64, usize, u64)| all <= tail_records.saturating_mul(*tails);
    let (_, fan_in, oldest_percent) = FAN_IN
        .iter()
        .find(fits)
        .unwrap_or(&FAN_IN[FAN_IN.len() - 1]);
    let (mut from, mut newer) = (None, 0);
    for (place, records) in runs.iter().enumerate().rev() {
        let records = *records.max(&RUN_RECORDS_MIN);
        if runs.len() - place >= *fan_in && records * 100 <= newer * oldest_percent {
            from = Some(place);
        }
        newer += records;
    }
    from
}

/// A run that was written anew has fewer records than its pages had, so that it isn't chosen again for the same reason.
fn may_shrink(run: &RunEntry) -> bool {
    run.records > u64::from(run.end_page - run.first_page) * 127 * (100 - GONE_PERCENT) / 100
}

/// Writes the merged run; `None` where the index is being closed.
fn write_merged(
    shared: &Shared,
    view: &View,
    group: Range<usize>,
    gone: &Gone,
) -> Result<Option<RunEntry>> {
    let entries = &view.manifest.runs[group.clone()];
    let (first_page, end_page) = (entries[0].first_page, entries[entries.len() - 1].end_page);
    let oldest = group.start == 0;
    let upper: u64 = entries.iter().map(|run| run.records).sum();
    let file = shared.folder.create_run()?;
    let bits = shared.plan.filter_bits(view.manifest.records(), upper);
    let mut writer = RunWriter::new(
        Arc::clone(&file.disk),
        upper,
        end_page - first_page,
        shared.plan.partition_records,
        bits,
    );
    let mut dead = inherited_dead(view, group.clone(), first_page);
    let is_gone = |page: u32| {
        let behind = gone.pages.partition_point(|pages| pages.start <= page);
        behind > 0 && gone.pages[behind - 1].contains(&page)
    };
    let mut sources = Sources::new(view, group, first_page, shared.plan.merge_pages)?;
    while sources.next()? {
        let stays = sources
            .same
            .iter()
            .position(|record| !is_gone(first_page.saturating_add(record.page)));
        let others = (0..)
            .zip(&sources.same)
            .filter(|(place, _)| Some(*place) != stays);
        dead.extend(others.map(|(_, record)| record.page));
        if let Some(record) = stays
            .map(|place| sources.same[place])
            .filter(|record| !(record.removed && oldest))
        {
            writer.push(record)?;
        }
        if sources.taken % 65_536 == 0 && shared.stop.load(Ordering::Relaxed) {
            shared.folder.remove(&[file.name])?;
            return Ok(None);
        }
    }
    dead.sort_unstable();
    dead.dedup();
    dead.retain(|page| !is_gone(first_page.saturating_add(*page)));
    let written = writer.finish(&dead)?;
    shared
        .written
        .fetch_add(written.file_bytes, Ordering::Relaxed);
    Ok(Some(RunEntry {
        id: file.id,
        first_page,
        end_page,
        records: written.records,
        footer_at: written.footer_at,
        file_bytes: written.file_bytes,
    }))
}

fn inherited_dead(view: &View, group: Range<usize>, first_page: u32) -> Vec<u32> {
    let entries = view.manifest.runs[group.clone()]
        .iter()
        .zip(&view.runs[group]);
    entries
        .flat_map(|(entry, run)| {
            run.dead_pages
                .iter()
                .map(move |page| (entry.first_page - first_page).saturating_add(*page))
        })
        .collect()
}

/// The runs of a group, read side by side.
struct Sources {
    readers: Vec<RunReader>,
    /// What is to be added to a reader's pages.
    shifts: Vec<u32>,
    heads: BinaryHeap<Reverse<Head>>,
    /// The records of one hash, newest first.
    same: Vec<RunRecord>,
    taken: u64,
}

/// The next record of a source; of one hash the newest source comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    hash: u64,
    source: Reverse<usize>,
    record: RunRecord,
}

impl Sources {
    /// Which hold `pages` pages in all.
    fn new(view: &View, group: Range<usize>, first_page: u32, pages: usize) -> Result<Sources> {
        // each has the records of a page besides, decoded
        let each = (pages / group.len()).saturating_sub(2);
        let readers = view.runs[group.clone()]
            .iter()
            .map(|run| RunReader::new(Arc::clone(run), each))
            .collect::<Vec<_>>();
        let shifts = view.manifest.runs[group]
            .iter()
            .map(|run| run.first_page - first_page)
            .collect();
        let mut sources = Sources {
            heads: BinaryHeap::with_capacity(readers.len()),
            readers,
            shifts,
            same: Vec::new(),
            taken: 0,
        };
        (0..sources.readers.len()).try_for_each(|source| sources.pull(source))?;
        Ok(sources)
    }

    /// Fills `same` with the records of the next hash; `false` at the end.
    fn next(&mut self) -> Result<bool> {
        self.same.clear();
        let Some(hash) = self.heads.peek().map(|Reverse(head)| head.hash) else {
            return Ok(false);
        };
        while let Some(Reverse(head)) = self
            .heads
            .peek()
            .copied()
            .filter(|Reverse(head)| head.hash == hash)
        {
            self.heads.pop();
            self.same.push(head.record);
            self.pull(head.source.0)?;
        }
        self.taken += 1;
        Ok(true)
    }

    fn pull(&mut self, source: usize) -> Result<()> {
        if let Some(mut record) = self.readers[source].next()? {
            record.page = record.page.saturating_add(self.shifts[source]);
            self.heads.push(Reverse(Head {
                hash: record.hash,
                source: Reverse(source),
                record,
            }));
        }
        Ok(())
    }
}

/// Neighbouring small log files that the merged runs speak of, if there are enough of them.
fn small_logs(manifest: &Manifest, runs: &[RunEntry], tail_pages: u32) -> Option<Range<usize>> {
    let within = |page: u32| {
        runs.first().is_some_and(|run| page >= run.first_page)
            && runs.last().is_some_and(|run| page < run.end_page)
    };
    let neighbours = |pages_max: u32, least: usize| {
        let other = |log: &LogEntry| !within(log.first_page) || log.pages > pages_max;
        let from = manifest
            .logs
            .iter()
            .rposition(other)
            .map_or(0, |other| other + 1);
        let logs = &manifest.logs[from..];
        let adjacent = logs
            .windows(2)
            .all(|pair| pair[0].end_page() == pair[1].first_page);
        (logs.len() >= least && adjacent).then_some(from..manifest.logs.len())
    };
    neighbours(tail_pages * 2, TAIL_LOGS).or_else(|| neighbours(SMALL_LOG_PAGES, SMALL_LOGS))
}

fn join_logs(shared: &Shared, view: &View, logs: Range<usize>) -> Result<LogEntry> {
    let first_page = view.manifest.logs[logs.start].first_page;
    let at_once = shared.plan.merge_pages / 2;
    let mut writer = LogWriter::new(shared.folder.create_log()?, at_once);
    let mut buf = Vec::new();
    for log in &view.logs[logs] {
        for first in (0..log.entry.pages).step_by(at_once) {
            let pages = (at_once as u32).min(log.entry.pages - first);
            super::log::read_pages(&*log.disk, &log.path, first, pages as usize, &mut buf)?;
            writer.copy(&buf)?;
        }
        writer.records += log.entry.records;
    }
    let joined = writer.finish()?;
    shared
        .written
        .fetch_add(joined.file_bytes, Ordering::Relaxed);
    Ok(LogEntry {
        first_page,
        ..joined
    })
}

#[cfg(test)]
mod tests {
    use super::due;

    /// Runs in the tail's size, merged as they come: how often each record was written to a run, and the most runs there were.
    fn grow(tails: u64) -> (f64, usize) {
        let (mut runs, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..tails {
            runs.push(10_000);
            written += 10_000;
            while let Some(from) = due(&runs, 10_000) {
                let merged = runs.drain(from..).sum();
                written += merged;
                runs.push(merged);
            }
            most = most.max(runs.len());
        }
        (written as f64 / (tails * 10_000) as f64, most)
    }

    #[test]
    fn write_amplification_and_the_number_of_runs_are_bounded() {
        for tails in (5..100).chain((100..2200).step_by(7)) {
            let (written, most) = grow(tails);
            let amplification = (2.0 * 32.5 + 20.6 * written) / 52.0;
            let (limit, runs) = match tails {
                0..=100 => (2.66, 8),
                101..=1500 => (2.92, 22),
                _ => (3.23, 22),
            };
            assert!(amplification <= limit, "{tails} tails: {amplification}");
            assert!(most <= runs, "{tails} tails: {most} runs");
        }
    }

    #[test]
    fn runs_of_any_sizes_are_few() {
        let mut runs = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            runs.push(1 << (random >> 60));
            while let Some(from) = due(&runs, 1000) {
                let merged = runs.drain(from..).sum();
                runs.push(merged);
            }
            assert!(runs.len() < 40, "{runs:?}");
        }
    }
}
