//! The block map of one head: LBN → address, as extents.
//!
//! An extent maps neighbouring LBNs to chunks that lie one behind the other, so a file that was written in order costs
//! one entry however long it is. Holes have no entry.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::Address;

/// LBN → address of one head, in RAM. Always holds: extents do not overlap, and none is empty.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ExtentMap {
    /// By first LBN.
    extents: BTreeMap<u64, Extent>,
    /// LBNs that are mapped.
    mapped: u64,
}

/// Neighbouring LBNs and where their chunks lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many chunks.
    pub chunks: u64,
    /// Where the first one lies.
    pub target: Address,
}

impl Extent {
    /// The address of the chunk `ahead` chunks behind the first.
    pub fn target_at(&self, ahead: u64, chunk_pages: u32) -> Address {
        Address {
            zone: self.target.zone,
            page: self.target.page + ahead as u32 * chunk_pages,
        }
    }
}

impl ExtentMap {
    /// LBNs that are mapped.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Entries of the map.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Every extent, by LBN.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.extents.iter().map(|(lbn, extent)| (*lbn, *extent))
    }

    /// Where the chunk of `lbn` lies.
    pub fn get(&self, lbn: u64, chunk_pages: u32) -> Option<Address> {
        let (start, extent) = self.extents.range(..=lbn).next_back()?;
        let ahead = lbn - start;
        (ahead < extent.chunks).then(|| extent.target_at(ahead, chunk_pages))
    }

    /// The first extent that ends behind `lbn`, cut to begin at `lbn` or later.
    pub fn next_from(&self, lbn: u64, chunk_pages: u32) -> Option<(u64, Extent)> {
        if let Some(target) = self.get(lbn, chunk_pages) {
            let (start, extent) = self
                .extents
                .range(..=lbn)
                .next_back()
                .expect("found before");
            let chunks = extent.chunks - (lbn - start);
            return Some((lbn, Extent { chunks, target }));
        }
        let (start, extent) = self.extents.range(lbn..).next()?;
        Some((*start, *extent))
    }

    /// Maps `chunks` LBNs from `lbn` on to chunks that lie one behind the other from `target` on; `None` unmaps them.
    /// Returns how many of them were mapped before.
    pub fn set(&mut self, lbn: u64, chunks: u64, target: Option<Address>, chunk_pages: u32) -> u64 {
        if chunks == 0 {
            return 0;
        }
        let replaced = self.cut_out(lbn..lbn + chunks, chunk_pages);
        self.mapped -= replaced;
        if let Some(target) = target {
            self.mapped += chunks;
            self.put(lbn, Extent { chunks, target }, chunk_pages);
        }
        replaced
    }

    /// Removes what lies in `lbns`, keeping the ends of extents that reach out of it.
    fn cut_out(&mut self, lbns: Range<u64>, chunk_pages: u32) -> u64 {
        let mut removed = 0;
        let before = self.extents.range(..lbns.start).next_back();
        if let Some((start, extent)) = before.map(|(start, extent)| (*start, *extent)) {
            let end = start + extent.chunks;
            if end > lbns.start {
                self.extents.insert(
                    start,
                    Extent {
                        chunks: lbns.start - start,
                        ..extent
                    },
                );
                removed += end.min(lbns.end) - lbns.start;
                self.put_rest(start, extent, lbns.end, chunk_pages);
            }
        }
        while let Some((start, extent)) = self
            .extents
            .range(lbns.clone())
            .next()
            .map(|(s, e)| (*s, *e))
        {
            self.extents.remove(&start);
            removed += (start + extent.chunks).min(lbns.end) - start;
            self.put_rest(start, extent, lbns.end, chunk_pages);
        }
        removed
    }

    /// Puts back what of an extent lies at or behind `from`.
    fn put_rest(&mut self, start: u64, extent: Extent, from: u64, chunk_pages: u32) {
        let end = start + extent.chunks;
        if end > from {
            let target = extent.target_at(from - start, chunk_pages);
            self.extents.insert(
                from,
                Extent {
                    chunks: end - from,
                    target,
                },
            );
        }
    }

    /// Adds an extent over LBNs that are not mapped, joined with its neighbours where chunks go on there.
    fn put(&mut self, mut lbn: u64, mut extent: Extent, chunk_pages: u32) {
        let follows = |first: &Extent, second: &Extent| {
            first.target_at(first.chunks, chunk_pages) == second.target
        };
        let before = self.extents.range(..lbn).next_back();
        if let Some((start, before)) = before.map(|(start, extent)| (*start, *extent))
            && start + before.chunks == lbn
            && follows(&before, &extent)
        {
            lbn = start;
            extent = Extent {
                chunks: before.chunks + extent.chunks,
                ..before
            };
        }
        let end = lbn + extent.chunks;
        if let Some(after) = self.extents.get(&end).copied()
            && follows(&extent, &after)
        {
            self.extents.remove(&end);
            extent.chunks += after.chunks;
        }
        self.extents.insert(lbn, extent);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use onefold_io::Random;

    use super::super::layout::ZoneId;
    use super::*;

    /// One entry for each LBN.
    #[derive(Default)]
    struct NaiveMap(HashMap<u64, Address>);

    #[test]
    fn extents_map_as_single_entries_do() {
        for (seed, chunk_pages) in [(1, 1), (2, 4)] {
            let mut random = Random(seed);
            let (mut map, mut naive) = (ExtentMap::default(), NaiveMap::default());
            for _ in 0..20_000 {
                let (lbn, chunks) = (random.below(300), random.below(20));
                let target = (!random.one_in(4)).then(|| Address {
                    zone: ZoneId(random.below(3)),
                    page: random.below(40) as u32 * chunk_pages,
                });
                let replaced = map.set(lbn, chunks, target, chunk_pages);
                let mut expected = 0;
                for ahead in 0..chunks {
                    let old = match target {
                        Some(target) => naive.0.insert(
                            lbn + ahead,
                            Address {
                                page: target.page + ahead as u32 * chunk_pages,
                                ..target
                            },
                        ),
                        None => naive.0.remove(&(lbn + ahead)),
                    };
                    expected += u64::from(old.is_some());
                }
                assert_eq!(replaced, expected);
                assert_eq!(map.mapped(), naive.0.len() as u64);
            }
            for lbn in 0..330 {
                assert_eq!(map.get(lbn, chunk_pages), naive.0.get(&lbn).copied());
                let next = (lbn..400).find(|lbn| naive.0.contains_key(lbn));
                assert_eq!(map.next_from(lbn, chunk_pages).map(|(lbn, _)| lbn), next);
            }
            assert!(map.extents() < naive.0.len());
        }
    }

    #[test]
    fn what_is_written_in_order_is_one_extent() {
        let mut map = ExtentMap::default();
        for page in 0..1000 {
            let target = Address {
                zone: ZoneId(1),
                page,
            };
            map.set(u64::from(page), 1, Some(target), 1);
        }
        assert_eq!(map.extents(), 1);
        map.set(0, 1 << 40, None, 1);
        assert_eq!((map.extents(), map.mapped()), (0, 0));
    }
}
