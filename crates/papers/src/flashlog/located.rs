//! The place of a key's record, and whether the record still counts: the end of every lookup and walk over pages.

use onefold_chunk::Fingerprint;

use super::{FlashLog, RecordPage};
use onefold_index::strata::log::Said;
use onefold_index::{IndexStats, Location, Result};

/// The place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordPlace {
    /// In a write buffer.
    Buffer,
    /// In the log page of this number.
    Page(u32),
}

/// The newest record of a key, and its place; `None` without a record.
pub type Located = Option<(RecordPlace, Said)>;

/// A store that keeps its records in a [`FlashLog`].
pub trait Locate {
    /// The log, and the counters of reads.
    fn parts(&mut self) -> (&FlashLog, &mut IndexStats);

    /// Looks up the newest record of each key, and its place.
    fn locate(&mut self, keys: &[Fingerprint]) -> Result<Vec<Located>>;

    /// Answers a lookup: locations in containers that are not retired.
    fn answer(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        let located = self.locate(keys)?;
        let (log, stats) = self.parts();
        for (slot, located) in found.iter_mut().zip(located) {
            *slot = located
                .and_then(|(_, said)| said)
                .filter(|container| !log.is_retired(container))
                .map(|container| Location { container });
            stats.hits += u64::from(slot.is_some());
        }
        stats.lookups += found.len() as u64;
        Ok(())
    }

    /// The records of `page`, which is at `at`, that a lookup finds there: the newest of their keys, in containers that
    /// are not retired.
    fn live(&mut self, page: &RecordPage, at: RecordPlace) -> Result<Vec<(Fingerprint, Location)>> {
        let before = *self.parts().1;
        let keys: Vec<Fingerprint> = page.records().map(|record| record.key).collect();
        let located = self.locate(&keys)?;
        let (log, stats) = self.parts();
        // this lookup is not counted: no caller asked for it
        *stats = before;
        let live = keys.iter().zip(located).filter_map(|(key, located)| {
            let (place, said) = located?;
            let container = said.filter(|gone| place == at && !log.is_retired(gone))?;
            Some((*key, Location { container }))
        });
        Ok(live.collect())
    }

    /// Passes the live records of `page`, which is at `at`, to `visit`.
    fn visit_page(
        &mut self,
        page: &RecordPage,
        at: RecordPlace,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.live(page, at)?
            .into_iter()
            .try_for_each(|(key, location)| visit(key, location))
    }

    /// Passes the live records of the whole log to `visit`.
    fn visit_log(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for number in self.parts().0.range() {
            let page = self.parts().0.read(number)?;
            self.visit_page(&page, RecordPlace::Page(number), visit)?;
        }
        Ok(())
    }
}
