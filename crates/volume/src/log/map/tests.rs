//! Levels against one entry an LBN: memtables are added, merged, reopened and read, and zones are moved meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onefold_io::{MemDir, Random};

use super::extent::Extent;
use super::folder::MapFolder;
use super::levels::{Levels, Opening};
use super::memtable::Memtable;
use super::page_cache::PageCache;
use super::settle::{MergeSizes, Merger};
use crate::log::layout::{Address, Layout, WHOLE, ZoneId};

/// One entry for each LBN that is mapped.
type NaiveMap = BTreeMap<u64, Address>;

struct Trial {
    dir: MemDir,
    folder: MapFolder,
    cache: PageCache,
    levels: Levels,
    memtable: Memtable,
    naive: NaiveMap,
    chunk_pages: u32,
}

impl Trial {
    fn new(chunk_pages: u32) -> Self {
        let layout = Layout::new(1 << 30, chunk_pages * 4096).expect("large enough");
        let dir = MemDir::new();
        let none = BTreeSet::new();
        Self {
            folder: MapFolder::open(&dir, layout, 1, &none).expect("RAM"),
            dir,
            cache: PageCache::new(0),
            levels: Levels::default(),
            memtable: Memtable::new(chunk_pages),
            naive: NaiveMap::new(),
            chunk_pages,
        }
    }

    fn set(&mut self, lbn: u64, chunks: u64, target: Option<Address>) {
        self.memtable.set(lbn, chunks, target);
        for ahead in 0..chunks {
            match target {
                Some(first) => {
                    let page = first.page + ahead as u32 * self.chunk_pages;
                    self.naive.insert(lbn + ahead, Address { page, ..first });
                }
                None => _ = self.naive.remove(&(lbn + ahead)),
            }
        }
    }

    /// Makes a run of the memtable; chunks of zone `from` lie in zone `from + 100` from now on, where maps say so.
    fn checkpoint(&mut self, merge_all: bool) {
        let mut merger = Merger {
            folder: &self.folder,
            sizes: MergeSizes::SMALL,
            relocate: &|extent, visit| visit(extent),
            stop: &std::sync::atomic::AtomicBool::new(false),
            overwritten: 0,
            discarded: 0,
        };
        let mapped = self.levels.mapped() + self.memtable.mapped();
        let mut levels = merger.push(&self.levels, &self.memtable).expect("RAM");
        if levels.is_merge_due(merger.sizes.recent_max) {
            levels = merger.settle(&levels).expect("RAM");
        }
        if merge_all {
            levels = merger.merge_all(&levels).expect("RAM");
        }
        let hidden = merger.overwritten + merger.discarded;
        assert_eq!(levels.mapped() + hidden, mapped, "hidden LBNs are counted");
        self.levels = levels;
        self.memtable = Memtable::new(self.chunk_pages);
        let listed = self.levels.listed();
        let ids: BTreeSet<_> = listed.runs().map(|run| run.id).collect();
        self.folder.keep(&ids).expect("RAM");
        self.check_order();
    }

    /// Opens what is listed anew.
    fn reopen(&mut self) {
        let listed = self.levels.listed();
        let ids: BTreeSet<_> = listed.runs().map(|run| run.id).collect();
        let next = self.folder.next();
        self.folder = MapFolder::open(&self.dir, self.folder.layout, next, &ids).expect("RAM");
        self.levels = Opening::new(&self.folder, 1 << 20)
            .levels(&listed, true)
            .expect("whole");
    }

    fn check_order(&self) {
        for level in self.levels.newest_first() {
            let spans: Vec<_> = level.iter().map(|run| run.listed.span()).collect();
            assert!(spans.is_sorted_by(|a, b| a.end <= b.start), "{spans:?}");
        }
        assert!(self.levels.base.iter().all(|run| run.listed.holes == 0));
    }

    fn check(&self, lbns: std::ops::Range<u64>) {
        let mut at = lbns.start;
        self.levels
            .visit(lbns.clone(), &self.cache, &mut |extent| {
                assert_eq!(extent.lbn, at);
                at = extent.end();
                self.check_extent(&extent);
                true
            })
            .expect("RAM");
        assert_eq!(at, lbns.end);
    }

    fn check_extent(&self, extent: &Extent) {
        for ahead in 0..extent.chunks.min(2000) {
            let said = extent.target_at(ahead, self.chunk_pages);
            let lbn = extent.lbn + ahead;
            assert_eq!(said, self.naive.get(&lbn).copied(), "LBN {lbn}");
        }
    }

    /// A merge of all levels says what is mapped, once and in order.
    fn check_merge(&self) {
        let mut merge = self
            .levels
            .merge(0..u64::MAX, self.chunk_pages)
            .expect("RAM");
        let (mut at, mut mapped) = (0, 0);
        while let Some(extent) = merge.next().expect("RAM") {
            assert!(extent.lbn >= at);
            at = extent.end();
            mapped += extent.mapped();
            self.check_extent(&extent);
        }
        assert_eq!(mapped, self.naive.len() as u64);
    }
}

#[test]
fn levels_say_what_single_entries_do() {
    let (mut middles, mut bases) = (0, 0);
    for seed in 0..8 {
        let mut random = Random(seed);
        let chunk_pages = [1, 4][seed as usize % 2];
        let mut trial = Trial::new(chunk_pages);
        let lbns = [900, 20_000][seed as usize / 2 % 2];
        for round in 0..60 {
            for _ in 0..random.below(300) {
                let lbn = random.below(lbns);
                let long = random.one_in(40);
                let chunks = 1 + random.below(if long { 400 } else { 3 });
                let target = (!random.one_in(6) && !long).then(|| Address {
                    zone: ZoneId(1 + random.below(1000)),
                    page: 1 + random.below(20) as u32 * chunk_pages,
                    slot: WHOLE,
                });
                trial.set(lbn, chunks.min(lbns - lbn), target);
            }
            trial.checkpoint(random.one_in(20));
            trial.reopen();
            trial.check_merge();
            let start = random.below(lbns);
            trial.check(start..start + 1 + random.below(500));
            if round % 10 == 0 {
                trial.check(0..lbns + 10);
            }
            middles = middles.max(trial.levels.middle.len());
            bases = bases.max(trial.levels.base.len());
        }
    }
    assert!(
        middles > 3 && bases > 10,
        "{middles} and {bases} partitions"
    );
}

/// A discard of everything is one extent, and merging it reads none of the runs that it hides.
#[test]
fn what_a_long_discard_hides_is_dropped_unread() {
    let mut trial = Trial::new(1);
    for lbn in 0..20_000 {
        let zone = ZoneId(lbn % 7 + 1);
        trial.set(
            lbn * 2,
            1,
            Some(Address {
                zone,
                page: 5,
                slot: WHOLE,
            }),
        );
    }
    trial.checkpoint(true);
    assert!(trial.levels.base.len() > 10);
    trial.set(0, 40_000, None);
    assert_eq!(trial.memtable.len(), 1);
    trial.checkpoint(false);
    // Runs that cannot be read do not matter.
    for run in &trial.levels.base {
        let name = super::folder::file_name(run.listed.id);
        let dir = onefold_io::Dir::subdir(&trial.dir, super::folder::NAME).expect("RAM");
        let disk = dir.open_write(&name).expect("there");
        disk.write_at(&[0xFF; 4096], 0).expect("RAM");
    }
    trial.checkpoint(true);
    assert_eq!(trial.levels.runs().count(), 0);
    trial.check(0..50_000);
}

/// Readers keep the levels that they have, whatever is merged meanwhile.
#[test]
fn old_levels_stay_readable() {
    let mut trial = Trial::new(1);
    let at = |page| {
        Some(Address {
            zone: ZoneId(3),
            page,
            slot: WHOLE,
        })
    };
    (0..1000).for_each(|lbn| trial.set(lbn * 3, 1, at(7)));
    trial.checkpoint(true);
    let old = Arc::new(trial.levels.clone());
    (0..1000).for_each(|lbn| trial.set(lbn * 3, 1, at(9)));
    trial.checkpoint(true);
    let mut found = Vec::new();
    old.visit(3..4, &trial.cache, &mut |extent| {
        found.push(extent.target);
        true
    })
    .expect("the files are there as long as somebody has the levels");
    assert_eq!(found, [at(7)]);
    let files = || {
        let dir = onefold_io::Dir::subdir(&trial.dir, super::folder::NAME).expect("RAM");
        dir.list().expect("RAM").len()
    };
    let before = files();
    drop(old);
    let listed = trial.levels.listed();
    let ids: BTreeSet<_> = listed.runs().map(|run| run.id).collect();
    trial.folder.keep(&ids).expect("RAM");
    assert!(files() < before && files() == ids.len(), "no longer");
}
