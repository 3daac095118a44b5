//! Reference counts: pages of the counts of 1,000 neighbouring blocks each, and a tree that leads to them. Blocks of a
//! page that is not there have the count 0.

use super::page::{BODY_AT, CbtPageHead, PageKind};
use super::pager::Pager;
use super::tree::{CbtTree, NodeEntries};
use crate::Result;
use crate::block_states::Scan;

/// Blocks of a page.
pub(super) const COUNTS_IN_PAGE: u64 = 1000;

pub(super) const COUNTS: CbtPageHead = CbtPageHead {
    kind: PageKind::Counts,
    level: 0,
    key_bytes: 0,
};

/// The counts of all blocks.
#[derive(Clone, Copy)]
pub(super) struct ReferenceCounts {
    pub tree: CbtTree,
}

impl ReferenceCounts {
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn get(&self, pager: &mut Pager, block: u64) -> Result<u32> {
        let (key, at) = place(block);
        Ok(match self.tree.get(pager, &key)? {
            None => 0,
            Some(number) => count_at(pager.read(number, COUNTS)?, at),
        })
    }

    /// # Errors
    /// As of [`CbtTree::insert`].
    pub fn set(
        &mut self,
        pager: &mut Pager,
        nodes: NodeEntries,
        block: u64,
        count: u32,
    ) -> Result<()> {
        let (key, at) = place(block);
        let old = self.tree.get(pager, &key)?;
        let number = match old {
            None => pager.make(COUNTS)?,
            Some(number) => pager.shadow(number, COUNTS)?,
        };
        pager.change(number)?[at..at + 4].copy_from_slice(&count.to_le_bytes());
        if old == Some(number) {
            Ok(())
        } else {
            self.tree.insert(pager, nodes, &key, number)
        }
    }

    /// Looks for a block without references, from `from` to the end of its page, or of `blocks`.
    ///
    /// # Errors
    /// As of [`get`](Self::get).
    pub fn scan(
        &self,
        pager: &mut Pager,
        from: u64,
        blocks: u64,
        is_taken: &dyn Fn(u64) -> bool,
    ) -> Result<Scan> {
        let (key, at) = place(from);
        let end = blocks.min((from / COUNTS_IN_PAGE + 1) * COUNTS_IN_PAGE);
        let free = match self.tree.get(pager, &key)? {
            None => (from..end).find(|block| !is_taken(*block)),
            Some(number) => {
                let counts = pager.read(number, COUNTS)?;
                let mut places = (from..end).zip((at..).step_by(4));
                let free =
                    places.find(|(block, at)| count_at(counts, *at) == 0 && !is_taken(*block));
                free.map(|(block, _)| block)
            }
        };
        Ok(free.map_or(Scan::Next(end), Scan::Free))
    }
}

/// Key of the page, and offset in it.
fn place(block: u64) -> ([u8; 8], usize) {
    let at = (block % COUNTS_IN_PAGE) as usize * 4;
    ((block / COUNTS_IN_PAGE).to_be_bytes(), BODY_AT + at)
}

pub(super) fn count_at(page: &[u8], at: usize) -> u32 {
    let mut count = [0; 4];
    count.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(count)
}
