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
    /// Whether one opener or several may have the index open.
    pub openers: Openers,
    /// Opens the index in a folder, or begins one; fails as the index's own `open` does.
    pub open: fn(OpenIndex) -> Result<Box<dyn ChunkIndex>>,
    /// Deletes the index in a folder, damaged or not. Only files with the index's own names are removed, because the
    /// folder may be one of the user's. An index of one opener must not be open meanwhile.
    pub delete: fn(&dyn Dir) -> Result<()>,
}

impl std::fmt::Debug for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Number of openers that an index may have at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openers {
    /// A single opener: a second gets [`Error::Held`](crate::Error::Held).
    One,
    /// Any number of processes.
    Many,
}

/// Arguments for opening an index of any kind.
#[derive(Clone)]
pub struct OpenIndex {
    /// The folder of the index.
    pub dir: Arc<dyn Dir>,
    /// RAM that the index may take, in bytes.
    pub ram_budget_bytes: usize,
    /// The opener's number, as in [`StrataOptions::unique`].
    pub unique: u64,
    /// Whether the index may start a thread of its own.
    pub background: bool,
    /// How long to wait for locks of other openers, in milliseconds; `None` for as long as it takes.
    pub lock_wait_ms_max: Option<u64>,
    /// The parameters that the index was made with.
    pub knobs: Knobs,
}

impl OpenIndex {
    /// Options with the kind's defaults; `open` waits for locks without a limit.
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

/// The kind named by `text` (`NAME` or `NAME:key=value,…`), and the parameters that `text` sets.
///
/// # Errors
/// A message that lists the known kinds, parameters or values.
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
