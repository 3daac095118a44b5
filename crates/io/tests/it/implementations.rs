//! Every implementation except files (`ways.rs`), through the conformance suite.

use std::sync::Arc;

use onefold_io::{
    CountedDir, Counters, Dir, FlashDir, FlashModel, MemDir, MemDisk, SpindleDir, SpindleModel,
    sim::{Faults, SimDir},
};

use crate::conformance;

#[test]
fn mem() {
    conformance::disk(|| Arc::new(MemDisk::new()));
    conformance::dir(|| (Arc::new(MemDir::new()) as Arc<dyn Dir>, ()));
}

#[test]
fn sim() {
    conformance::dir(|| (Arc::new(SimDir::new(1)) as Arc<dyn Dir>, ()));
}

#[test]
fn sim_with_short_reads() {
    conformance::dir(|| {
        let dir = SimDir::new(1);
        dir.inject(Faults {
            short_reads: true,
            ..Faults::default()
        });
        (Arc::new(dir) as Arc<dyn Dir>, ())
    });
}

#[test]
fn counted() {
    conformance::dir(|| {
        let dir = CountedDir::new(Arc::new(MemDir::new()), Counters::new());
        (Arc::new(dir) as Arc<dyn Dir>, ())
    });
}

#[test]
fn flash() {
    conformance::dir(|| {
        let dir = FlashDir::new(Arc::new(MemDir::new()), FlashModel::with_capacity(1 << 30));
        (Arc::new(dir) as Arc<dyn Dir>, ())
    });
}

#[test]
fn spindle() {
    conformance::dir(|| {
        let dir = SpindleDir::new(Arc::new(MemDir::new()), SpindleModel::RAPTOR);
        (Arc::new(dir) as Arc<dyn Dir>, ())
    });
}
