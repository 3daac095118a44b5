//! Places of pieces in the walk. Waiting folders share the paths above them: each level of a deep tree may have waiting
//! folders, and all their paths together may be longer than the tree is large.

use std::cmp::Ordering;
use std::sync::Arc;

/// Place of a piece in the walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WalkKey {
    pub folder: FolderPath,
    pub piece: u64,
}

impl Ord for WalkKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folder
            .cmp(&other.folder)
            .then(self.piece.cmp(&other.piece))
    }
}

impl PartialOrd for WalkKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A folder: its name in the one above it; `None` is the root.
#[derive(Clone, Default, Debug)]
pub(super) struct FolderPath(Option<Arc<KeyNode>>);

#[derive(Debug)]
struct KeyNode {
    above: FolderPath,
    name: Box<[u8]>,
    /// Number of folders above it.
    depth: usize,
}

impl FolderPath {
    /// Returns the folder `name` in this one.
    pub fn child(&self, name: &[u8]) -> Self {
        Self(Some(Arc::new(KeyNode {
            above: self.clone(),
            name: name.into(),
            depth: self.depth(),
        })))
    }

    /// Returns the folder that this one lies in; the root lies in itself.
    pub fn above(&self) -> &Self {
        self.0.as_ref().map_or(self, |node| &node.above)
    }

    /// Returns the folder's path.
    pub fn path(&self) -> Arc<[u8]> {
        let mut names = Vec::with_capacity(self.depth());
        let mut at = self;
        while let Some(node) = &at.0 {
            names.push(&node.name);
            at = &node.above;
        }
        let mut path = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path.into()
    }

    fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.depth + 1)
    }

    fn up_to(&self, depth: usize) -> &Self {
        let mut at = self;
        while at.depth() > depth {
            at = at.above();
        }
        at
    }
}

/// Folders are in the order that [`order`](crate::path::order) gives their paths.
impl Ord for FolderPath {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (self.depth(), other.depth());
        let mut order = own.cmp(&others);
        let (mut a, mut b) = (self.up_to(others), other.up_to(own));
        // The topmost difference decides.
        while let (Some(x), Some(y)) = (&a.0, &b.0) {
            if Arc::ptr_eq(x, y) {
                break;
            }
            order = x.name.cmp(&y.name).then(order);
            (a, b) = (&x.above, &y.above);
        }
        order
    }
}

impl PartialOrd for FolderPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FolderPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FolderPath {}

/// Nodes are dropped one after another, without recursion: a tree may be deeper than the stack.
impl Drop for KeyNode {
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(mut node) = above.and_then(Arc::into_inner) {
            above = node.above.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path;

    fn folder(path: &[u8]) -> FolderPath {
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        names.fold(FolderPath::default(), |folder, name| folder.child(name))
    }

    proptest! {
        #[test]
        fn folders_are_ordered_as_their_paths(a in "(/[ab!]{1,2}){0,4}", below in "(/[ab!]{1,2}){0,3}", b in "(/[ab!]{1,2}){0,4}") {
            let (first, second) = (folder(a.as_bytes()), folder(b.as_bytes()));
            prop_assert_eq!(&first.path()[..], a.as_bytes());
            prop_assert_eq!(first.cmp(&second), path::order(a.as_bytes(), b.as_bytes()));
            // Two folders that share the nodes above them.
            let mut third = first.clone();
            for name in below.split('/').filter(|name| !name.is_empty()) {
                third = third.child(name.as_bytes());
            }
            let whole = format!("{a}{below}");
            prop_assert_eq!(first.cmp(&third), path::order(a.as_bytes(), whole.as_bytes()));
            prop_assert_eq!(third.cmp(&second), path::order(whole.as_bytes(), b.as_bytes()));
        }
    }

    #[test]
    fn a_folder_may_be_deeper_than_the_stack() {
        let mut deep = FolderPath::default();
        for _ in 0..1_000_000 {
            deep = deep.child(b"a");
        }
        assert_eq!(deep.path().len(), 2_000_000);
        drop(deep);
    }
}
