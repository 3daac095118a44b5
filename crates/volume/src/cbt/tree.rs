//! A copy-on-write B+tree: keys of one length, 8-byte values, values in leaves alone (report §3.6.3, Figure 3.4).
//!
//! Insertions and removals go from the root down once. On the way every node is shadowed, a full one is split before an
//! insertion enters it, and one that is nearly empty is merged with a neighbour before a removal does.

use super::node;
use super::page::{self, CbtPageHead, LEVEL_MAX, PageKind};
use super::pager::Pager;
use crate::Result;

/// A tree, as the superblock has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CbtTree {
    /// 0: the tree has no page yet.
    pub root: u64,
    /// Level of the root.
    pub level: u8,
    pub entries: u64,
    pub key_bytes: u8,
}

/// Entries that a node takes at most: as many as fit, or fewer in tests, which so have high trees of few keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeEntries {
    pub max: usize,
}

impl NodeEntries {
    pub fn of(self, key_bytes: u8) -> usize {
        self.max.min(node::capacity(usize::from(key_bytes)))
    }
}

impl CbtTree {
    pub fn new(key_bytes: u8) -> Self {
        Self {
            root: 0,
            level: 0,
            entries: 0,
            key_bytes,
        }
    }

    pub fn head(&self, level: u8) -> CbtPageHead {
        CbtPageHead {
            kind: PageKind::Node,
            level,
            key_bytes: self.key_bytes,
        }
    }

    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn get(&self, pager: &mut Pager, key: &[u8]) -> Result<Option<u64>> {
        if self.root == 0 {
            return Ok(None);
        }
        let mut number = self.root;
        for level in (1..=self.level).rev() {
            let bytes = pager.read(number, self.head(level))?;
            number = child(bytes, number, node::find_child(bytes, key))?;
        }
        let leaf = pager.read(number, self.head(0))?;
        let found = node::find(leaf, key).ok();
        Ok(found.map(|at| node::value(leaf, at)))
    }

    /// Visits all entries, ascending.
    ///
    /// # Errors
    /// The device failed, or a page is damaged; what `visit` gave.
    pub fn iterate(
        &self,
        pager: &mut Pager,
        visit: &mut dyn FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        match self.root {
            0 => Ok(()),
            root => self.iterate_below(pager, root, self.level, visit),
        }
    }

    fn iterate_below(
        &self,
        pager: &mut Pager,
        number: u64,
        level: u8,
        visit: &mut dyn FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let bytes = pager.read(number, self.head(level))?;
        if level == 0 {
            return (0..page::count(bytes))
                .try_for_each(|at| visit(node::key(bytes, at), node::value(bytes, at)));
        }
        let children: Vec<u64> = (0..page::count(bytes))
            .map(|at| node::value(bytes, at))
            .collect();
        children
            .into_iter()
            .try_for_each(|child| self.iterate_below(pager, child, level - 1, visit))
    }

    /// Maps the key to the value.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace); the device failed, or a page is damaged. The tree means nothing then.
    pub fn insert(
        &mut self,
        pager: &mut Pager,
        nodes: NodeEntries,
        key: &[u8],
        value: u64,
    ) -> Result<()> {
        let entries_max = nodes.of(self.key_bytes);
        if self.root == 0 {
            self.root = pager.make(self.head(0))?;
        }
        self.root = pager.shadow(self.root, self.head(self.level))?;
        if page::count(pager.read(self.root, self.head(self.level))?) >= entries_max {
            self.grow(pager, key)?;
        }
        let (mut number, mut level) = (self.root, self.level);
        while level > 0 {
            number = self.enter_to_insert(pager, number, level, key, entries_max)?;
            level -= 1;
        }
        let leaf = pager.change(number)?;
        match node::find(leaf, key) {
            Ok(at) => node::set_value(leaf, at, value),
            Err(at) => {
                node::insert(leaf, at, key, value);
                self.entries += 1;
            }
        }
        Ok(())
    }

    /// The child that the key belongs to, shadowed and not full.
    fn enter_to_insert(
        &mut self,
        pager: &mut Pager,
        parent: u64,
        level: u8,
        key: &[u8],
        entries_max: usize,
    ) -> Result<u64> {
        let at = node::find_child(pager.read(parent, self.head(level))?, key);
        let below = self.shadow_child(pager, parent, level, at)?;
        if page::count(pager.read(below, self.head(level - 1))?) < entries_max {
            return Ok(below);
        }
        self.split_child(pager, parent, level, at, key)?;
        let bytes = pager.read(parent, self.head(level))?;
        child(bytes, parent, node::find_child(bytes, key))
    }

    /// Shadows a child of a node of this transaction.
    pub fn shadow_child(
        &self,
        pager: &mut Pager,
        parent: u64,
        level: u8,
        at: usize,
    ) -> Result<u64> {
        let old = child(pager.read(parent, self.head(level))?, parent, at)?;
        let new = pager.shadow(old, self.head(level - 1))?;
        if new != old {
            node::set_value(pager.change(parent)?, at, new);
        }
        Ok(new)
    }

    /// A new root above the full one, which is split for the key.
    fn grow(&mut self, pager: &mut Pager, key: &[u8]) -> Result<()> {
        if self.level == LEVEL_MAX {
            return Err(page::damaged(self.root, "the tree is too high".into()));
        }
        let (old, level) = (self.root, self.level + 1);
        let first = node::key(pager.read(old, self.head(self.level))?, 0).to_vec();
        self.root = pager.make(self.head(level))?;
        self.level = level;
        node::insert(pager.change(self.root)?, 0, &first, old);
        self.split_child(pager, self.root, level, 0, key)
    }

    /// Splits a full child of a node that is not full; both are of this transaction. Keys that ascend leave full nodes
    /// behind them.
    fn split_child(
        &self,
        pager: &mut Pager,
        parent: u64,
        level: u8,
        at: usize,
        key: &[u8],
    ) -> Result<()> {
        let left = child(pager.read(parent, self.head(level))?, parent, at)?;
        let bytes = pager.change(left)?;
        let count = page::count(bytes);
        let is_last = node::key(bytes, count - 1) < key;
        let raw = node::split_off(bytes, if is_last { count - 1 } else { count / 2 });
        let right = pager.make(self.head(level - 1))?;
        node::append(pager.change(right)?, &raw);
        let first = &raw[..usize::from(self.key_bytes)];
        node::insert(pager.change(parent)?, at + 1, first, right);
        Ok(())
    }
}

/// The page that an entry leads to.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged): the node is empty.
pub(super) fn child(bytes: &[u8], number: u64, at: usize) -> Result<u64> {
    if at < page::count(bytes) {
        Ok(node::value(bytes, at))
    } else {
        Err(page::damaged(
            number,
            "a node above the leaves has no entries".into(),
        ))
    }
}
