//! Merging: neighbouring runs become one ([`choose`](super::choose) says which), small log files are put together, and what nobody can ask for any more is dropped.
//!
//! Always holds: one merge at a time, whoever does it; only neighbours in age are merged, and the result takes their place in one commit of the manifest, after which their files go. What a crash leaves
//! behind is a file that no manifest names.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::choose::choose;
use super::compact;
use super::gone::{Gone, gone_pages};
use super::log::PAGE_RECORDS_MAX as LOG_RECORDS_MAX;
use super::manifest::{FileId, LogEntry, Manifest, RunEntry};
use super::merged_run::write_merged;
use super::seal::LogWriter;
use super::shared::Shared;
use super::view::View;
use crate::Result;

/// Log files that are put together, at least, where none is larger than two tails: so each record of the log is written twice, not more often.
const TAIL_LOGS: usize = 100;
/// Log files below [`SMALL_LOG_PAGES`], 16 MiB, that are put together whatever their size: a billion records are then some hundred files.
const SMALL_LOGS: usize = 128;
const SMALL_LOG_PAGES: u32 = 4096;

/// Does what is due, one thing at once: drops what retired containers leave, merges runs, compacts a log file. `false`: nothing was due, or somebody else merges.
pub fn merge_once(shared: &Shared) -> Result<bool> {
    match shared.folder.try_merge_lock()? {
        Some(_merging) => merge_locked(shared),
        None => Ok(false),
    }
}

/// Does all that is due, until somebody else merges.
pub fn merge_all(shared: &Shared) -> Result<()> {
    while merge_once(shared)? {}
    Ok(())
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
    let mut made = Vec::new();
    let merged = merge_group(shared, &view, &gone, group, &mut made);
    if !matches!(merged, Ok(true)) {
        shared.folder.remove_unentered(&made);
    }
    merged
}

/// Puts one run in the place of a group, and one log file in that of small ones. `made` tells the new files; `false`: they were not entered.
fn merge_group(
    shared: &Shared,
    view: &View,
    gone: &Gone,
    group: Range<usize>,
    made: &mut Vec<String>,
) -> Result<bool> {
    let file = shared.folder.create_run()?;
    made.push(file.name.clone());
    let Some(merged) = write_merged(shared, view, group.clone(), gone, file)? else {
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
        .map(|logs| join_logs(shared, view, logs, made))
        .transpose()?;
    let inputs: Vec<FileId> = view.manifest.runs[group].iter().map(|run| run.id).collect();
    let old_logs: Vec<FileId> = small
        .map(|logs| view.manifest.logs[logs].iter().map(|log| log.id).collect())
        .unwrap_or_default();
    let manifest = shared.folder.commit(|manifest| {
        // the merge's lock was deleted while it was held, perhaps, and another has merged too
        let Some(runs) = place_of(&manifest.runs, &inputs, |run| run.id) else {
            return Ok(false);
        };
        if let Some(joined) = joined {
            let Some(logs) = place_of(&manifest.logs, &old_logs, |log| log.id) else {
                return Ok(false);
            };
            manifest.logs.splice(logs, [joined]);
        }
        manifest.runs.splice(runs, [merged]);
        Ok(true)
    })?;
    if !manifest.runs.iter().any(|run| run.id == merged.id) {
        // somebody deleted the index meanwhile
        return Ok(false);
    }
    let names = inputs
        .iter()
        .map(|id| id.run_name())
        .chain(old_logs.iter().map(|id| id.log_name()));
    shared.let_go(&names.collect::<Vec<_>>())?;
    Ok(true)
}

/// Where all files of `ids` stand in `entries`, one behind the other.
fn place_of<T>(
    entries: &[T],
    ids: &[FileId],
    id_of: impl Fn(&T) -> FileId,
) -> Option<Range<usize>> {
    let at = entries.iter().position(|entry| id_of(entry) == ids[0])?;
    let found = entries.get(at..at + ids.len())?;
    let same = found.iter().zip(ids).all(|(entry, id)| id_of(entry) == *id);
    same.then_some(at..at + ids.len())
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
        shared.let_go(&logs.iter().map(|id| id.log_name()).collect::<Vec<_>>())?;
    }
    Ok(dropped)
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

fn join_logs(
    shared: &Shared,
    view: &View,
    logs: Range<usize>,
    made: &mut Vec<String>,
) -> Result<LogEntry> {
    let first_page = view.manifest.logs[logs.start].first_page;
    let at_once = shared.plan.merge_pages / 2;
    let file = shared.folder.create_log()?;
    made.push(file.name.clone());
    let mut writer = LogWriter::new(file, at_once);
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
    use super::*;

    #[test]
    fn files_have_a_place_only_where_all_of_them_still_stand_side_by_side() {
        let id = |number| FileId { unique: 1, number };
        let entries = [1, 2, 3, 4].map(id);
        let place = |ids: &[u32]| {
            let ids: Vec<_> = ids.iter().copied().map(id).collect();
            place_of(&entries, &ids, |id| *id)
        };
        assert_eq!(place(&[2, 3]), Some(1..3));
        for merged_by_others in [&[2, 4][..], &[4, 5], &[5, 6]] {
            assert_eq!(place(merged_by_others), None);
        }
    }
}
