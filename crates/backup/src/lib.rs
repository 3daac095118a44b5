//! Walk, snapshots, backup, restore and retention, over the store.
//!
//! The way of the data: [`walk`] gives entries in order, `backup` reads and cuts their contents and hands them to the
//! store, and [`leaf`] turns entries with their recipes into the metadata stream that a [`snapshot`] names. Restore
//! goes the other way and never asks the index.
#![forbid(unsafe_code)]

pub mod backup;
pub mod content;
pub mod copy;
pub mod diff;
pub mod dump;
mod entry;
mod error;
pub mod exclude;
mod expansion;
pub mod folder_stack;
pub mod forget;
#[doc(hidden)]
pub mod fuzzing;
pub mod leaf;
mod linked;
pub mod list;
pub mod meta;
pub mod objects;
mod open_files;
pub mod path;
mod progress;
pub mod repair;
pub mod restore;
pub mod roots;
mod sample;
pub mod snapshot;
pub mod snapshots;
pub mod tree;
pub mod vfs;
pub mod walk;
mod wire;

pub use entry::{Content, Entry, Flags, Item, Kind, Owner, SharedXattrs, Slice, Time, Xattrs};
pub use error::{Error, Result};
pub use progress::{Change, Events, NoEvents, Progress};
