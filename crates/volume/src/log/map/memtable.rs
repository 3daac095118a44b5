//! The newest changes of one head's map, in RAM. Holes have entries, since they hide what older levels say.

use std::collections::BTreeMap;
use std::ops::Range;

use super::extent::Extent;
use crate::log::layout::Address;

/// RAM of an entry in bytes: key, value, and the share of half-filled nodes of a B-tree.
pub const ENTRY_RAM_BYTES: usize = 64;

/// LBN → address, or hole. Invariant: extents do not overlap, and none is empty.
#[derive(Clone, Debug)]
pub struct Memtable {
    /// By first LBN.
    extents: BTreeMap<u64, MemtableEntry>,
    chunk_pages: u32,
    mapped: u64,
}

#[derive(Clone, Copy, Debug)]
struct MemtableEntry {
    chunks: u64,
    target: Option<Address>,
}

fn extent((lbn, entry): (&u64, &MemtableEntry)) -> Extent {
    Extent {
        lbn: *lbn,
        chunks: entry.chunks,
        target: entry.target,
    }
}

impl Memtable {
    /// An empty one; a chunk has this many pages.
    pub fn new(chunk_pages: u32) -> Self {
        Self {
            extents: BTreeMap::new(),
            chunk_pages,
            mapped: 0,
        }
    }

    /// LBNs that it maps to a chunk.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// How many extents it has.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Every extent, by LBN.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents.iter().map(extent)
    }

    /// Calls `visit` for each part of `lbns` in order, without gaps, until it gives `false`: with the extent that the
    /// memtable has there, cut to it, or with `None`.
    pub fn visit(
        &self,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Option<Extent>) -> bool,
    ) {
        let before = self.extents.range(..lbns.start).next_back().map(extent);
        let reaching = before.filter(|before| before.end() > lbns.start);
        let within = self.extents.range(lbns.clone()).map(extent);
        let mut at = lbns.start;
        for found in reaching.into_iter().chain(within) {
            if found.lbn > at && !visit(at..found.lbn, None) {
                return;
            }
            let found = found.cut(&lbns, self.chunk_pages);
            at = found.end();
            if !visit(found.lbn..at, Some(found)) {
                return;
            }
        }
        if at < lbns.end {
            visit(at..lbns.end, None);
        }
    }

    /// Maps `chunks` LBNs from `lbn` on to chunks that lie one behind the other from `target` on; `None` makes a hole.
    /// Returns how many of them it had mapped before.
    pub fn set(&mut self, lbn: u64, chunks: u64, target: Option<Address>) -> u64 {
        if chunks == 0 {
            return 0;
        }
        let replaced = self.cut_out(lbn..lbn + chunks);
        let new = Extent {
            lbn,
            chunks,
            target,
        };
        self.mapped = self.mapped - replaced + new.mapped();
        self.put(new);
        replaced
    }

    /// Removes what lies in `lbns`, keeping the ends of extents that reach out of it.
    fn cut_out(&mut self, lbns: Range<u64>) -> u64 {
        let mut removed = 0;
        let before = self.extents.range(..lbns.start).next_back().map(extent);
        if let Some(before) = before.filter(|before| before.end() > lbns.start) {
            self.insert(before.cut(&(before.lbn..lbns.start), self.chunk_pages));
            removed += before.cut(&lbns, self.chunk_pages).mapped();
            self.insert_rest(before, lbns.end);
        }
        while let Some(found) = self.extents.range(lbns.clone()).next().map(extent) {
            self.extents.remove(&found.lbn);
            removed += found.cut(&lbns, self.chunk_pages).mapped();
            self.insert_rest(found, lbns.end);
        }
        removed
    }

    /// Puts back what of an extent lies at or behind `from`.
    fn insert_rest(&mut self, extent: Extent, from: u64) {
        if extent.end() > from {
            self.insert(extent.cut(&(from..extent.end()), self.chunk_pages));
        }
    }

    fn insert(&mut self, extent: Extent) {
        let entry = MemtableEntry {
            chunks: extent.chunks,
            target: extent.target,
        };
        self.extents.insert(extent.lbn, entry);
    }

    /// Adds an extent over LBNs that have none, joined with its neighbours where chunks go on there.
    fn put(&mut self, mut new: Extent) {
        let before = self.extents.range(..new.lbn).next_back().map(extent);
        if let Some(before) = before.filter(|it| it.is_followed_by(&new, self.chunk_pages)) {
            new = Extent {
                chunks: before.chunks + new.chunks,
                ..before
            };
        }
        let after = self.extents.get_key_value(&new.end()).map(extent);
        if let Some(after) = after.filter(|it| new.is_followed_by(it, self.chunk_pages)) {
            self.extents.remove(&after.lbn);
            new.chunks += after.chunks;
        }
        self.insert(new);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use onefold_io::Random;

    use super::*;
    use crate::log::layout::{WHOLE, ZoneId};

    #[test]
    fn extents_map_as_single_entries_do() {
        for (seed, chunk_pages) in [(1, 1), (2, 4)] {
            let mut random = Random(seed);
            let mut table = Memtable::new(chunk_pages);
            let mut naive: HashMap<u64, Option<Address>> = HashMap::new();
            for _ in 0..20_000 {
                let (lbn, chunks) = (random.below(300), random.below(20));
                let target = (!random.one_in(4)).then(|| Address {
                    zone: ZoneId(random.below(3)),
                    page: random.below(40) as u32 * chunk_pages,
                    slot: WHOLE,
                });
                let replaced = table.set(lbn, chunks, target);
                let mut expected = 0;
                for ahead in 0..chunks {
                    let new = target.map(|first| Address {
                        page: first.page + ahead as u32 * chunk_pages,
                        ..first
                    });
                    let old = naive.insert(lbn + ahead, new).flatten();
                    expected += u64::from(old.is_some());
                }
                assert_eq!(replaced, expected);
                let mapped = naive.values().flatten().count() as u64;
                assert_eq!(table.mapped(), mapped);
            }
            let mut at = 5;
            table.visit(5..330, &mut |lbns, found| {
                assert_eq!(lbns.start, at);
                for lbn in lbns.clone() {
                    let said = found.map(|extent| extent.target_at(lbn - extent.lbn, chunk_pages));
                    assert_eq!(said, naive.get(&lbn).copied(), "LBN {lbn}");
                }
                at = lbns.end;
                true
            });
            assert_eq!(at, 330);
            assert!(table.len() < naive.len());
        }
    }

    #[test]
    fn what_is_written_in_order_is_one_extent() {
        let mut table = Memtable::new(1);
        for page in 0..1000 {
            let zone = ZoneId(1);
            table.set(
                u64::from(page),
                1,
                Some(Address {
                    zone,
                    page,
                    slot: WHOLE,
                }),
            );
        }
        assert_eq!(table.len(), 1);
        table.set(0, 1 << 40, None);
        assert_eq!((table.len(), table.mapped()), (1, 0));
    }
}
