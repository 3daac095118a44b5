//! The suites of backends and engines, over what this crate has.

use std::sync::Arc;

use onefold_chunk::fingerprints;
use onefold_index::RamIndex;
use onefold_io::{Dir, Disk, MemDir, MemDisk};
use onefold_volume::Engine;
use onefold_volume::conformance::{BackendTrial, EngineTrial, backend, engine};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::inram::{InRam, SaveAt};
use onefold_volume::log::{LogEngine, LogOptions, LogSizes, MergeSizes};

#[test]
fn inram_is_a_metadata_backend() {
    for (seed, blocks) in [5, 60, 400].into_iter().enumerate() {
        for save_at in [SaveAt::Close, SaveAt::Flush] {
            let trial = BackendTrial {
                seed: seed as u64,
                calls: 6000,
                blocks,
                keys: blocks * 3,
                is_kept: true,
            };
            backend(trial, &mut |folder, blocks| {
                Ok(Box::new(InRam::open(Arc::clone(folder), blocks, save_at)?))
            });
        }
    }
}

#[test]
fn inram_without_a_file_is_a_metadata_backend() {
    let trial = BackendTrial {
        seed: 3,
        calls: 6000,
        blocks: 100,
        keys: 100,
        is_kept: false,
    };
    backend(trial, &mut |_, blocks| {
        Ok(Box::new(InRam::unsaved(blocks)?))
    });
}

/// With as many contents as the device has room for, and with more.
#[test]
fn log_is_an_engine() {
    for (seed, contents) in [300, 900, 100_000].into_iter().enumerate() {
        let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
        let disk = MemDisk::new();
        disk.set_len(20 * (256 << 10)).expect("RAM");
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let trial = EngineTrial {
            seed: seed as u64,
            steps: 1500,
            chunk_bytes: 4096,
            lbns: 1500,
            contents,
        };
        let mut is_new = true;
        engine(trial, &mut || {
            let options = LogOptions {
                depot: [9; 16],
                fingerprint: Arc::new(|chunks| fingerprints(None, chunks.iter().copied())),
                index: Box::new(RamIndex::default()),
                sizes: LogSizes {
                    ram_bytes: 1 << 20,
                    checkpoint_bytes: 1 << 20,
                    memtable_entries: 500,
                    cache_bytes: 64 << 10,
                    map_page_bytes: 16 << 10,
                    ballast_bytes: 0,
                    relocations_max: 30,
                    merges: MergeSizes {
                        recent_max: 2,
                        run_bytes_max: 16 << 10,
                        run_extents_max: 400,
                        base_over_middle: 4,
                    },
                },
            };
            let (folder, disk) = (Arc::clone(&folder), Arc::clone(&disk));
            let opened = match std::mem::take(&mut is_new) {
                true => LogEngine::create(folder, disk, 4096, options),
                false => LogEngine::open(folder, disk, options),
            };
            Box::new(opened.expect("RAM"))
        });
    }
}

/// With as many blocks as there are contents, with fewer, and with one for each LBN.
#[test]
fn dmdedup_is_an_engine() {
    for (seed, (blocks, contents)) in [(70, 40), (30, 60), (130, 1000)].into_iter().enumerate() {
        for (save_at, threads) in [(SaveAt::Close, 0), (SaveAt::Flush, 0), (SaveAt::Close, 2)] {
            let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
            let disk = MemDisk::new();
            disk.set_len(blocks * 512 + 512).expect("RAM");
            let disk: Arc<dyn Disk> = Arc::new(disk);
            let trial = EngineTrial {
                seed: seed as u64,
                steps: 1500,
                chunk_bytes: 512,
                lbns: 100,
                contents,
            };
            engine(trial, &mut || {
                let backend = InRam::open(Arc::clone(&folder), blocks, save_at).expect("RAM");
                let data = DataArea::new(Arc::clone(&disk), 512, 512, blocks);
                let engine = Dmdedup::open(Box::new(backend), data, 100).expect("RAM");
                match threads {
                    0 => Box::new(engine) as Box<dyn Engine>,
                    _ => Box::new(engine.write_behind(threads)),
                }
            });
        }
    }
}
