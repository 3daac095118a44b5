//! When levels are merged, so that reads ask few runs and an extent is rewritten few times.
//!
//! ```text
//! more than 4 recent levels      ─▶ middle, only the runs that they reach
//! a run of the middle that holds
//! 1/16 of what lies below it,
//! or holes over half of that     ─▶ base
//! a map of one run in all        ─▶ base at once
//! ```
//!
//! At a TiB of random single chunks an extent is written 1 + 12 + 20 times before it rests, 9 bytes each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cursor::Cursor;
use super::extent::Extent;
use super::folder::MapFolder;
use super::levels::{Level, Levels, overlapping};
use super::memtable::Memtable;
use super::merge::Merge;
use super::run::{Pages, Run};
use super::run_writer::{Cuts, RunWriter};
use crate::{Error, Result};

/// Sizes that decide when levels are merged.
#[derive(Clone, Copy, Debug)]
pub struct MergeSizes {
    /// Recent levels at most.
    pub recent_max: usize,
    /// Bytes of a run at most.
    pub run_bytes_max: u64,
    /// Extents of a run at most.
    pub run_extents_max: u64,
    /// A run of the middle goes to the base when it has this part of the extents below it.
    pub base_over_middle: u64,
}

impl MergeSizes {
    /// Sizes of a depot.
    pub const DEPOT: Self = Self {
        recent_max: 4,
        run_bytes_max: 4 << 20,
        run_extents_max: 1 << 20,
        base_over_middle: 16,
    };
    /// Sizes for tests: merges of all kinds among some hundred extents.
    #[cfg(test)]
    pub const SMALL: Self = Self {
        recent_max: 2,
        run_bytes_max: 4096,
        run_extents_max: 40,
        base_over_middle: 4,
    };
}

/// Leads addresses in zones that were freed to where their chunks are now.
pub type Relocate<'a> = &'a dyn Fn(Extent, &mut dyn FnMut(Extent) -> Result<()>) -> Result<()>;

/// Writes and merges runs.
pub struct Merger<'a> {
    /// Where runs are written.
    pub folder: &'a MapFolder,
    /// When they are merged.
    pub sizes: MergeSizes,
    /// Where chunks lie now.
    pub relocate: Relocate<'a>,
    /// Whether the merge is not wanted any more.
    pub stop: &'a AtomicBool,
    /// Mapped LBNs that were found below a mapped one.
    pub overwritten: u64,
    /// Mapped LBNs that were found below a hole.
    pub discarded: u64,
}

/// Fate of holes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// Older levels may map the LBNs.
    Kept,
    /// Nothing lies below.
    Dropped,
}

impl<'a> Merger<'a> {
    /// Levels with the memtable as the newest one.
    ///
    /// # Errors
    /// The device failed, or is full. The old levels stay as they are.
    pub fn push(&mut self, levels: &Levels, memtable: &Memtable) -> Result<Levels> {
        let mut levels = levels.clone();
        if memtable.len() > 0 {
            let mut writer = self.writer(Vec::new(), Pages::Pinned);
            memtable.iter().try_for_each(|extent| writer.push(extent))?;
            levels.recent.insert(0, writer.finish()?);
        }
        Ok(levels)
    }

    /// Merges everything into the base, so that nothing names a zone that was freed.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub fn merge_all(&mut self, levels: &Levels) -> Result<Levels> {
        let all: Vec<&[Arc<Run>]> = levels.newest_first().map(Vec::as_slice).collect();
        Ok(Levels {
            base: self.merge(&all, Vec::new(), Holes::Dropped)?,
            ..Levels::default()
        })
    }

    /// A run with the addresses at which its chunks are now; `None` where it has them already. What newer levels hide
    /// stays, so heads that share the run can share the new one.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub fn relocated(&mut self, run: &Arc<Run>, pages: Pages) -> Result<Option<Level>> {
        if !self.names_moved(run)? {
            return Ok(None);
        }
        let mut cursor = Cursor::new([Arc::clone(run)], self.folder.layout.chunk_pages);
        let mut writer = self.writer(Vec::new(), pages);
        while let Some(extent) = cursor.peek()? {
            (self.relocate)(extent, &mut |extent| writer.push(extent))?;
            cursor.pass(extent.end())?;
        }
        writer.finish().map(Some)
    }

    fn names_moved(&mut self, run: &Arc<Run>) -> Result<bool> {
        let mut cursor = Cursor::new([Arc::clone(run)], self.folder.layout.chunk_pages);
        let mut is_moved = false;
        while let Some(extent) = cursor.peek()?.filter(|_| !is_moved) {
            (self.relocate)(extent, &mut |now| {
                let old = extent.cut(&(now.lbn..now.end()), self.folder.layout.chunk_pages);
                is_moved |= now.target != old.target;
                Ok(())
            })?;
            cursor.pass(extent.end())?;
        }
        Ok(is_moved)
    }

    /// Merges recent levels into the older ones, and those where that is due.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub fn settle(&mut self, levels: &Levels) -> Result<Levels> {
        let mut levels = levels.clone();
        let below = || levels.middle.iter().chain(&levels.base);
        let bytes: u64 = below().map(|run| run.listed.bytes()).sum();
        let extents: u64 = below().map(|run| run.listed.extents).sum();
        if bytes <= self.sizes.run_bytes_max && extents <= self.sizes.run_extents_max {
            return self.merge_all(&levels);
        }
        self.recent_to_middle(&mut levels)?;
        self.middle_to_base(&mut levels)?;
        Ok(levels)
    }

    fn recent_to_middle(&mut self, levels: &mut Levels) -> Result<()> {
        let recent = std::mem::take(&mut levels.recent);
        let spans = recent.iter().flatten().map(|run| run.listed.span());
        let Some(span) = spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) else {
            return Ok(());
        };
        let reached = overlapping(&levels.middle, &span);
        let mut all: Vec<&[Arc<Run>]> = recent.iter().map(Vec::as_slice).collect();
        all.push(&levels.middle[reached.clone()]);
        let borders = levels.base.iter().map(|run| run.listed.first).collect();
        let merged = self.merge(&all, borders, Holes::Kept)?;
        levels.middle.splice(reached, merged);
        Ok(())
    }

    fn middle_to_base(&mut self, levels: &mut Levels) -> Result<()> {
        for run in std::mem::take(&mut levels.middle) {
            let reached = overlapping(&levels.base, &run.listed.span());
            let below = &levels.base[reached.clone()];
            let extents_below: u64 = below.iter().map(|run| run.listed.extents).sum();
            let mapped_below: u64 = below.iter().map(|run| run.listed.mapped).sum();
            let is_large = run.listed.extents * self.sizes.base_over_middle >= extents_below;
            // Few bytes of holes may hide much: then the base becomes shorter.
            let hides_much = run.listed.holes > 0 && run.listed.holes >= mapped_below / 2;
            if !is_large && !hides_much {
                levels.middle.push(run);
                continue;
            }
            let middle = [run];
            let merged = self.merge(&[&middle, below], Vec::new(), Holes::Dropped)?;
            levels.base.splice(reached, merged);
        }
        Ok(())
    }

    fn merge(
        &mut self,
        newest_first: &[&[Arc<Run>]],
        borders: Vec<u64>,
        holes: Holes,
    ) -> Result<Level> {
        let chunk_pages = self.folder.layout.chunk_pages;
        let cursor = |level: &&[Arc<Run>]| Cursor::new(level.iter().cloned(), chunk_pages);
        let cursors = newest_first.iter().map(cursor).collect();
        let mut merge = Merge::new(cursors, 0..u64::MAX, chunk_pages)?;
        let mut writer = self.writer(borders, Pages::Cached);
        while let Some(extent) = merge.next()? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            if extent.target.is_some() || holes == Holes::Kept {
                (self.relocate)(extent, &mut |extent| writer.push(extent))?;
            }
        }
        self.overwritten += merge.overwritten;
        self.discarded += merge.discarded;
        writer.finish()
    }

    fn writer(&self, borders: Vec<u64>, pages: Pages) -> RunWriter<'a> {
        let cuts = Cuts {
            run_bytes_max: self.sizes.run_bytes_max,
            run_extents_max: self.sizes.run_extents_max,
            borders,
            pages,
        };
        RunWriter::new(self.folder, cuts)
    }
}
