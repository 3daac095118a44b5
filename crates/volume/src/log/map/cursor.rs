//! A cursor goes through the runs of one level, once and in order. Runs that are jumped over whole are not read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::extent::Extent;
use super::run::Run;
use super::run_page::RunPage;
use crate::Result;

/// Pages that are read at once.
const PAGES_AT_ONCE: u32 = 64;

/// Goes through the extents of runs that follow each other.
pub struct Cursor {
    runs: VecDeque<Arc<Run>>,
    chunk_pages: u32,
    /// The extent that is next, where it is known.
    next: Option<Extent>,
    /// Pages of the first run that were read and not passed.
    pages: VecDeque<RunPage>,
    /// The next page of the first run to read.
    page_no: u32,
    /// The next extent of the first page.
    extent_at: usize,
}

impl Cursor {
    /// A cursor before the first extent of `runs`, which do not overlap and are sorted.
    pub fn new(runs: impl IntoIterator<Item = Arc<Run>>, chunk_pages: u32) -> Self {
        Self {
            runs: runs.into_iter().collect(),
            chunk_pages,
            next: None,
            pages: VecDeque::new(),
            page_no: 0,
            extent_at: 0,
        }
    }

    /// A cursor at `lbn`. Pages of the first run before that are not read.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn from(
        runs: impl IntoIterator<Item = Arc<Run>>,
        lbn: u64,
        chunk_pages: u32,
    ) -> Result<Self> {
        let mut cursor = Self::new(runs, chunk_pages);
        while cursor.runs.front().is_some_and(|run| run.listed.end <= lbn) {
            cursor.runs.pop_front();
        }
        if let Some(run) = cursor.runs.front().filter(|run| run.listed.first < lbn) {
            cursor.page_no = run.page_of(lbn);
            cursor.load()?;
            cursor.pass(lbn)?;
        }
        Ok(cursor)
    }

    /// The LBN at which the next extent begins.
    pub fn start(&self) -> Option<u64> {
        match self.next {
            Some(next) => Some(next.lbn),
            // Nothing of the first run was read.
            None => Some(self.runs.front()?.listed.first),
        }
    }

    /// The next extent.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn peek(&mut self) -> Result<Option<Extent>> {
        if self.next.is_none() {
            self.load()?;
        }
        Ok(self.next)
    }

    /// Passes all LBNs before `lbn`. Returns how many of them were mapped.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn pass(&mut self, lbn: u64) -> Result<u64> {
        let mut passed = 0;
        loop {
            match self.next {
                Some(next) if next.end() <= lbn => {
                    passed += next.mapped();
                    self.next = None;
                    if self.is_within_run() {
                        self.load()?;
                    }
                }
                Some(next) if next.lbn < lbn => {
                    let before: Range<u64> = next.lbn..lbn;
                    passed += next.cut(&before, self.chunk_pages).mapped();
                    self.next = Some(next.cut(&(lbn..next.end()), self.chunk_pages));
                    return Ok(passed);
                }
                Some(_) => return Ok(passed),
                None => match self.runs.front().map(|run| run.listed) {
                    Some(run) if run.end <= lbn => {
                        passed += run.mapped;
                        self.runs.pop_front();
                    }
                    Some(run) if run.first < lbn => self.load()?,
                    _ => return Ok(passed),
                },
            }
        }
    }

    /// Whether some of the first run was read. Then its next extent is known, or it is at its end.
    fn is_within_run(&self) -> bool {
        self.page_no > 0
    }

    /// Finds the next extent: in the page that is open, the next page, the next run.
    fn load(&mut self) -> Result<()> {
        while self.next.is_none() {
            let Some(run) = self.runs.front() else {
                return Ok(());
            };
            if let Some(page) = self.pages.front() {
                if self.extent_at < page.len() {
                    self.next = Some(page.extent(self.extent_at));
                    self.extent_at += 1;
                } else {
                    self.pages.pop_front();
                    self.extent_at = 0;
                }
            } else if self.page_no < run.listed.pages {
                let end = run.listed.pages.min(self.page_no + PAGES_AT_ONCE);
                self.pages = run.read_pages(self.page_no..end)?.into();
                self.page_no = end;
            } else {
                self.runs.pop_front();
                self.page_no = 0;
                // The next run is read when it is needed.
                return Ok(());
            }
        }
        Ok(())
    }
}
