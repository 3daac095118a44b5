//! Joining: small log files become one, so that they stay few, because every opener keeps each of them open. One opener
//! adds to its own log file until that is large ([`seal`](super::seal)), so small files come from openers that inserted
//! little, or took turns.
//!
//! Invariant: pages keep their numbers, so no run changes. Where a log file between two others was dropped, the
//! joined file has pages without records in its place, a hole. Holes take at most half as many pages as the file's
//! records, and twice as many as those where there are too many files. Runs and caches may still speak of pages that
//! are holes now: lookups ignore such run records ([`View::log_of`]), and cached pages of another file are forgotten
//! ([`Lookups::follow`](super::lookup::Lookups::follow)).
//!
//! There are at most [`LARGE_LOGS`] large files and [`SMALL_LOGS_MAX`] small ones, and besides them files that nothing
//! can be joined with, because wide gaps lie before and behind them. The smallest of those are moved together by
//! [`compact`](super::compact). Each record of a small session is therefore written twice, and once more where sessions
//! are very small or the index is very large.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::log::{PAGE_RECORDS_MAX, read_pages};
use super::log_writer::LogWriter;
use super::manifest::{LogEntry, place_of};
use super::open_log::OpenLog;
use super::page::PAGE_BYTES;
use super::state::StrataState;
use crate::Result;

/// Neighbours no larger than two tails are joined once there are this many, so that each of their records is written
/// twice and not more often.
const TAIL_LOGS: usize = 100;
/// Small neighbours are joined once there are this many.
const SMALL_LOGS: usize = 128;
/// Above this number of small files, the longest row of neighbours is joined, however few they are.
const SMALL_LOGS_MAX: usize = 256;
/// Largest number of pages in holes for 100 pages with records.
const HOLES_PERCENT: u64 = 50;
/// Largest number of pages in holes for 100 others, where there are more than [`SMALL_LOGS_MAX`] small files.
const HOLES_PERCENT_MAX: u64 = 200;
/// A file below 16 MiB is never large.
const LARGE_LOG_PAGES: u32 = 4096;
/// A file is small if it holds less than one part in this many of all log pages.
const LARGE_LOGS: u64 = 512;
/// At this number of log files, an opener that has inserted something joins some at any cost.
const LOGS_MANY: usize = 400;
/// Small files that nothing can be joined with are moved if at least this many have no more records than
/// [`SCATTERED_TAILS`] tails.
const SCATTERED_LOGS: usize = 16;
const SCATTERED_TAILS: u64 = 4;

/// Joins some log files of at most `most` records, if a join is due. The caller holds the merge lock.
pub fn join_locked(shared: &StrataState, most: u64) -> Result<bool> {
    let view = shared.refresh()?.without_filters();
    let logs = &view.manifest.logs;
    let bytes = |chosen: &Range<usize>| {
        let pages = logs[chosen.end - 1].end_page() - logs[chosen.start].first_page;
        u64::from(pages) * PAGE_BYTES as u64
    };
    let fits = |chosen: &Range<usize>| {
        // copying costs a fraction of merging; too many files are reduced at any cost
        let records: u64 = logs[chosen.clone()].iter().map(|log| log.records).sum();
        (records / 4 <= most || logs.len() >= LOGS_MANY) && bytes(chosen) <= shared.room_bytes()
    };
    let Some(chosen) = choose(logs, shared.plan.tail_records).filter(fits) else {
        return Ok(false);
    };
    let mut made = Vec::new();
    let joined = join(shared, &view.logs[chosen.clone()], &mut made);
    let joined = shared.note_room(bytes(&chosen), joined);
    if !matches!(joined, Ok(true)) {
        shared.folder.remove_unentered(&made);
    }
    joined
}

/// Replaces `logs` by one file. `made` receives its name; `false`: the file was not entered.
fn join(
    shared: &StrataState,
    logs: &[std::sync::Arc<OpenLog>],
    made: &mut Vec<String>,
) -> Result<bool> {
    let file = shared.folder.create_log()?;
    made.push(file.name.clone());
    let at_once = (shared.plan.merge_pages / 2).max(1) as u32;
    let mut writer = LogWriter::new(file, at_once as usize);
    let (mut buf, mut end) = (Vec::new(), logs[0].entry.first_page);
    let records: u64 = logs.iter().map(|log| log.entry.records).sum();
    let gives_up = || {
        shared.is_closing()
            && records / 4 > shared.copies_at_most()
            && shared.view().logs.len() < LOGS_MANY
    };
    for log in logs {
        writer.skip(log.entry.first_page - end)?;
        end = log.entry.end_page();
        for first in (0..log.entry.pages).step_by(at_once as usize) {
            if gives_up() {
                return Ok(false);
            }
            let pages = at_once.min(log.entry.pages - first);
            read_pages(&*log.disk, log.named(), first, pages as usize, &mut buf)?;
            writer.copy(&buf)?;
        }
        writer.records += log.entry.records;
    }
    let joined = LogEntry {
        first_page: logs[0].entry.first_page,
        ..writer.finish()?.0
    };
    shared
        .written
        .fetch_add(joined.file_bytes, Ordering::Relaxed);
    let inputs: Vec<LogEntry> = logs.iter().map(|log| log.entry).collect();
    let mut entered = false;
    shared.folder.commit(|manifest| {
        // perhaps the merge lock was deleted while held and another opener joined too; or one of the files has grown
        if let Some(place) = place_of(&manifest.logs, &inputs, |log| *log) {
            manifest.logs.splice(place, [joined]);
            entered = true;
        }
        Ok(entered)
    })?;
    if entered {
        let names: Vec<String> = inputs.iter().map(|log| log.id.log_name()).collect();
        shared.let_go(&names)?;
    }
    Ok(entered)
}

/// The neighbours that are to become one file, if a join is due.
fn choose(logs: &[LogEntry], tail_records: usize) -> Option<Range<usize>> {
    let of_two_tails = (tail_records / PAGE_RECORDS_MAX + 1) as u32 * 2;
    let small = small_pages(logs);
    let enough = |pages_max: u32, least: usize| {
        neighbours(logs, pages_max, HOLES_PERCENT)
            .into_iter()
            .find(|found| found.len() >= least)
    };
    let longest = || {
        let all = neighbours(logs, small, HOLES_PERCENT_MAX).into_iter();
        let longest = all.max_by_key(ExactSizeIterator::len)?;
        let alone = || smallest(logs, tail_records).is_empty();
        let joins = longest.len() >= SCATTERED_LOGS || longest.len() > 1 && alone();
        (are_many(logs, small) && joins).then_some(longest)
    };
    enough(of_two_tails, TAIL_LOGS)
        .or_else(|| enough(small, SMALL_LOGS))
        .or_else(longest)
}

/// The positions of small files that are to be moved together, because there are many and few can be joined.
pub fn scattered(logs: &[LogEntry], tail_records: usize) -> Vec<usize> {
    if are_many(logs, small_pages(logs)) && choose(logs, tail_records).is_none() {
        smallest(logs, tail_records)
    } else {
        Vec::new()
    }
}

/// The positions of the smallest files, if at least [`SCATTERED_LOGS`] have no more than [`SCATTERED_TAILS`] tails.
fn smallest(logs: &[LogEntry], tail_records: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..logs.len()).collect();
    places.sort_by_key(|place| logs[*place].records);
    let mut left = tail_records as u64 * SCATTERED_TAILS;
    let mut fits = |place: &usize| {
        let rest = left.checked_sub(logs[*place].records);
        rest.inspect(|rest| left = *rest).is_some()
    };
    let count = places.iter().take_while(|place| fits(place)).count();
    places.truncate(count);
    places.sort_unstable();
    if count < SCATTERED_LOGS {
        places.clear();
    }
    places
}

/// The largest number of pages of a small file.
pub fn small_pages(logs: &[LogEntry]) -> u32 {
    let all: u64 = logs.iter().map(|log| u64::from(log.pages)).sum();
    LARGE_LOG_PAGES.max((all / LARGE_LOGS) as u32)
}

fn are_many(logs: &[LogEntry], small: u32) -> bool {
    logs.iter().filter(|log| log.pages <= small).count() > SMALL_LOGS_MAX
}

/// All rows of neighbours of at most `pages_max` pages each, between which gone pages are at most `gone_percent` of
/// theirs.
fn neighbours(logs: &[LogEntry], pages_max: u32, gone_percent: u64) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut pages, mut gaps) = (0, 0);
    for (place, log) in logs.iter().enumerate() {
        if log.pages > pages_max {
            continue;
        }
        let own = u64::from(log.pages);
        if let Some(last) = found.last_mut().filter(|last| last.end == place) {
            let gap = u64::from(log.first_page - logs[place - 1].end_page());
            if (gaps + gap) * 100 <= (pages + own) * gone_percent {
                last.end += 1;
                pages += own;
                gaps += gap;
                continue;
            }
        }
        found.push(place..place + 1);
        (pages, gaps) = (own, 0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::manifest::FileId;
    use super::*;

    const TAIL_RECORDS: usize = 32_000;

    fn random(state: &mut u64, end: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % end
    }

    /// Simulates log files of sessions with `pages` pages each, where those for which `goes` returns `true` are dropped
    /// later: returns the largest number of files, and how many pages were written for each page of a session.
    fn grow(
        sessions: u64,
        pages: &mut dyn FnMut(u64) -> u32,
        goes: &dyn Fn(u64) -> bool,
    ) -> (usize, f64) {
        let (mut logs, mut most, mut said, mut written) = (Vec::<LogEntry>::new(), 0, 0, 0);
        let mut next_page = 0;
        let entry = |first_page: u32, pages: u32, records: u64, number: u64| LogEntry {
            id: FileId {
                unique: number,
                number: 0,
            },
            first_page,
            pages,
            records,
            file_bytes: 0,
        };
        for session in 0..sessions {
            let pages = pages(session);
            logs.push(entry(next_page, pages, u64::from(pages) * 127, session));
            next_page += pages;
            said += u64::from(pages);
            written += u64::from(pages);
            if session % 7 == 6 {
                let old = |log: &LogEntry| {
                    log.id.unique < session.saturating_sub(5) && goes(log.id.unique)
                };
                logs.retain(|log| !old(log));
            }
            while let Some(chosen) = choose(&logs, TAIL_RECORDS) {
                let (first, last) = (logs[chosen.start], logs[chosen.end - 1]);
                let records = logs[chosen.clone()].iter().map(|log| log.records).sum();
                let pages = last.end_page() - first.first_page;
                written += u64::from(pages);
                let joined = entry(first.first_page, pages, records, u64::MAX);
                logs.splice(chosen, [joined]);
            }
            let moved = scattered(&logs, TAIL_RECORDS);
            if !moved.is_empty() {
                let records: u64 = moved.iter().map(|place| logs[*place].records).sum();
                for place in moved.into_iter().rev() {
                    logs.remove(place);
                }
                let pages = records.div_ceil(127) as u32;
                written += u64::from(pages);
                logs.push(entry(next_page, pages, records, u64::MAX));
                next_page += pages;
            }
            most = most.max(logs.len());
        }
        (most, written as f64 / said as f64)
    }

    #[test]
    fn log_files_are_few_and_written_seldom_whatever_sessions_are_like() {
        let mut state = 1;
        let mut spread = |_| 1 << random(&mut state, 11);
        let by_sevens = |session: u64| session % 7 == 3;
        // (name, pages of a session, whether it goes, files at most, pages written for each page of a session)
        type Pages<'a> = &'a mut dyn FnMut(u64) -> u32;
        type Goes<'a> = &'a dyn Fn(u64) -> bool;
        let cases: [(&str, Pages<'_>, Goes<'_>, usize, f64); 8] = [
            ("one page, all stay", &mut |_| 1, &|_| false, 130, 5.0),
            ("one page, some go", &mut |_| 1, &by_sevens, 130, 4.5),
            ("half a tail, all stay", &mut |_| 120, &|_| false, 250, 2.1),
            ("half a tail, some go", &mut |_| 120, &by_sevens, 250, 2.4),
            ("of all sizes", &mut spread, &|_| false, 260, 3.0),
            ("a tail, half go", &mut |_| 250, &|n| n % 2 == 0, 400, 2.4),
            (
                "little stays of much",
                &mut |n| if n % 7 == 0 { 1 } else { 700 },
                &|n| n % 7 > 0,
                260,
                1.2,
            ),
            (
                "one large in fifty",
                &mut |n| if n % 50 == 0 { 9000 } else { 3 },
                &|_| false,
                500,
                2.1,
            ),
        ];
        for (what, pages, goes, files_max, writes_max) in cases {
            let (files, writes) = grow(12_000, pages, goes);
            assert!(files <= files_max, "{what}: {files} files");
            assert!(writes <= writes_max, "{what}: written {writes} times");
        }
    }

    #[test]
    fn files_are_not_joined_over_wide_gaps_nor_with_large_ones() {
        let entry = |first_page, pages| LogEntry {
            id: FileId {
                unique: 1,
                number: first_page,
            },
            first_page,
            pages,
            records: 1,
            file_bytes: 1,
        };
        let logs = [
            entry(0, 4),
            entry(4, 4),
            entry(12, 4),
            entry(100, 3),
            entry(103, 50),
            entry(153, 2),
        ];
        assert_eq!(neighbours(&logs, 10, 50), [0..3, 3..4, 5..6]);
        assert_eq!(neighbours(&logs, 50, 50), [0..3, 3..6]);
    }
}
