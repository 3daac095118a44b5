//! The file of chain units, `bloom-chains`: each unit has two places of S pages and is written to the place that does
//! not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::Disk;

use super::chain::{ChainPage, Shape, UnitHead, pointer_of};
use crate::flashlog::{open_or_create, read_many};
use onefold_index::Result;
use onefold_index::strata::page::PAGE_BYTES;

const CHAINS: &str = "bloom-chains";

/// The place of a unit: its number × 2, plus 0 or 1 for the two places.
pub type Place = u32;

/// A whole unit in the file.
pub struct RecoveredUnit {
    /// Place of the unit.
    pub place: Place,
    /// Head of the unit.
    pub head: UnitHead,
    /// The page of the unit's last filter.
    pub last: u32,
}

/// The file `bloom-chains`: chain units of some pages, each with two places.
pub struct Units {
    disk: Arc<dyn Disk>,
    shape: Shape,
    next: u32,
    free: Vec<u32>,
    generation: u64,
    /// Bytes written since the file was opened.
    pub bytes_written: u64,
}

impl Units {
    /// Opens the file and returns the newest whole form of each unit, by partition and position. Units that speak of
    /// pages from `end` on, which were lost, do not count.
    pub fn open(
        dir: &dyn onefold_io::Dir,
        shape: Shape,
        end: u32,
    ) -> Result<(Units, BTreeMap<u32, Vec<RecoveredUnit>>)> {
        let disk = open_or_create(dir, CHAINS)?;
        let unit_bytes = u64::from(shape.slices) * 2 * PAGE_BYTES as u64;
        let mut units = Units {
            next: disk.len()?.div_ceil(unit_bytes) as u32,
            disk,
            shape,
            free: Vec::new(),
            generation: 0,
            bytes_written: 0,
        };
        let mut found: BTreeMap<u32, Vec<RecoveredUnit>> = BTreeMap::new();
        let mut undone = false;
        for unit in 0..units.next {
            let mut newest: Option<RecoveredUnit> = None;
            for place in [unit * 2, unit * 2 + 1] {
                let Some((head, last)) = units.read_head(place)? else {
                    continue;
                };
                units.generation = units.generation.max(head.generation);
                if last >= end {
                    units.undo(place)?;
                    undone = true;
                } else if newest
                    .as_ref()
                    .is_none_or(|newest| newest.head.generation < head.generation)
                {
                    newest = Some(RecoveredUnit { place, head, last });
                }
            }
            match newest {
                Some(newest) => found.entry(newest.head.partition).or_default().push(newest),
                None => units.free.push(unit),
            }
        }
        if undone {
            units.disk.sync()?;
        }
        for of_partition in found.values_mut() {
            of_partition.sort_by_key(|unit| (unit.head.ordinal, unit.head.generation));
        }
        Ok((units, found))
    }

    /// The head and the last pointer of the unit at `place`; `None` where its slices are not of one writing.
    fn read_head(&self, place: Place) -> Result<Option<(UnitHead, u32)>> {
        let end = (u64::from(place) + 1) * u64::from(self.shape.slices) * PAGE_BYTES as u64;
        if self.disk.len()? < end {
            return Ok(None);
        }
        let pages: Vec<u32> = (0..self.shape.slices)
            .map(|slice| self.page(place, slice))
            .collect();
        let mut whole: Option<(UnitHead, u32)> = None;
        for (bytes, page) in read_many(&*self.disk, &pages)?.into_iter().zip(&pages) {
            let Ok(slice) = ChainPage::check(bytes, &self.shape, CHAINS, *page) else {
                return Ok(None);
            };
            let head = slice.head();
            if head.filters == 0 || whole.is_some_and(|(first, _)| first != head) {
                return Ok(None);
            }
            whole = Some((head, slice.pointer(head.filters - 1)));
        }
        Ok(whole)
    }

    fn undo(&self, place: Place) -> Result<()> {
        let at = u64::from(self.page(place, 0)) * PAGE_BYTES as u64;
        Ok(self.disk.write_at(&[0; PAGE_BYTES], at)?)
    }

    /// The page number of slice `slice` at `place`.
    pub fn page(&self, place: Place, slice: u32) -> u32 {
        place * self.shape.slices + slice
    }

    /// Allocates a place for a new unit.
    pub fn allocate(&mut self) -> Place {
        let unit = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        unit * 2
    }

    /// Releases the place of a unit that speaks of collected pages alone.
    pub fn release(&mut self, place: Place) {
        self.free.push(place / 2);
    }

    /// Reads slices by their page numbers, in one batch.
    pub fn read(&self, pages: &[u32]) -> Result<Vec<ChainPage>> {
        read_many(&*self.disk, pages)?
            .into_iter()
            .zip(pages)
            .map(|(bytes, page)| ChainPage::check(bytes, &self.shape, CHAINS, *page))
            .collect()
    }

    /// Writes the unit at `old` with `filters` appended (or a new unit) to its other place, which it returns. Reads: S
    /// for an existing unit; writes: S.
    pub fn write(
        &mut self,
        old: Place,
        was_there: bool,
        mut head: UnitHead,
        filters: &[&[u8]],
    ) -> Result<Place> {
        let pages: Vec<u32> = (0..self.shape.slices)
            .map(|slice| self.page(old, slice))
            .collect();
        let mut slices: Vec<ChainPage> = if was_there {
            self.read(&pages)?
        } else {
            pages.iter().map(|_| ChainPage::empty()).collect()
        };
        debug_assert!(
            filters
                .windows(2)
                .all(|two| pointer_of(two[0]) < pointer_of(two[1]))
        );
        self.generation += 1;
        head.generation = self.generation;
        let place = old ^ 1;
        let (first, mut bytes) = (head.filters, Vec::new());
        head.filters += filters.len() as u32;
        for (number, slice) in (0..).zip(&mut slices) {
            for (i, filter) in (first..).zip(filters) {
                slice.append(&self.shape, number, i, filter);
            }
            bytes.extend_from_slice(slice.seal(head, self.page(place, number)));
        }
        self.disk
            .write_at(&bytes, u64::from(self.page(place, 0)) * PAGE_BYTES as u64)?;
        self.bytes_written += bytes.len() as u64;
        Ok(place)
    }

    /// Makes all writes durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.disk.sync()?)
    }

    /// Bytes of the places that count.
    pub fn disk_bytes(&self) -> u64 {
        u64::from(self.next - self.free.len() as u32)
            * u64::from(self.shape.slices)
            * PAGE_BYTES as u64
    }
}
