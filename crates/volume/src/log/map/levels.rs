//! The levels of one head's map: lists of runs, replaced as a whole and never changed, so a reader keeps what it found.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::extent::Extent;
use super::folder::MapFolder;
use super::merge::Merge;
use super::page_cache::PageCache;
use super::run::{ListedRun, Pages, Run};
use super::run_id::RunId;
use crate::Result;

/// Runs of one level, sorted by LBN, without overlap.
pub type Level = Vec<Arc<Run>>;

/// All runs of a head.
#[derive(Clone, Default)]
pub struct Levels {
    /// Former memtables, newest first; their pages stay in RAM.
    pub recent: Vec<Level>,
    /// Runs that were recent once, cut where the base is cut.
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

/// Opens the lists of a manifest. A run that several heads share is opened once.
pub struct Opening<'a> {
    folder: &'a MapFolder,
    opened: HashMap<RunId, Arc<Run>>,
    /// Bytes of recent runs' pages that may still be kept in RAM.
    pinned_bytes_left: u64,
}

impl<'a> Opening<'a> {
    /// Opens runs in `folder`, and keeps this many bytes of recent ones in RAM.
    pub fn new(folder: &'a MapFolder, pinned_bytes_max: u64) -> Self {
        Self {
            folder,
            opened: HashMap::new(),
            pinned_bytes_left: pinned_bytes_max,
        }
    }

    /// Opens what a manifest lists of a head. Recent runs of a volume are kept in RAM as far as there is room.
    ///
    /// # Errors
    /// A file is missing or damaged, or the device failed.
    pub fn levels(&mut self, listed: &ListedLevels, is_volume: bool) -> Result<Levels> {
        let pages = if is_volume {
            Pages::Pinned
        } else {
            Pages::Cached
        };
        let recent = listed.recent.iter().map(|runs| self.level(runs, pages));
        Ok(Levels {
            recent: recent.collect::<Result<_>>()?,
            middle: self.level(&listed.middle, Pages::Cached)?,
            base: self.level(&listed.base, Pages::Cached)?,
        })
    }

    fn level(&mut self, runs: &[ListedRun], pages: Pages) -> Result<Level> {
        runs.iter().map(|run| self.run(run, pages)).collect()
    }

    fn run(&mut self, listed: &ListedRun, mut pages: Pages) -> Result<Arc<Run>> {
        if let Some(run) = self.opened.get(&listed.id) {
            return Ok(Arc::clone(run));
        }
        if pages == Pages::Pinned {
            match self.pinned_bytes_left.checked_sub(listed.bytes()) {
                Some(left) => self.pinned_bytes_left = left,
                None => pages = Pages::Cached,
            }
        }
        let run = Run::open(self.folder, *listed, pages)?;
        self.opened.insert(listed.id, Arc::clone(&run));
        Ok(run)
    }
}

impl Levels {
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

    /// Goes through what all levels say together of some LBNs. Not through the cache: all pages are read once.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn merge(&self, lbns: Range<u64>, chunk_pages: u32) -> Result<Merge> {
        let cursor = |level: &Level| {
            let runs = level[overlapping(level, &lbns)].iter().cloned();
            Cursor::from(runs, lbns.start, chunk_pages)
        };
        let cursors = self.newest_first().map(cursor);
        Merge::new(cursors.collect::<Result<_>>()?, lbns.clone(), chunk_pages)
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

/// Places of the runs that have an LBN in `span`.
pub fn overlapping(level: &[Arc<Run>], span: &Range<u64>) -> Range<usize> {
    let start = level.partition_point(|run| run.listed.end <= span.start);
    let end = level.partition_point(|run| run.listed.first < span.end);
    start..end.max(start)
}

/// Visits the extents of the first level, and where it has none, those of the others. Returns whether `visit` never
/// ended it.
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
