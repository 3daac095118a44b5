//! Kinds of indexes, by name: the table that a store is given, so that it knows of no kind but the default.

use std::sync::Arc;

use onefold_chunk::knobs::{Knob, Knobs, split};
use onefold_io::Dir;

use crate::{ChunkIndex, Result, Strata, StrataOptions};

/// A kind of persistent index: its name, its parameters, and how to open and delete one.
#[derive(Clone, Copy)]
pub struct IndexKind {
    /// The name, as users write it.
    pub name: &'static str,
    /// The parameters that users may set when the index is made.
    pub knobs: &'static [Knob],
    /// How many may have one open.
    pub openers: Openers,
    /// Opens the index in a folder, or begins one; fails as the index's own `open` does.
    pub open: fn(OpenIndex) -> Result<Box<dyn ChunkIndex>>,
    /// Deletes the index in a folder, damaged or not, by the names that it makes and by no others: the folder may be
    /// one of the user's. Only an index of several openers may be open meanwhile.
    pub delete: fn(&dyn Dir) -> Result<()>,
}

impl std::fmt::Debug for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// How many may have an index open at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openers {
    /// One: a second gets [`Error::Held`](crate::Error::Held).
    One,
    /// Any number of processes.
    Many,
}

/// What an index is opened with, whatever its kind.
#[derive(Clone)]
pub struct OpenIndex {
    /// Its folder.
    pub dir: Arc<dyn Dir>,
    /// RAM that it may take, in bytes.
    pub ram_budget_bytes: usize,
    /// The opener's number, as in [`StrataOptions::unique`].
    pub unique: u64,
    /// Whether it may have a thread of its own.
    pub background: bool,
    /// How long to wait for locks of other openers, in milliseconds; `None` for as long as it takes.
    pub lock_wait_ms_max: Option<u64>,
    /// The parameters that the index was made with.
    pub knobs: Knobs,
}

impl OpenIndex {
    /// With the kind's defaults, waiting for locks as long as it takes.
    pub fn new(dir: Arc<dyn Dir>, ram_budget_bytes: usize, unique: u64) -> OpenIndex {
        OpenIndex {
            dir,
            ram_budget_bytes,
            unique,
            background: true,
            lock_wait_ms_max: None,
            knobs: Knobs::default(),
        }
    }
}

/// The index `strata`.
pub const STRATA: IndexKind = IndexKind {
    name: "strata",
    knobs: &[],
    openers: Openers::Many,
    open: |at| {
        let options = StrataOptions {
            ram_budget_bytes: at.ram_budget_bytes,
            background_merges: at.background,
            lock_wait_ms_max: at.lock_wait_ms_max,
            ..StrataOptions::new(at.unique)
        };
        Ok(Box::new(Strata::open(at.dir, options)?))
    },
    delete: Strata::delete,
};

/// The kinds that this crate has.
pub const KINDS: &[IndexKind] = &[STRATA];

/// The kind that `text`, `NAME` or `NAME:key=value,…`, names, and the parameters that it sets.
///
/// # Errors
/// A message that says which kinds, parameters or values there are.
pub fn kind_of(kinds: &[IndexKind], text: &str) -> std::result::Result<(IndexKind, Knobs), String> {
    let (name, knobs) = split(text);
    let kind = kinds.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        format!(
            "unknown index {name:?}, expected one of {}",
            names.join(", ")
        )
    })?;
    let knobs = Knobs::parse(name, knobs, kind.knobs).map_err(|error| error.to_string())?;
    Ok((*kind, knobs))
}
