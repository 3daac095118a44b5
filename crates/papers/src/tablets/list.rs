//! The list of sealed tablets: in which order they are searched, and which are in RAM (PRUNE §3.3).
//!
//! Always holds: at most as many tablets are resident as the options say. The order changes what a lookup costs, never
//! what it answers.

use onefold_chunk::Fingerprint;

use super::tablet::Tablet;
use super::{Search, TabletsOptions};
use onefold_index::Result;
use onefold_index::strata::log::Said;

/// Hits on a tablet, one after the other, that make it resident: a stream that comes again, and not a key at random.
const RUN: u32 = 8;

/// Sealed tablets, in the order in which they are searched, and which of them are in RAM.
pub struct TabletList {
    /// In the order in which they are searched.
    pub tablets: Vec<Tablet>,
    search: Search,
    cache_tablets: usize,
    /// The tablet of the last hit, and how many hits it had in a row.
    run: (u32, u32),
    now: u64,
    /// Pages and whole tablets read by lookups.
    pub reads: u64,
    /// Of those, pages that did not hold the key.
    pub false_reads: u64,
    /// Tablets whose filter was asked.
    pub asked: u64,
}

impl TabletList {
    /// Of these tablets, the oldest first.
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

    /// Adds a tablet that was sealed just now, at the end (PRUNE, fig. 8).
    pub fn push(&mut self, tablet: Tablet) {
        self.tablets.push(tablet);
    }

    /// What the first tablet that holds `key` says, or the tablet `only` where the newest is known.
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
            // the successor in the list comes with it, right behind
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

    /// Makes a tablet resident, in place of the one that was not needed for longest.
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

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.tablets.iter().map(Tablet::ram_bytes).sum()
    }
}
