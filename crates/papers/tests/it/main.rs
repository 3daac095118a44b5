//! Integration tests of the papers' indexes and filters: one binary.

mod bloomstore;
mod btree;
mod bufferhash;
mod chunkstash;
mod failed_writes;
mod filters;
mod golden;
#[path = "../../../index/tests/it/history.rs"]
mod history;
mod paper_costs;
mod papers;
mod saved_filters;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod sparse;
#[path = "../../../index/tests/it/suite.rs"]
mod suite;
mod tablets;
