//! Writing the run that replaces some neighbouring runs.
//!
//! Invariant: of the records with one hash the newest that counts is kept, and the pages of the others are marked
//! dead, because a cached copy of such a page must not be believed. A removal is kept until it meets the oldest run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::folder::NewFile;
use super::gone::GoneParts;
use super::manifest::RunEntry;
use super::run::RunReader;
use super::run_page::RunRecord;
use super::run_writer::RunWriter;
use super::state::StrataState;
use super::view::View;
use crate::Result;

/// Writes the merged run into `file`, which is empty; `None` where the index is being closed.
pub fn write_merged(
    shared: &StrataState,
    view: &View,
    group: Range<usize>,
    gone: &GoneParts,
    file: NewFile,
) -> Result<Option<RunEntry>> {
    let entries = &view.manifest.runs[group.clone()];
    let (first_page, end_page) = (entries[0].first_page, entries[entries.len() - 1].end_page);
    let oldest = group.start == 0;
    let upper: u64 = entries.iter().map(|run| run.records).sum();
    let bits = shared.plan.filter_bits(view.manifest.records(), upper);
    let mut writer = RunWriter::new(
        Arc::clone(&file.disk),
        file.id,
        upper,
        end_page - first_page,
        shared.plan.partition_records,
        bits,
    );
    let is_gone = |page: u32| {
        let behind = gone.pages.partition_point(|pages| pages.start <= page);
        behind > 0 && gone.pages[behind - 1].contains(&page)
    };
    let mut dead = DeadPages::default();
    // records of gone containers count while their pages are there: the container may come back
    let is_there = |page: &u32| view.log_of(first_page.saturating_add(*page)).is_some();
    inherited_dead(view, group.clone(), first_page)
        .filter(is_there)
        .for_each(|page| dead.push(page));
    let mut sources = RunSources::new(view, group, first_page, shared.plan.merge_pages)?;
    while sources.next()? {
        let stays = sources
            .same
            .iter()
            .position(|record| !is_gone(first_page.saturating_add(record.page)));
        let others = (0..)
            .zip(&sources.same)
            .filter(|(place, _)| Some(*place) != stays);
        others
            .map(|(_, record)| record.page)
            .filter(is_there)
            .for_each(|page| dead.push(page));
        if let Some(record) = stays
            .map(|place| sources.same[place])
            .filter(|record| !(record.removed && oldest))
        {
            writer.push(record)?;
        }
        if sources.taken % 65_536 == 0 && shared.is_closing() && upper > shared.merges_at_most() {
            return Ok(None);
        }
    }
    let written = writer.finish(dead.sorted())?;
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

/// A set of pages. Records are many times as many as pages, so RAM is bounded to twice the different pages and some
/// KiB.
#[derive(Default)]
struct DeadPages {
    pages: Vec<u32>,
    /// Length of the sorted beginning of `pages`, in which each page stands once.
    different: usize,
}

impl DeadPages {
    fn push(&mut self, page: u32) {
        if self.pages.len() >= self.different * 2 + 1024 {
            self.sorted();
        }
        self.pages.push(page);
    }

    fn sorted(&mut self) -> &[u32] {
        self.pages.sort_unstable();
        self.pages.dedup();
        self.different = self.pages.len();
        &self.pages
    }
}

fn inherited_dead(
    view: &View,
    group: Range<usize>,
    first_page: u32,
) -> impl Iterator<Item = u32> + '_ {
    let entries = view.manifest.runs[group.clone()]
        .iter()
        .zip(&view.runs[group]);
    entries.flat_map(move |(entry, run)| {
        run.dead_pages
            .iter()
            .map(move |page| (entry.first_page - first_page).saturating_add(*page))
    })
}

/// The runs of a group, read side by side.
struct RunSources {
    readers: Vec<RunReader>,
    /// Number to add to each reader's pages, because its run counts from another first page.
    shifts: Vec<u32>,
    heads: BinaryHeap<Reverse<SourceHead>>,
    /// The records of one hash, newest first.
    same: Vec<RunRecord>,
    taken: u64,
}

/// The next record of a source. Records of one hash are ordered newest source first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceHead {
    hash: u64,
    source: Reverse<usize>,
    record: RunRecord,
}

impl RunSources {
    /// Sources that buffer `pages` pages together.
    fn new(view: &View, group: Range<usize>, first_page: u32, pages: usize) -> Result<RunSources> {
        // each reader also holds the decoded records of a page
        let each = (pages / group.len()).saturating_sub(2);
        let readers = view.runs[group.clone()]
            .iter()
            .map(|run| RunReader::new(Arc::clone(run), each))
            .collect::<Vec<_>>();
        let shifts = view.manifest.runs[group]
            .iter()
            .map(|run| run.first_page - first_page)
            .collect();
        let mut sources = RunSources {
            heads: BinaryHeap::with_capacity(readers.len()),
            readers,
            shifts,
            same: Vec::new(),
            taken: 0,
        };
        (0..sources.readers.len()).try_for_each(|source| sources.pull(source))?;
        Ok(sources)
    }

    /// Fills `same` with all records of the next hash, newest first; returns `false` at the end.
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
            self.heads.push(Reverse(SourceHead {
                hash: record.hash,
                source: Reverse(source),
                record,
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::DeadPages;

    #[test]
    fn dead_pages_take_room_for_themselves_not_for_the_records_on_them() {
        let mut dead = DeadPages::default();
        (0..1_000_000).for_each(|record| dead.push(record * 7 % 1000));
        assert!(dead.pages.capacity() < 8192, "{}", dead.pages.capacity());
        assert!(dead.sorted().iter().copied().eq(0..1000));
    }
}
