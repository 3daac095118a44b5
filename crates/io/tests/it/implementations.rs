//! Every implementation, through the conformance suite.

use std::sync::Arc;

use onefold_io::{
    Batching, CountedDir, Counters, Dir, FileDir, FlashDir, FlashModel, MemDir, MemDisk,
    SpindleDir, SpindleModel,
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

/// A folder whose disks are what `options` makes of it.
fn files(options: fn(FileDir) -> FileDir) {
    conformance::dir(|| {
        let temp = tempfile::tempdir().unwrap();
        let dir = options(FileDir::open(temp.path()).unwrap());
        (Arc::new(dir) as Arc<dyn Dir>, temp)
    });
}

#[test]
fn file_with_io_uring() {
    // Where the system refuses io_uring, this is `file_with_threads` again.
    files(|dir| dir.batched(Batching::Auto));
}

#[test]
fn file_with_threads() {
    files(|dir| dir.batched(Batching::Threads));
}

#[test]
fn file_one_by_one() {
    files(|dir| dir.batched(Batching::Sequential));
}

#[test]
fn direct_with_io_uring() {
    files(FileDir::direct);
}

#[test]
fn direct_with_threads() {
    files(|dir| dir.direct().batched(Batching::Threads));
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
