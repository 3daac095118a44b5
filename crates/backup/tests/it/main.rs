//! The crate's integration tests, one binary.

mod acls;
mod attributes;
mod bad_sector;
mod change;
mod crash;
mod cut_off;
mod delete;
mod faults;
mod file_systems;
mod foreign;
mod forged;
mod forget;
mod golden;
mod hard_links;
mod in_place;
mod in_the_way;
mod leaf;
mod leased;
mod lists;
mod lost;
mod lost_leaf;
mod mapped;
mod mount;
mod moved;
mod passing;
mod patterns;
mod repaired;
mod restore;
mod roundtrip;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod scene;
mod short_reads;
mod shut;
mod sketch;
mod small_files;
mod sources;
mod stream;
mod tags;
mod unfinished;
#[path = "../../../io/tests/it/untested.rs"]
mod untested;
mod vanished;
mod wide;
mod windows;
