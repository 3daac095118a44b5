//! Merging levels: of each LBN, what the newest level says.

use std::ops::Range;

use super::cursor::Cursor;
use super::extent::Extent;
use crate::Result;

/// Goes through several levels at once.
pub struct Merge {
    /// Newest first.
    levels: Vec<Cursor>,
    at: u64,
    end: u64,
    chunk_pages: u32,
    /// Mapped LBNs of older levels that lay below a mapped one.
    pub overwritten: u64,
    /// Mapped LBNs of older levels that lay below a hole.
    pub discarded: u64,
}

impl Merge {
    /// Merges `levels`, newest first, within `lbns`.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn new(mut levels: Vec<Cursor>, lbns: Range<u64>, chunk_pages: u32) -> Result<Self> {
        for level in &mut levels {
            level.pass(lbns.start)?;
        }
        Ok(Self {
            levels,
            at: lbns.start,
            end: lbns.end,
            chunk_pages,
            overwritten: 0,
            discarded: 0,
        })
    }

    /// The next extent; holes of any level are extents, too.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn next(&mut self) -> Result<Option<Extent>> {
        loop {
            // No level begins before `at`: the newest one that begins there is what counts, until a newer one begins.
            let mut bound = self.end;
            let mut found = None;
            for (place, level) in self.levels.iter_mut().enumerate() {
                match level.start() {
                    Some(start) if start > self.at => bound = bound.min(start),
                    Some(_) if self.at < self.end => {
                        found = level.peek()?.map(|extent| (place, extent));
                        break;
                    }
                    _ => {}
                }
            }
            if let Some((place, extent)) = found {
                let extent = extent.cut(&(self.at..bound), self.chunk_pages);
                self.at = extent.end();
                self.pass(place, &extent)?;
                return Ok(Some(extent));
            }
            if bound >= self.end {
                return Ok(None);
            }
            self.at = bound;
        }
    }

    /// Passes the extent in its own level and in all older ones.
    fn pass(&mut self, place: usize, extent: &Extent) -> Result<()> {
        self.levels[place].pass(extent.end())?;
        for level in &mut self.levels[place + 1..] {
            let hidden = level.pass(extent.end())?;
            match extent.target {
                Some(_) => self.overwritten += hidden,
                None => self.discarded += hidden,
            }
        }
        Ok(())
    }
}
