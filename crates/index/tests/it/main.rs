//! Integration tests of the index: one binary.

mod btree;
mod bufferhash;
mod chunkstash;
mod compaction;
mod conformance;
mod costs;
mod crash;
mod failed_writes;
mod filters;
mod folder;
mod full;
mod golden;
mod growing;
mod history;
mod long_run;
mod loose;
mod openers;
mod paper_costs;
mod papers;
mod saved_filters;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod sharing;
mod short_sessions;
mod sparse;
mod streams;
mod tablets;
