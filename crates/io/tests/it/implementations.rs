//! Every implementation, through the conformance suite.

use std::sync::Arc;

use onefold_io::{
    Dir, FileDir, MemDir, MemDisk,
    sim::{Faults, SimDir},
};

use crate::conformance;

#[test]
fn mem() {
    conformance::disk(|| Arc::new(MemDisk::new()));
    conformance::dir(|| (Arc::new(MemDir::new()) as Arc<dyn Dir>, ()));
}

#[test]
fn file() {
    conformance::dir(|| {
        let temp = tempfile::tempdir().unwrap();
        (
            Arc::new(FileDir::open(temp.path()).unwrap()) as Arc<dyn Dir>,
            temp,
        )
    });
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
