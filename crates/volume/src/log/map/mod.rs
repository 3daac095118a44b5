//! The map of the engine `log`: LBN → address, as extents in runs that are never changed.
//!
//! ```text
//! write ─▶ memtable ─(checkpoint)─▶ recent runs ─(every fifth)─▶ middle ─(where large)─▶ base
//! read  ─▶ memtable, then each of these, until every LBN is found; nowhere: a hole
//! ```
//!
//! A write never reads the map. What a newer level says of an LBN hides what older ones say; merging drops what is
//! hidden. Middle and base are cut into *partitions* of at most 4 MiB, so a merge touches what changed alone.
//!
//! Invariant: runs that a manifest lists are synced; extents of one level do not overlap.

pub mod cursor;
pub mod extent;
pub mod folder;
pub mod levels;
pub mod memtable;
pub mod merge;
pub mod page_cache;
pub mod run;
pub mod run_id;
pub mod run_page;
pub mod run_writer;
pub mod settle;
pub mod shared_parts;
#[cfg(test)]
mod tests;
