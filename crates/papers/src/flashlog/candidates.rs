//! Reading the pages that may hold a key, for many keys at once.

use onefold_chunk::Fingerprint;

use super::{FlashLog, Located, RecordPlace};
use onefold_index::{IndexStats, Result};

/// The pages of the log that are still to be read for one key of a lookup.
pub struct UnreadPages {
    /// Position of the key in the lookup.
    pub place: usize,
    /// Page numbers; the next one to read stands last.
    pub pages: Vec<u32>,
}

impl FlashLog {
    /// Reads candidates until each key is found or has none left: a page of each key at a time, in one batch of reads.
    /// Collected pages are skipped.
    pub fn read_candidates<'a>(
        &self,
        keys: &[Fingerprint],
        found: &mut [Located],
        searches: impl Iterator<Item = &'a mut UnreadPages>,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let mut searches: Vec<&mut UnreadPages> = searches.collect();
        let head = self.range().start;
        loop {
            searches.retain(|search| found[search.place].is_none());
            let next = searches.iter_mut().filter_map(|search| {
                let page = search.pages.pop().filter(|page| *page >= head)?;
                Some((search.place, page))
            });
            let (asked, pages): (Vec<usize>, Vec<u32>) = next.unzip();
            if asked.is_empty() {
                return Ok(());
            }
            stats.lookup_reads += pages.len() as u64;
            for ((place, number), page) in
                asked.into_iter().zip(&pages).zip(self.read_many(&pages)?)
            {
                match page.find(&keys[place]) {
                    Some(said) => found[place] = Some((RecordPlace::Page(*number), said)),
                    None => stats.false_reads += 1,
                }
            }
        }
    }
}
