//! Where a key was found, and what of that is still true: the end of every lookup and of every walk over pages.

use onefold_chunk::Fingerprint;

use super::{FlashLog, RecordPage};
use onefold_index::strata::log::Said;
use onefold_index::{IndexStats, Location, Result};

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// In a write buffer.
    Buffer,
    /// In this page of the log.
    Page(u32),
}

/// What is said of a key, and where; `None` where nothing is.
pub type Located = Option<(At, Said)>;

/// A store that keeps its records in such a log.
pub trait Locate {
    /// The log, and where reads are counted.
    fn parts(&mut self) -> (&FlashLog, &mut IndexStats);

    /// What is said of each key, and where.
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

    /// Those of `page`, which is at `at`, that a lookup finds there: the newest of their keys, in containers that are
    /// not retired.
    fn live(&mut self, page: &RecordPage, at: At) -> Result<Vec<(Fingerprint, Location)>> {
        let before = *self.parts().1;
        let keys: Vec<Fingerprint> = page.records().map(|record| record.key).collect();
        let located = self.locate(&keys)?;
        let (log, stats) = self.parts();
        // no lookup of a caller's
        *stats = before;
        let live = keys.iter().zip(located).filter_map(|(key, located)| {
            let (place, said) = located?;
            let container = said.filter(|gone| place == at && !log.is_retired(gone))?;
            Some((*key, Location { container }))
        });
        Ok(live.collect())
    }

    /// Shows what is live of `page`, which is at `at`.
    fn visit_page(
        &mut self,
        page: &RecordPage,
        at: At,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.live(page, at)?
            .into_iter()
            .try_for_each(|(key, location)| visit(key, location))
    }

    /// Shows what is live of the log.
    fn visit_log(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for number in self.parts().0.range() {
            let page = self.parts().0.read(number)?;
            self.visit_page(&page, At::Page(number), visit)?;
        }
        Ok(())
    }
}
