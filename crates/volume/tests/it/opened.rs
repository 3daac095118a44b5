//! Depots that tests open, with their first volume: no threads, so each run does the same.

use std::sync::Arc;

use onefold_io::{Dir, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::OpenOptions;
use onefold_volume::front::Options;
use onefold_volume::{Depot, HeadId};

/// Bytes of a chunk.
pub const CHUNK: u64 = 4096;

/// The depot and its volume; `ram_bytes` is its budget, where the default is not wanted.
pub fn open(folder: &Arc<dyn Dir>, ram_bytes: Option<u64>) -> (Depot, Caller) {
    let options = OpenOptions {
        ram_bytes,
        front: Options {
            inline: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let depot = Depot::open(Arc::clone(folder), options).expect("it opens by itself");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    (depot, caller)
}

/// A chunk of random bytes: each number has its own.
pub fn content(number: u64) -> Vec<u8> {
    Random(number).bytes(CHUNK as usize)
}
