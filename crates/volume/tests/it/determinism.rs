//! Without threads the same requests leave the same bytes: whatever a simulation finds can be run again.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Random, SimDir};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::CreateOptions;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::{Depot, Effort};

use crate::opened::{CHUNK, open};

const CHUNKS: u64 = 1500;

/// Names of a depot's files with fingerprints of what they hold.
type Image = Vec<(String, Fingerprint)>;

fn image(device: &SimDir) -> Image {
    let hash = |path: String| {
        let mut hash = None;
        device
            .fork()
            .damage(&path, |bytes| hash = Some(Fingerprint::of(bytes)))
            .expect("it is there");
        (path, hash.expect("it was read"))
    };
    device.paths().into_iter().map(hash).collect()
}

/// Does some random work with a new depot, which is opened three times.
fn work(engine: EngineKind, seed: u64) -> Image {
    let device = SimDir::new(5);
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let options = CreateOptions {
        engine,
        capacity_bytes: Some(20 << 20),
        ..CreateOptions::new(CHUNKS * CHUNK, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let mut random = Random(seed);
    for _ in 0..3 {
        let (depot, caller) = open(&folder, None);
        for _ in 0..600 {
            act(&depot, &caller, &mut random);
        }
        drop(caller);
        depot.close().expect("all is well");
    }
    image(&device)
}

fn act(depot: &Depot, caller: &Caller, random: &mut Random) {
    let at = random.below((CHUNKS - 20) * CHUNK);
    match random.below(40) {
        0 => drop(depot.collect(Effort::Whole).expect("a collection")),
        1 | 2 => caller.flush().expect("a flush"),
        3 => caller
            .discard(at, random.below(20 * CHUNK))
            .expect("a discard"),
        4 => depot.settle().expect("a checkpoint"),
        5..20 => {
            // Some contents come again and again.
            let content = Random(random.below(200)).bytes(CHUNK as usize).repeat(2);
            caller.write(at / CHUNK * CHUNK, &content).expect("room");
        }
        _ => {
            let bytes = 1 + random.below(3 * CHUNK) as usize;
            caller.write(at, &random.bytes(bytes)).expect("room");
        }
    }
}

#[test]
fn the_same_requests_leave_the_same_bytes() {
    let dmdedup = [
        Backend::InRam,
        Backend::InRamSaved,
        Backend::Dtb,
        Backend::Cbt,
    ];
    let all = dmdedup.map(EngineKind::Dmdedup).into_iter();
    for engine in all.chain([EngineKind::Log]) {
        for seed in 0..2 {
            let (one, other) = (work(engine, seed), work(engine, seed));
            assert!(one.len() > 3, "{engine:?}: {one:?}");
            assert_eq!(one, other, "{engine:?}, seed {seed}");
        }
        assert_ne!(work(engine, 0), work(engine, 1), "{engine:?}");
    }
}
