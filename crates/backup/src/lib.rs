//! Walk, snapshots, backup, restore and retention, over the store.
#![forbid(unsafe_code)]
