//! Hinted ranges of volumes: advice that users give for a while, kept in RAM alone.
//!
//! Invariant: ranges of one kind on one volume do not overlap, and there are at most [`RANGES_MAX`] in all.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::HintKind;
use crate::{Error, HeadId, Hints, Result};

/// Ranges at most, of all volumes and kinds: some 5 MiB of RAM.
pub const RANGES_MAX: usize = 1 << 16;

/// A hinted range ends never, where it has this end in time.
pub const NO_END: u64 = u64::MAX;

/// The hinted ranges of all volumes. Times are nanoseconds from any start.
#[derive(Default)]
pub struct HintRanges {
    volumes: HashMap<HeadId, [RangeList; HintKind::ALL.len()]>,
    count: usize,
}

/// Ranges of one kind on one volume, by their first LBN.
type RangeList = BTreeMap<u64, Hinted>;

/// End of a hinted range, in LBNs and in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hinted {
    end: u64,
    until: u64,
}

impl HintRanges {
    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives a hint for ranges of LBNs, in place of what was said of them before.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there would be too many ranges; nothing was changed.
    pub fn insert(
        &mut self,
        head: HeadId,
        kind: HintKind,
        lbns: &[Range<u64>],
        until: u64,
        now: u64,
    ) -> Result<()> {
        // A range that is put into the middle of another one makes three of it.
        let more = lbns.len().saturating_mul(2);
        if self.count.saturating_add(more) > RANGES_MAX {
            self.drop_ended(now);
        }
        if self.count.saturating_add(more) > RANGES_MAX {
            return Err(Error::Invalid {
                what: format!(
                    "{} more ranges with hints beside the {} that there are, where {} are left: end some (`onefold volume unhint`), or give fewer",
                    lbns.len(),
                    self.count,
                    RANGES_MAX.saturating_sub(self.count) / 2
                ),
            });
        }
        let list = &mut self.volumes.entry(head).or_default()[kind as usize];
        let before = list.len();
        for range in lbns.iter().filter(|range| range.start < range.end) {
            cut(list, range, usize::MAX);
            add(list, range.clone(), until);
        }
        self.count = self.count - before + list.len();
        Ok(())
    }

    /// Ends hints of some kinds for ranges of LBNs, or, without ranges, for the whole volume.
    pub fn remove(&mut self, head: HeadId, kinds: &[HintKind], lbns: Option<&[Range<u64>]>) {
        let Some(lists) = self.volumes.get_mut(&head) else {
            return;
        };
        for kind in kinds {
            let list = &mut lists[*kind as usize];
            let before = list.len();
            match lbns {
                None => list.clear(),
                Some(lbns) => {
                    let others = self.count - before;
                    for range in lbns.iter().filter(|range| range.start < range.end) {
                        cut(list, range, RANGES_MAX - others);
                    }
                }
            }
            self.count = self.count - before + list.len();
        }
        if lists.iter().all(BTreeMap::is_empty) {
            self.volumes.remove(&head);
        }
    }

    /// The hints of one chunk.
    pub fn at(&self, head: HeadId, lbn: u64, now: u64) -> Hints {
        let Some(lists) = self.volumes.get(&head) else {
            return Hints::default();
        };
        let is_in = |list: &RangeList| {
            let found = list.range(..=lbn).next_back();
            found.is_some_and(|(_, hinted)| lbn < hinted.end && now < hinted.until)
        };
        let kinds = HintKind::ALL.into_iter();
        let given = kinds.filter(|kind| is_in(&lists[*kind as usize]));
        given.fold(Hints::default(), Hints::with)
    }

    /// Forgets ranges of which the time is over.
    pub fn drop_ended(&mut self, now: u64) {
        for list in self.volumes.values_mut().flatten() {
            list.retain(|_, hinted| now < hinted.until);
        }
        self.volumes
            .retain(|_, lists| lists.iter().any(|list| !list.is_empty()));
        let lists = self.volumes.values().flatten();
        self.count = lists.map(BTreeMap::len).sum();
    }
}

/// Takes a range out of all that overlap it. Where a list has `most` ranges, what is behind the cut is dropped, too: it
/// is advice.
fn cut(list: &mut RangeList, range: &Range<u64>, most: usize) {
    let before = list.range_mut(..range.start).next_back();
    if let Some((_, hinted)) = before
        && hinted.end > range.start
    {
        let behind = *hinted;
        hinted.end = range.start;
        if behind.end > range.end && list.len() < most {
            list.insert(range.end, behind);
        }
    }
    while let Some((start, hinted)) = list.range(range.clone()).next() {
        let (start, hinted) = (*start, *hinted);
        list.remove(&start);
        if hinted.end > range.end {
            list.insert(range.end, hinted);
        }
    }
}

/// Adds a range that overlaps none, and joins it with neighbours that end at the same time.
fn add(list: &mut RangeList, mut range: Range<u64>, until: u64) {
    if let Some(next) = list.get(&range.end)
        && next.until == until
    {
        let end = next.end;
        list.remove(&range.end);
        range.end = end;
    }
    if let Some((_, last)) = list.range_mut(..range.start).next_back()
        && last.end == range.start
        && last.until == until
    {
        last.end = range.end;
        return;
    }
    let end = range.end;
    list.insert(range.start, Hinted { end, until });
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    const HEAD: HeadId = HeadId(3);

    /// An array of ends in time says the same.
    #[test]
    fn ranges_are_what_an_array_says() {
        const LBNS: u64 = 60;
        for seed in 0..30 {
            let mut random = Random(seed);
            let mut ranges = HintRanges::default();
            let mut twin = [[0u64; LBNS as usize]; HintKind::ALL.len()];
            for _ in 0..200 {
                let start = random.below(LBNS);
                let range = start..start + random.below(LBNS - start + 1);
                let kind = HintKind::ALL[random.below(3) as usize];
                let now = random.below(8);
                let cells = &mut twin[kind as usize][range.start as usize..range.end as usize];
                match random.below(3) {
                    0 => {
                        cells.fill(0);
                        ranges.remove(HEAD, &[kind], Some(&[range]));
                    }
                    _ => {
                        let until = 1 + random.below(7);
                        cells.fill(until);
                        let given = ranges.insert(HEAD, kind, &[range], until, now);
                        given.expect("there is room");
                    }
                }
                for lbn in 0..LBNS {
                    let kinds = HintKind::ALL.into_iter();
                    let expected = kinds
                        .filter(|kind| now < twin[*kind as usize][lbn as usize])
                        .fold(Hints::default(), Hints::with);
                    assert_eq!(ranges.at(HEAD, lbn, now), expected, "seed {seed}, {lbn}");
                }
            }
            let lists = &ranges.volumes.get(&HEAD);
            let counted = lists.map_or(0, |lists| lists.iter().map(BTreeMap::len).sum());
            assert_eq!(ranges.count(), counted, "seed {seed}");
            ranges.remove(HEAD, &HintKind::ALL, None);
            assert_eq!(ranges.count(), 0);
        }
    }

    #[test]
    fn there_are_never_more_ranges_than_there_is_room_for() {
        let mut ranges = HintRanges::default();
        let every_other = |count: usize| -> Vec<_> {
            let starts = (0..count as u64).map(|at| at * 2);
            starts.map(|start| start..start + 1).collect()
        };
        let half = every_other(RANGES_MAX / 2);
        let given = ranges.insert(HEAD, HintKind::Nodedup, &half, 10, 0);
        given.expect("half of them fit");
        let error = ranges.insert(HEAD, HintKind::Prefetch, &half, 10, 0);
        let error = error.expect_err("as many again do not").to_string();
        assert!(error.contains("unhint"), "{error}");
        assert_eq!(ranges.count(), RANGES_MAX / 2);
        // Ranges that have ended make room.
        let given = ranges.insert(HEAD, HintKind::Prefetch, &half, 20, 10);
        given.expect("the others have ended");
        assert_eq!(ranges.count(), RANGES_MAX / 2);
        // Nor do holes make more.
        let whole = 0..u64::MAX;
        let given = ranges.insert(HEAD, HintKind::Nodedup, &[whole], NO_END, 10);
        given.expect("one more fits");
        let holes = every_other(RANGES_MAX);
        ranges.remove(HEAD, &[HintKind::Nodedup], Some(&holes));
        assert!(ranges.count() <= RANGES_MAX, "{}", ranges.count());
        assert!(!ranges.at(HEAD, 0, 10).nodedup && ranges.at(HEAD, 1, 10).nodedup);
    }
}
