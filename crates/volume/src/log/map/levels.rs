//! The levels of one head's map: lists of runs, replaced as a whole and never changed, so a reader keeps what it found.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::extent::Extent;
use super::folder::MapFolder;
use super::merge::Merge;
use super::page_cache::PageCache;
use super::run::{ListedRun, Pages, Run};
use crate::Result;

/// Runs of one level, sorted by LBN, without overlap.
pub type Level = Vec<Arc<Run>>;

/// All runs of a head.
#[derive(Clone, Default)]
pub struct Levels {
    /// Former memtables, newest first; their pages stay in RAM.
    pub recent: Vec<Level>,
    /// What was recent once, cut where the base is cut.
    pub middle: Level,
    /// The oldest level: it has no holes.
    pub base: Level,
}

/// The lists of a head as a manifest holds them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ListedLevels {
    /// Former memtables, newest first.
    pub recent: Vec<Vec<ListedRun>>,
    /// The middle level.
    pub middle: Vec<ListedRun>,
    /// The oldest level.
    pub base: Vec<ListedRun>,
}

impl ListedLevels {
    /// Every run.
    pub fn runs(&self) -> impl Iterator<Item = &ListedRun> {
        let recent = self.recent.iter().flatten();
        recent.chain(&self.middle).chain(&self.base)
    }
}

impl Levels {
    /// Opens what a manifest lists.
    ///
    /// # Errors
    /// A file is missing or damaged, or the device failed.
    pub fn open(folder: &MapFolder, listed: &ListedLevels) -> Result<Self> {
        let open = |runs: &Vec<ListedRun>, pages| -> Result<Level> {
            let opened = runs.iter().map(|run| Run::open(folder, *run, pages));
            opened.collect()
        };
        Ok(Self {
            recent: (listed.recent.iter())
                .map(|runs| open(runs, Pages::Pinned))
                .collect::<Result<_>>()?,
            middle: open(&listed.middle, Pages::Cached)?,
            base: open(&listed.base, Pages::Cached)?,
        })
    }

    /// The lists for a manifest.
    pub fn listed(&self) -> ListedLevels {
        let listed = |level: &Level| level.iter().map(|run| run.listed).collect();
        ListedLevels {
            recent: self.recent.iter().map(listed).collect(),
            middle: listed(&self.middle),
            base: listed(&self.base),
        }
    }

    /// Whether there are more recent levels than a merge leaves.
    pub fn is_merge_due(&self, recent_max: usize) -> bool {
        self.recent.len() > recent_max
    }

    /// These levels in place of the ones that `merged` was made of, below those that came since: all recent ones but the
    /// last `taken`.
    #[must_use]
    pub fn with_merged(&self, taken: usize, merged: &Self) -> Self {
        let since = self.recent.len() - taken;
        let recent = self.recent[..since].iter().chain(&merged.recent);
        Self {
            recent: recent.cloned().collect(),
            middle: merged.middle.clone(),
            base: merged.base.clone(),
        }
    }

    /// Every level, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Level> {
        self.recent.iter().chain([&self.middle, &self.base])
    }

    /// Every run.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.newest_first().flatten()
    }

    /// LBNs that runs map to a chunk. Those that several map count several times, until they are merged.
    pub fn mapped(&self) -> u64 {
        self.runs().map(|run| run.listed.mapped).sum()
    }

    /// Extents of all runs.
    pub fn extents(&self) -> u64 {
        self.runs().map(|run| run.listed.extents).sum()
    }

    /// Goes through what all levels say together. Not through the cache: all pages are read once.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn merge(&self, chunk_pages: u32) -> Result<Merge> {
        let cursor = |level: &Level| Cursor::new(level.iter().cloned(), chunk_pages);
        let cursors = self.newest_first().map(cursor).collect();
        Merge::new(cursors, 0..u64::MAX, chunk_pages)
    }

    /// Calls `visit` for each part of `lbns` in order, without gaps, until it gives `false`: with the extent that counts
    /// there, or a hole.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn visit(
        &self,
        lbns: Range<u64>,
        cache: &PageCache,
        visit: &mut dyn FnMut(Extent) -> bool,
    ) -> Result<()> {
        let levels: Vec<&Level> = self.newest_first().collect();
        visit_levels(&levels, lbns, cache, visit)?;
        Ok(())
    }
}

/// What the first level says, and where it says nothing, what the others say. Returns whether `visit` never ended it.
fn visit_levels(
    levels: &[&Level],
    lbns: Range<u64>,
    cache: &PageCache,
    visit: &mut dyn FnMut(Extent) -> bool,
) -> Result<bool> {
    let Some((newest, older)) = levels.split_first() else {
        return Ok(visit(Extent {
            lbn: lbns.start,
            chunks: lbns.end - lbns.start,
            target: None,
        }));
    };
    let mut at = lbns.start;
    let first = newest.partition_point(|run| run.listed.end <= lbns.start);
    let overlapping = newest[first..].iter();
    for run in overlapping.take_while(|run| run.listed.first < lbns.end) {
        let goes_on = run.visit(&lbns, cache, &mut |extent| {
            let before = at..extent.lbn;
            at = extent.end();
            Ok((before.is_empty() || visit_levels(older, before, cache, visit)?) && visit(extent))
        })?;
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(at >= lbns.end || visit_levels(older, at..lbns.end, cache, visit)?)
}
