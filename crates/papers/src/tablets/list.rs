//! The list of sealed tablets: the order in which they are searched, and those in RAM (PRUNE §3.3).
//!
//! Invariant: at most as many tablets are resident as the options say. The order changes the costs of a lookup,
//! never its answer.

use onefold_chunk::Fingerprint;

use super::tablet::Tablet;
use super::{Search, TabletsOptions};
use onefold_index::Result;
use onefold_index::strata::log::Said;

/// Number of consecutive hits that make a tablet resident: a sign of a stream that comes again, not of a random key.
const RUN: u32 = 8;

/// Sealed tablets, in the order in which they are searched, some of them in RAM.
pub struct TabletList {
    /// Tablets in the order in which they are searched.
    pub tablets: Vec<Tablet>,
    search: Search,
    cache_tablets: usize,
    /// The tablet of the last hit, and the number of its hits in a row.
    run: (u32, u32),
    now: u64,
    /// Reads of pages and whole tablets by lookups.
    pub reads: u64,
    /// Reads of pages that did not hold the key.
    pub false_reads: u64,
    /// Number of tablets whose filter was asked.
    pub asked: u64,
}

impl TabletList {
    /// The list of these tablets, oldest first.
    pub fn new(tablets: Vec<Tablet>, options: &TabletsOptions) -> TabletList {
        TabletList {
            tablets,
            search: options.search,
            cache_tablets: options.cache_tablets,
            run: (0, 0),
            now: 0,
            reads: 0,
            false_reads: 0,
            asked: 0,
        }
    }

    /// Adds a newly sealed tablet at the end (PRUNE, fig. 8).
    pub fn push(&mut self, tablet: Tablet) {
        self.tablets.push(tablet);
    }

    /// The record of `key` in the first tablet that holds it, or in the tablet `only` where the newest one is known.
    pub fn find(&mut self, key: &Fingerprint, only: Option<u32>) -> Result<Option<Said>> {
        for place in 0..self.tablets.len() {
            let tablet = &mut self.tablets[place];
            if only.is_some_and(|only| only != tablet.number) {
                continue;
            }
            self.asked += 1;
            if !tablet.may_hold(key)? {
                continue;
            }
            self.now += 1;
            let is_read = tablet.resident_since().is_none();
            let found = tablet.find(key, self.now)?;
            self.reads += u64::from(is_read);
            self.false_reads += u64::from(is_read && found.is_none());
            if found.is_some() {
                self.hit(place)?;
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn hit(&mut self, mut place: usize) -> Result<()> {
        let number = self.tablets[place].number;
        self.run = match self.run {
            (last, hits) if last == number => (last, hits.saturating_add(1)),
            _ => (number, 1),
        };
        let brings_next = self.search == Search::LruPrefetch;
        if self.search != Search::Linear && place > 0 {
            self.tablets[..=place].rotate_right(1);
            // the successor in the list moves, too, right behind
            if brings_next && place + 1 < self.tablets.len() {
                self.tablets[1..=place + 1].rotate_right(1);
            }
            place = 0;
        }
        if self.run.1 == RUN {
            self.bring(place)?;
            if brings_next && place + 1 < self.tablets.len() {
                self.bring(place + 1)?;
            }
        }
        Ok(())
    }

    /// Makes a tablet resident, in place of the one that was unused for longest.
    fn bring(&mut self, place: usize) -> Result<()> {
        if self.tablets[place].resident_since().is_some() || self.cache_tablets == 0 {
            return Ok(());
        }
        let resident = |tablet: &&mut Tablet| tablet.resident_since().is_some();
        if self.tablets.iter_mut().filter(resident).count() >= self.cache_tablets {
            let oldest = self
                .tablets
                .iter_mut()
                .filter(resident)
                .min_by_key(|tablet| tablet.resident_since());
            if let Some(oldest) = oldest {
                oldest.unload();
            }
        }
        self.now += 1;
        self.reads += 1;
        self.tablets[place].load(self.now)
    }

    /// RAM of all tablets, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.tablets.iter().map(Tablet::ram_bytes).sum()
    }
}
