//! The suites of backends and engines, over what this crate has.

use std::sync::Arc;

use onefold_chunk::fingerprints;
use onefold_index::RamIndex;
use onefold_io::{Dir, Disk, MemDir, MemDisk};
use onefold_keys::{Entropy, Keys};
use onefold_volume::cbt::{Cbt, CbtOptions};
use onefold_volume::conformance::{BackendTrial, EngineTrial, backend, engine};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::dtb::Dtb;
use onefold_volume::inram::{InRam, SaveAt};
use onefold_volume::log::{LogEngine, LogOptions, LogSizes, MergeSizes, Seals};
use onefold_volume::{Compression, Engine, HeadInfo, MetadataBackend, Result};
use zeroize::Zeroizing;

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

/// The smallest cache, and one that holds everything.
const CACHES: [u64; 2] = [64 << 10, 16 << 20];

type Opened = Result<Box<dyn MetadataBackend>>;

/// Makes the metadata where there is none.
fn open_dtb(folder: &Arc<dyn Dir>, blocks: u64, cache_bytes: u64) -> Opened {
    if folder.open("meta").is_err() {
        Dtb::create(&**folder, blocks)?;
    }
    Ok(Box::new(Dtb::open(&**folder, blocks, cache_bytes)?))
}

/// Makes the metadata where there is none.
fn open_cbt(folder: &Arc<dyn Dir>, blocks: u64, options: CbtOptions) -> Opened {
    if folder.open("meta").is_err() {
        Cbt::create(&**folder, blocks)?;
    }
    Ok(Box::new(Cbt::open(&**folder, blocks, options)?))
}

#[test]
fn dtb_is_a_metadata_backend() {
    for (seed, blocks) in [5, 60, 400].into_iter().enumerate() {
        for cache_bytes in CACHES {
            let trial = BackendTrial {
                seed: seed as u64,
                calls: 6000,
                blocks,
                keys: blocks * 3,
                is_kept: true,
            };
            backend(trial, &mut |folder, blocks| {
                open_dtb(folder, blocks, cache_bytes)
            });
        }
    }
}

/// Also with nodes of four entries, so that trees are high and split and merge all the time.
#[test]
fn cbt_is_a_metadata_backend() {
    for (seed, blocks) in [5, 60, 400].into_iter().enumerate() {
        for cache_bytes in CACHES {
            for node_entries_max in [4, 7, usize::MAX] {
                let trial = BackendTrial {
                    seed: seed as u64,
                    calls: 6000,
                    blocks,
                    keys: blocks * 3,
                    is_kept: true,
                };
                let options = CbtOptions {
                    cache_bytes,
                    node_entries_max,
                };
                backend(trial, &mut |folder, blocks| {
                    open_cbt(folder, blocks, options)
                });
            }
        }
    }
}

/// More pages than the smallest cache holds.
#[test]
fn tables_are_backends_when_they_do_not_fit_in_the_cache() {
    let trial = BackendTrial {
        seed: 9,
        calls: 1200,
        blocks: 5000,
        keys: 15_000,
        is_kept: true,
    };
    backend(trial, &mut |folder, blocks| {
        open_dtb(folder, blocks, CACHES[0])
    });
    let options = CbtOptions::new(CACHES[0]);
    backend(trial, &mut |folder, blocks| {
        open_cbt(folder, blocks, options)
    });
}

#[test]
fn log_is_an_engine() {
    log_is_one(Compression::None);
}

#[test]
fn log_is_an_engine_when_it_packs() {
    log_is_one(Compression::Lz4);
    log_is_one(Compression::Auto);
}

/// With as many contents as the device has room for, and with more.
fn log_is_one(compression: Compression) {
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
        let keys = Keys::from_master(&Zeroizing::new([7; 32]));
        let seals = Seals::new(keys, Entropy::seeded(7));
        let mut is_new = true;
        engine(trial, &mut || {
            let options = LogOptions {
                first: HeadInfo::first("main", 1 << 20),
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
                compression,
                // The first trial is sealed.
                seals: if seed == 0 {
                    seals.clone()
                } else {
                    Seals::none()
                },
                is_inline: false,
                clock: None,
            };
            let (folder, disk) = (Arc::clone(&folder), Arc::clone(&disk));
            let opened = if std::mem::take(&mut is_new) {
                LogEngine::create(folder, disk, 4096, options)
            } else {
                LogEngine::open(folder, disk, options)
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

/// Over `dtb` and `cbt`, with the smallest cache; `cbt` in short transactions and high trees.
#[test]
fn dmdedup_over_tables_is_an_engine() {
    for (seed, (blocks, contents)) in [(70, 40), (30, 60), (130, 1000)].into_iter().enumerate() {
        for (name, threads) in [("dtb", 0), ("cbt", 0), ("cbt", 2)] {
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
                let options = CbtOptions {
                    cache_bytes: CACHES[0],
                    node_entries_max: 5,
                };
                let backend = match name {
                    "dtb" => open_dtb(&folder, blocks, CACHES[0]),
                    _ => open_cbt(&folder, blocks, options),
                };
                let data = DataArea::new(Arc::clone(&disk), 512, 512, blocks);
                let engine = Dmdedup::open(backend.expect("RAM"), data, 100).expect("RAM");
                let engine = engine.committing_every(if name == "cbt" { 3 } else { 0 });
                match threads {
                    0 => Box::new(engine) as Box<dyn Engine>,
                    _ => Box::new(engine.write_behind(threads)),
                }
            });
        }
    }
}
