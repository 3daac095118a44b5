//! Looking through all pages: every page that a tree leads to is whole, is led to once, and is in use; no other is.

use std::collections::HashSet;

use super::Cbt;
use super::counts::COUNTS;
use super::node;
use super::page;
use super::space::GROUP_PAGES;
use super::tree::CbtTree;
use crate::{Error, Finding, Result};

/// Findings that are listed.
const LISTED_MAX: usize = 100;

/// A bit for each page.
struct SeenPages(Vec<u64>);

impl SeenPages {
    /// Whether the page was seen before.
    fn add(&mut self, page: u64) -> bool {
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        match self.0.get_mut(word) {
            Some(word) => {
                let was_seen = *word & bit != 0;
                *word |= bit;
                was_seen
            }
            None => false,
        }
    }

    fn has(&self, page: u64) -> bool {
        self.0
            .get((page / 64) as usize)
            .is_some_and(|word| word >> (page % 64) & 1 == 1)
    }
}

impl Cbt {
    /// Everything that is amiss with the pages.
    ///
    /// # Errors
    /// The device failed. Damage is no error.
    pub(super) fn verify(&mut self) -> Result<Vec<Finding>> {
        let end = self.pager.space().end();
        let mut walk = TreeWalk {
            seen: SeenPages(vec![0; end.div_ceil(64) as usize]),
            findings: Vec::new(),
        };
        let mut trees = vec![self.counts.tree];
        trees.extend(self.stores.iter().map(|store| store.tree));
        for (number, tree) in trees.into_iter().enumerate() {
            if tree.root != 0 {
                let entries = walk.below(self, &tree, tree.root, tree.level, number == 0)?;
                if entries != tree.entries {
                    walk.find(format!(
                        "tree {number} has {entries} entries, expected {}",
                        tree.entries
                    ));
                }
            }
        }
        let is_whole = walk.findings.is_empty();
        let space = self.pager.space();
        let freed: HashSet<u64> = space.freed().iter().copied().collect();
        for page in (0..end).filter(|page| page % GROUP_PAGES >= 4) {
            let is_used = space.is_used(page) && !freed.contains(&page);
            // Below a damaged page nobody knows what is used.
            if is_used != walk.seen.has(page) && (is_whole || !is_used) {
                walk.find(format!(
                    "page {page} is {}",
                    if is_used {
                        "in use, and nothing leads to it"
                    } else {
                        "free, and a tree leads to it"
                    }
                ));
            }
        }
        Ok(walk.findings)
    }
}

struct TreeWalk {
    seen: SeenPages,
    findings: Vec<Finding>,
}

impl TreeWalk {
    fn find(&mut self, what: String) {
        if self.findings.len() < LISTED_MAX {
            self.findings.push(Finding {
                place: page::FILE.into(),
                what,
                chunks: Vec::new(),
            });
        }
    }

    /// Entries of the leaves below a page.
    fn below(
        &mut self,
        backend: &mut Cbt,
        tree: &CbtTree,
        number: u64,
        level: u8,
        leads_to_counts: bool,
    ) -> Result<u64> {
        if self.seen.add(number) {
            self.find(format!("two entries lead to page {number}"));
            return Ok(0);
        }
        let values: Vec<u64> = match backend.pager.read(number, tree.head(level)) {
            Err(Error::Damaged { place, what }) => {
                self.find(format!("{place}: {what}"));
                return Ok(0);
            }
            Err(error) => return Err(error),
            Ok(bytes) => {
                let count = page::count(bytes);
                // Above the leaves the first key means nothing.
                let first = if level == 0 { 1 } else { 2 };
                if (first..count).any(|at| node::key(bytes, at - 1) >= node::key(bytes, at)) {
                    self.find(format!("page {number}: its keys do not ascend"));
                }
                let bytes = backend.pager.read(number, tree.head(level))?;
                (0..count).map(|at| node::value(bytes, at)).collect()
            }
        };
        if level > 0 {
            let mut entries = 0;
            for child in values {
                entries += self.below(backend, tree, child, level - 1, leads_to_counts)?;
            }
            return Ok(entries);
        }
        let entries = values.len() as u64;
        if leads_to_counts {
            for number in values {
                if self.seen.add(number) {
                    self.find(format!("two entries lead to page {number}"));
                }
                match backend.pager.read(number, COUNTS) {
                    Err(Error::Damaged { place, what }) => self.find(format!("{place}: {what}")),
                    other => drop(other?),
                }
            }
        }
        Ok(entries)
    }
}
