//! Merging: neighbouring runs become one ([`choose`](super::choose) says which), and records that no lookup can need
//! are dropped. Small log files are joined ([`join`](super::join)), and mostly retired ones compacted
//! ([`compact`](super::compact)).
//!
//! Invariant: one merge at a time, by any opener; only neighbours in age are merged, and the result takes their
//! place in one commit of the manifest, after which their files are removed. A crash leaves at most a file that no
//! manifest names.

use std::ops::Range;

use super::choose::choose;
use super::compact;
use super::gone::{GoneParts, KnownGone};
use super::join;
use super::manifest::{FileId, LogEntry, place_of};
use super::merged_run::write_merged;
use super::run_writer::RUN_RECORD_BYTES;
use super::state::{StrataState, is_no_space};
use super::view::View;
use crate::Result;

/// Does one piece of the work that is due: drops files of retired containers, merges runs, joins or compacts log files.
/// Returns `false` where nothing was due, or another opener merges.
///
/// In the merging thread (`in_thread`) no work larger than [`StrataState::merges_at_most`] and [`StrataState::copies_at_most`] is
/// begun.
pub fn merge_once(shared: &StrataState, in_thread: bool) -> Result<bool> {
    match shared.folder.try_merge_lock()? {
        Some(_merging) if in_thread => {
            merge_locked(shared, shared.merges_at_most(), shared.copies_at_most())
        }
        Some(_merging) => merge_locked(shared, u64::MAX, u64::MAX),
        None => Ok(false),
    }
}

/// Does all work that is due, or until another opener merges.
pub fn merge_all(shared: &StrataState, in_thread: bool) -> Result<()> {
    while merge_once(shared, in_thread)? {}
    Ok(())
}

/// Like [`merge_once`], but waits for a merge by another opener to end.
pub fn merge_waiting(shared: &StrataState) -> Result<bool> {
    let _merging = shared.folder.merge_lock()?;
    merge_locked(shared, u64::MAX, u64::MAX)
}

/// Does one piece of work of at most `merges` records of runs, or `copies` records of log files.
fn merge_locked(shared: &StrataState, merges: u64, copies: u64) -> Result<bool> {
    let mut gone = KnownGone::default();
    let retires = !shared.view().retired.is_empty();
    Ok(retires && drop_retired(shared, &mut gone)?
        || merge_runs(shared, &mut gone, merges)?
        || join::join_locked(shared, copies)?
        || compact::compact_locked(shared, &mut gone, copies)?)
}

/// Merges runs of at most `most` records. Where the device has no room for the runs that are due, fewer are merged.
fn merge_runs(shared: &StrataState, gone: &mut KnownGone, most: u64) -> Result<bool> {
    let view = shared.refresh()?.without_filters();
    let gone = gone.of(&view)?;
    let tail_records = shared.plan.tail_records as u64;
    let mut merged = Ok(false);
    loop {
        let most = most.min(shared.room_bytes() / RUN_RECORD_BYTES);
        let vain = shared.vain.lock().clone();
        let Some(group) = choose(&view.manifest, gone, &vain, tail_records, most) else {
            return merged;
        };
        let entries = &view.manifest.runs[group.clone()];
        let records: u64 = entries.iter().map(|run| run.records).sum();
        let mut made = Vec::new();
        merged = merge_group(shared, &view, gone, group, &mut made);
        if !matches!(merged, Ok(true)) {
            shared.folder.remove_unentered(&made);
        }
        merged = shared.note_room(records * RUN_RECORD_BYTES, merged);
        if records == 0 || !merged.as_ref().is_err_and(is_no_space) {
            return merged;
        }
    }
}

/// Replaces a group of runs by one. `made` receives its name; `false`: the run was not entered.
fn merge_group(
    shared: &StrataState,
    view: &View,
    gone: &GoneParts,
    group: Range<usize>,
    made: &mut Vec<String>,
) -> Result<bool> {
    let file = shared.folder.create_run()?;
    made.push(file.name.clone());
    let Some(merged) = write_merged(shared, view, group.clone(), gone, file)? else {
        return Ok(false);
    };
    let entries = &view.manifest.runs[group];
    let inputs: Vec<FileId> = entries.iter().map(|run| run.id).collect();
    if entries.len() == 1 && merged.records == entries[0].records {
        // no record of the run was gone, though log pages were
        shared.vain.lock().insert(entries[0].id);
        return Ok(false);
    }
    let manifest = shared.folder.commit(|manifest| {
        // perhaps the merge lock was deleted while held and another opener merged, too
        let Some(runs) = place_of(&manifest.runs, &inputs, |run| run.id) else {
            return Ok(false);
        };
        manifest.runs.splice(runs, [merged]);
        Ok(true)
    })?;
    if !manifest.runs.iter().any(|run| run.id == merged.id) {
        // another opener deleted the index meanwhile
        return Ok(false);
    }
    let names: Vec<String> = inputs.iter().map(FileId::run_name).collect();
    shared.let_go(&names)?;
    Ok(true)
}

/// Drops log files all of whose records are retired, and forgets retired containers that no log speaks of.
fn drop_retired(shared: &StrataState, gone: &mut KnownGone) -> Result<bool> {
    let view = shared.refresh()?.without_filters();
    let gone = gone.of(&view)?;
    let logs: Vec<LogEntry> = gone
        .logs
        .iter()
        .map(|log| view.manifest.logs[*log])
        .collect();
    let mut names = Vec::new();
    let mut dropped = false;
    shared.folder.commit(|manifest| {
        // a log entered after the view was taken may speak of these containers
        let is_same =
            manifest.born == view.manifest.born && manifest.next_page == view.manifest.next_page;
        let forgotten = is_same && !gone.forgotten.is_empty();
        if forgotten {
            manifest
                .retired
                .retain(|container| !gone.forgotten.contains(container));
        }
        // a log file that has grown meanwhile stays
        let going = manifest.logs.extract_if(.., |log| logs.contains(log));
        names.extend(going.map(|log| log.id.log_name()));
        dropped = forgotten || !names.is_empty();
        Ok(dropped)
    })?;
    if dropped {
        shared.let_go(&names)?;
    }
    Ok(dropped)
}
