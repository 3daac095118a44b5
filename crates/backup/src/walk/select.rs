//! The part of the file system that the sources choose: a tree of names.
//!
//! A list of sources may have hundreds of thousands of paths, so each byte of a path is here once, except on the stack.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Moved;
use crate::{Error, Result, path};

/// Largest number of folders above a source: more than a path may have that the system takes in one call. A tree of any
/// depth may be below a source.
const FOLDERS_ABOVE_MAX: usize = 4096;

/// The sources as a tree. A folder on the way to sources has only the names that lead there; a source has everything,
/// and other sources below it in any case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    pub(super) children: BTreeMap<Vec<u8>, Arc<Select>>,
    pub(super) whole: bool,
    /// Path of the real place, if it differs from the place in this tree.
    pub(super) moved: Option<Arc<[u8]>>,
}

impl Select {
    /// Makes the tree of absolute paths, in any order; paths may repeat.
    ///
    /// # Errors
    /// [`Error::Usage`]: a path has more than 4096 folders above it.
    pub(super) fn new(sources: &[Vec<u8>]) -> Result<Self> {
        let mut sources: Vec<Cow<'_, [u8]>> =
            sources.iter().map(|path| path::cleaned(path)).collect();
        check_depths(&sources)?;
        sources.sort_unstable_by(|a, b| path::order(a, b));
        sources.dedup();
        Ok(Self::of(&sources, 0, &Arc::new(Self::everything())))
    }

    /// Makes the tree of the sources in and below one folder, whose path is the first `at` bytes of each source; they
    /// are in the order of the walk.
    fn of(sources: &[Cow<'_, [u8]>], at: usize, everything: &Arc<Self>) -> Self {
        let whole = sources.first().is_some_and(|source| source.len() == at);
        let below = &sources[usize::from(whole)..];
        let name = |source: &[u8]| {
            let rest = &source[at + 1..];
            rest.iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len())
        };
        let groups = below.chunk_by(|a, b| {
            let end = at + 1 + name(a);
            b.get(..end) == Some(&a[..end]) && matches!(b.get(end), None | Some(b'/'))
        });
        let children = groups.map(|group| {
            let end = at + 1 + name(&group[0]);
            let child = match group {
                [source] if source.len() == end => Arc::clone(everything),
                _ => Arc::new(Self::of(group, end, everything)),
            };
            (group[0][at + 1..end].to_vec(), child)
        });
        Self {
            whole,
            children: children.collect(),
            moved: None,
        }
    }

    /// Makes the tree of everything in a folder, without sources below.
    pub(super) fn everything() -> Self {
        Self::and_everything(&Self::default())
    }

    /// Makes the tree of everything in a folder, with the sources in `on_the_way`.
    pub(super) fn and_everything(on_the_way: &Self) -> Self {
        Self {
            whole: true,
            children: on_the_way.children.clone(),
            moved: None,
        }
    }

    /// Makes the tree of sources that are stored under other paths. A folder above such a path stands for the one above
    /// the source.
    ///
    /// # Errors
    /// [`Error::Usage`]: one of the paths is another's, or lies in it, or has more than 4096 folders above it.
    pub(super) fn moved(sources: &[Moved]) -> Result<Self> {
        let clean = |source: &Moved| Moved {
            from: path::clean(&source.from),
            to: path::clean(&source.to),
        };
        let mut all: Vec<Moved> = sources.iter().map(clean).collect();
        all.sort_unstable_by(|a, b| path::order(&a.to, &b.to));
        let mut select = Self::default();
        let mut last: Option<&[u8]> = None;
        for Moved { from, to } in &all {
            check_depths(&[to])?;
            if let Some(last) = last.filter(|last| path::within(to, last)) {
                return Err(Error::Usage(format!(
                    "{} and {} are to be backed up into each other",
                    path::show(last),
                    path::show(to)
                )));
            }
            last = Some(to);
            let names: Vec<&[u8]> = to.split(|byte| *byte == b'/').skip(1).collect();
            select.add_moved(&names, from);
        }
        Ok(select)
    }

    fn add_moved(&mut self, names: &[&[u8]], from: &[u8]) {
        let [name, rest @ ..] = names else {
            (self.whole, self.moved) = (true, Some(from.into()));
            return;
        };
        let child = self.children.entry(name.to_vec()).or_default();
        let child = Arc::make_mut(child);
        let above = rest.iter().fold(from, |folder, _| path::split(folder).0);
        child.moved.get_or_insert_with(|| above.into());
        child.add_moved(rest, from);
    }

    /// Whether something in this folder lies elsewhere.
    pub(super) fn leads_to_moved(&self) -> bool {
        !self.whole && self.children.values().any(|child| child.moved.is_some())
    }
}

/// Checks the depth of paths. Errors: a path has too many folders above it.
pub(crate) fn check_depths<P: AsRef<[u8]>>(paths: &[P]) -> Result<()> {
    let is_deep =
        |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count() > FOLDERS_ABOVE_MAX;
    match paths.iter().map(AsRef::as_ref).find(|path| is_deep(path)) {
        None => Ok(()),
        Some(deep) => Err(Error::Usage(format!(
            "{}…: more than {FOLDERS_ABOVE_MAX} folders are above this source: give one of them",
            path::show(&deep[..SHOWN_BYTES])
        ))),
    }
}

/// Bytes that are shown of a path that is too deep to be shown whole.
const SHOWN_BYTES: usize = 64;
