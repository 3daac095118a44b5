//! Removal from a tree: nodes that are nearly empty are merged on the way down, so that a tree shrinks with its keys.

use super::node;
use super::page;
use super::pager::Pager;
use super::tree::{CbtTree, NodeEntries, child};
use crate::Result;

/// A node with fewer entries than one in this many of what it could take is merged, if a neighbour has room.
const SPARSE_SHARE: usize = 3;

impl CbtTree {
    /// Removes the key, if it is there.
    ///
    /// # Errors
    /// As of [`insert`](Tree::insert).
    pub fn remove(&mut self, pager: &mut Pager, nodes: NodeEntries, key: &[u8]) -> Result<()> {
        // A key that is not there costs no shadows.
        if self.get(pager, key)?.is_none() {
            return Ok(());
        }
        self.root = pager.shadow(self.root, self.head(self.level))?;
        let (mut number, mut level) = (self.root, self.level);
        while level > 0 {
            number = self.enter_to_remove(pager, number, level, key, nodes)?;
            level -= 1;
            self.shrink(pager, level)?;
        }
        let leaf = pager.change(number)?;
        if let Ok(at) = node::find(leaf, key) {
            node::remove(leaf, at);
            self.entries = self.entries.saturating_sub(1);
        }
        Ok(())
    }

    /// The child that the key belongs to, shadowed, and merged with a neighbour where both fit in one.
    fn enter_to_remove(
        &self,
        pager: &mut Pager,
        parent: u64,
        level: u8,
        key: &[u8],
        nodes: NodeEntries,
    ) -> Result<u64> {
        let entries_max = nodes.of(self.key_bytes);
        let bytes = pager.read(parent, self.head(level))?;
        let (at, siblings) = (node::find_child(bytes, key), page::count(bytes));
        let below = self.shadow_child(pager, parent, level, at)?;
        let entries = page::count(pager.read(below, self.head(level - 1))?);
        if entries * SPARSE_SHARE >= entries_max || siblings == 1 {
            return Ok(below);
        }
        let left = at.saturating_sub(1);
        let other = if at == left { at + 1 } else { left };
        let sibling = child(pager.read(parent, self.head(level))?, parent, other)?;
        let more = page::count(pager.read(sibling, self.head(level - 1))?);
        if entries + more > entries_max {
            return Ok(below);
        }
        self.merge(pager, parent, level, left)
    }

    /// Moves all of the child behind `left` into that one, and returns it.
    fn merge(&self, pager: &mut Pager, parent: u64, level: u8, left: usize) -> Result<u64> {
        let into = self.shadow_child(pager, parent, level, left)?;
        let bytes = pager.read(parent, self.head(level))?;
        let gone = child(bytes, parent, left + 1)?;
        let bound = node::key(bytes, left + 1).to_vec();
        let bytes = pager.read(gone, self.head(level - 1))?;
        let mut raw = bytes[page::BODY_AT..].to_vec();
        raw.truncate(page::count(bytes) * (bound.len() + 8));
        if level > 1 && !raw.is_empty() {
            // The first key of a node means nothing there; behind others it has to be the bound.
            raw[..bound.len()].copy_from_slice(&bound);
        }
        node::append(pager.change(into)?, &raw);
        pager.free(gone)?;
        node::remove(pager.change(parent)?, left + 1);
        Ok(into)
    }

    /// A root with one child, of level `below`, gives way to it.
    fn shrink(&mut self, pager: &mut Pager, below: u8) -> Result<()> {
        let root = self.root;
        if self.level != below + 1 || page::count(pager.read(root, self.head(self.level))?) != 1 {
            return Ok(());
        }
        self.root = child(pager.read(root, self.head(self.level))?, root, 0)?;
        self.level = below;
        pager.free(root)
    }
}
