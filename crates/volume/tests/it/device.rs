//! The suite of block devices over depots of every kind.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_volume::conformance::{DeviceTrial, device};
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::{Ack, Options};
use onefold_volume::{Depot, HeadId};

fn run(engine: EngineKind, chunk_bytes: u32, seed: u64, front: Options) {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        chunk_bytes,
        engine,
        parameters: Parameters {
            cache_bytes: 64 << 10,
            transaction_writes: 10,
        },
        ..CreateOptions::new(3 << 20, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot can be made");
    let mut depot: Option<Depot> = None;
    let trial = DeviceTrial {
        seed,
        requests: 400,
        kinds: 12,
    };
    device(trial, &mut || {
        if let Some(depot) = depot.take() {
            depot.close().expect("a depot can be closed");
        }
        let options = OpenOptions {
            front: front.clone(),
            ..OpenOptions::default()
        };
        let opened = Depot::open(Arc::clone(&folder), options).expect("a depot can be opened");
        let device = opened.device(HeadId(0)).expect("the volume is there");
        depot = Some(opened);
        device
    });
}

#[test]
fn a_depot_is_a_block_device() {
    let inram = EngineKind::Dmdedup(Backend::InRam);
    let depots = [
        (inram, 512),
        (inram, 4096),
        (inram, 65536),
        (EngineKind::Dmdedup(Backend::Dtb), 4096),
        (EngineKind::Dmdedup(Backend::Cbt), 512),
        (EngineKind::Dmdedup(Backend::Cbt), 4096),
        (EngineKind::Log, 4096),
        (EngineKind::Log, 65536),
    ];
    for (seed, (engine, chunk_bytes)) in depots.into_iter().enumerate() {
        for ack in [Ack::Staged, Ack::Written] {
            let staging_bytes = 300 << 10;
            for inline in [true, false] {
                let options = Options {
                    ack,
                    inline,
                    staging_bytes,
                    ..Options::default()
                };
                run(engine, chunk_bytes, seed as u64, options);
            }
        }
    }
}
