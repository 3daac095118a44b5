//! Differences of two snapshots, found from the lists of their runs: runs that both have are not read. A chunk
//! that was written again with the same content has the same address, so it does not differ.

use std::ops::Range;

use super::layout::Address;
use super::map::extent::Extent;
use super::map::levels::Levels;
use super::map::merge::Merge;
use super::map::shared_parts::differing;
use super::shared::Shared;
use crate::{ChangeKind, Result};

/// Is called for each stretch of LBNs, in order and without gaps; `false` ends the walk.
pub type VisitChanges<'a> = &'a mut dyn FnMut(Range<u64>, ChangeKind) -> bool;

impl Shared {
    /// Tells how the LBNs of `head` differ from those of `base`.
    ///
    /// # Errors
    /// The folder failed, or a run is damaged.
    pub fn changes(
        &self,
        base: &Levels,
        head: &Levels,
        lbns: Range<u64>,
        visit: VisitChanges<'_>,
    ) -> Result<()> {
        // Neighbours of one kind are told together.
        let mut last: Option<(Range<u64>, ChangeKind)> = None;
        let mut goes_on = true;
        self.compare_all(base, head, lbns, &mut |lbns, kind| {
            match &mut last {
                Some((before, known)) if *known == kind => before.end = lbns.end,
                last => {
                    let told = last.replace((lbns, kind));
                    goes_on &= told.is_none_or(|(lbns, kind)| visit(lbns, kind));
                }
            }
            goes_on
        })?;
        if let Some((lbns, kind)) = last.filter(|_| goes_on) {
            visit(lbns, kind);
        }
        Ok(())
    }

    fn compare_all(
        &self,
        base: &Levels,
        head: &Levels,
        lbns: Range<u64>,
        visit: VisitChanges<'_>,
    ) -> Result<()> {
        let mut at = lbns.start;
        for stretch in differing(base, head) {
            let stretch = stretch.start.max(at)..stretch.end.min(lbns.end);
            if stretch.is_empty() {
                continue;
            }
            if at < stretch.start && !visit(at..stretch.start, ChangeKind::Same) {
                return Ok(());
            }
            at = stretch.end;
            if !self.compare(base, head, stretch, visit)? {
                return Ok(());
            }
        }
        if at < lbns.end {
            visit(at..lbns.end, ChangeKind::Same);
        }
        Ok(())
    }

    /// Compares what two maps say of a stretch. Returns whether `visit` never ended it.
    fn compare(
        &self,
        base: &Levels,
        head: &Levels,
        lbns: Range<u64>,
        visit: VisitChanges<'_>,
    ) -> Result<bool> {
        let chunk_pages = self.layout.chunk_pages;
        let pieces = |levels: &Levels| -> Result<Pieces> {
            let merge = levels.merge(lbns.clone(), chunk_pages)?;
            Ok(Pieces {
                merge,
                next: None,
                at: lbns.start,
                end: lbns.end,
                chunk_pages,
            })
        };
        let (mut old, mut new) = (pieces(base)?, pieces(head)?);
        while let (Some(before), Some(now)) = (old.peek()?, new.peek()?) {
            let end = before.end().min(now.end());
            let part = now.lbn..end;
            (old.at, new.at) = (end, end);
            let goes_on = match (before.target, now.target) {
                (_, None) => visit(part, ChangeKind::Hole),
                (None, Some(_)) => visit(part, ChangeKind::Data),
                (Some(_), Some(_)) => self.compare_chunks(&before, &now, part, visit),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the places of two stretches of chunks.
    fn compare_chunks(
        &self,
        before: &Extent,
        now: &Extent,
        lbns: Range<u64>,
        visit: VisitChanges<'_>,
    ) -> bool {
        let chunk_pages = self.layout.chunk_pages;
        let zones = self.zones.read();
        let place = |extent: &Extent, lbn: u64| -> Option<Address> {
            let address = extent.target_at(lbn - extent.lbn, chunk_pages)?;
            Some(zones.locate(address)?.0)
        };
        let kind = |lbn: u64| {
            let (old, new) = (place(before, lbn), place(now, lbn));
            if new.is_some() && old == new {
                ChangeKind::Same
            } else {
                ChangeKind::Data
            }
        };
        let is_there = |extent: &Extent| {
            (extent.target).is_some_and(|target| zones.get(target.zone).is_some())
        };
        // Chunks of zones that are there lie one behind the other: the first one stands for all.
        if is_there(before) && is_there(now) {
            let kind = kind(lbns.start);
            drop(zones);
            return visit(lbns, kind);
        }
        let kinds: Vec<ChangeKind> = lbns.clone().map(kind).collect();
        drop(zones);
        lbns.zip(kinds).all(|(lbn, kind)| visit(lbn..lbn + 1, kind))
    }
}

/// Walk through a map: neighbouring extents and holes without gaps.
struct Pieces {
    merge: Merge,
    /// The extent of the merge that is next.
    next: Option<Extent>,
    at: u64,
    end: u64,
    chunk_pages: u32,
}

impl Pieces {
    /// The piece that begins at `at`.
    fn peek(&mut self) -> Result<Option<Extent>> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.next.is_none_or(|next| next.end() <= self.at) {
            self.next = self.merge.next()?;
        }
        let next = self
            .next
            .map(|next| next.cut(&(self.at.max(next.lbn)..next.end()), self.chunk_pages));
        Ok(Some(match next {
            Some(next) if next.lbn == self.at => next,
            next => Extent {
                lbn: self.at,
                chunks: next.map_or(self.end, |next| next.lbn) - self.at,
                target: None,
            },
        }))
    }
}
