//! Tests of the store, over folders in memory and simulated devices.

mod catalog;
mod check_beside;
mod condemned;
mod config;
mod crash;
mod damage;
mod faults;
mod fixture;
mod flipped;
mod forged;
mod forged_blocks;
mod golden;
mod guarded;
mod held;
mod index_deleted;
mod index_limits;
mod index_shared;
mod keys;
mod later;
mod leases;
mod lost;
mod moved;
mod pin_lost;
mod replicas;
mod round_trip;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod seams;
mod sleepers;
mod sweep;
mod sweep_astray;
mod twins;
mod under_way;
mod unpinned;
mod unreadable;
mod what_is_left;
