//! What the sources choose of the file system: a tree of names.
//!
//! A list of sources may have hundreds of thousands of paths, so nothing of a path is here twice but on the stack.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Error, Result, path};

/// Folders that may be above a source: more than a path may have that the system takes as a whole. A tree of any depth
/// may be below one.
const FOLDERS_ABOVE_MAX: usize = 4096;

/// The sources as a tree: folders on the way to sources show only what leads there, a source shows everything, and
/// other sources below it in any case.
#[derive(Debug, Default)]
pub(crate) struct Select {
    pub(super) children: BTreeMap<Vec<u8>, Arc<Select>>,
    pub(super) whole: bool,
}

impl Select {
    /// Of absolute paths, in any order, each as often as may be.
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

    /// Of the sources in and below one folder, whose path are the first `at` bytes of each; in the order of the walk.
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
        }
    }

    /// Everything of a folder, of which the sources below say nothing.
    pub(super) fn everything() -> Self {
        Self::and_everything(&Self::default())
    }

    /// What `on_the_way` leads to, and everything else.
    pub(super) fn and_everything(on_the_way: &Self) -> Self {
        Self {
            whole: true,
            children: on_the_way.children.clone(),
        }
    }
}

/// Errors: one of the paths has too many folders above it.
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

/// Of a path that is too deep to be shown whole.
const SHOWN_BYTES: usize = 64;
