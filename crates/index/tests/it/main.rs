//! Integration tests of the index: one binary.

mod callers;
mod compaction;
mod conformance;
mod costs;
mod crash;
mod folder;
mod full;
mod golden;
mod growing;
mod history;
mod long_run;
mod loose;
mod openers;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod sharing;
mod short_sessions;
mod streams;
mod suite;
