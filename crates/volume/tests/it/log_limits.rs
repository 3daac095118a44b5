//! Needs of the engine `log`: RAM within its budget, and the smallest depot.

use std::sync::Arc;

use onefold_index::RamIndex;
use onefold_io::{Dir, Disk, MemDir, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::log::{Budget, Layout, LogEngine, LogOptions};
use onefold_volume::{
    ChunkContent, Compression, Depot, Engine, EngineStats, Error, ExtentKind, HashedChunk, HeadId,
    HeadInfo, Lbn,
};

const MIB: u64 = 1 << 20;

/// A data device that keeps nothing.
struct NullDisk(u64);

impl Disk for NullDisk {
    fn len(&self) -> onefold_io::Result<u64> {
        Ok(self.0)
    }

    fn read_at(&self, buf: &mut [u8], _: u64) -> onefold_io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> onefold_io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> onefold_io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> onefold_io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> onefold_io::Result<()> {
        Ok(())
    }
}

fn counter(stats: &EngineStats, name: &str) -> u64 {
    let found = stats.counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Every second LBN in random order, each a chunk of its own: the most that a map can need. `cargo xtask bench volume
/// --ram` does the same with many millions, and looks at the whole process.
#[test]
fn a_map_of_random_chunks_stays_within_its_budget() {
    let chunks: u64 = 1 << 17;
    let (device_bytes, ram_bytes) = (1 << 30, 22 * MIB);
    let layout = Layout::new(device_bytes, 4096).expect("large enough");
    let budget = Budget::divide(ram_bytes, &layout).expect("enough");
    let options = LogOptions {
        first: HeadInfo::first("main", 1 << 20),
        seals: onefold_volume::log::Seals::none(),
        is_inline: true,
        clock: None,
        depot: [7; 16],
        fingerprint: Arc::new(|_| Vec::new()),
        index: Box::new(RamIndex::default()),
        sizes: budget.sizes,
        compression: Compression::None,
    };
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let data = Arc::new(NullDisk(device_bytes));
    let mut engine = LogEngine::create(folder, data, 4096, options).expect("RAM");
    let lbn = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % chunks * 2;
    let bytes = vec![1; 4096];
    let mut most = 0;
    for batch in 0..chunks / 256 {
        let all = (0..256).map(|n| HashedChunk {
            head: HeadId(0),
            lbn: Lbn(lbn(batch * 256 + n)),
            content: ChunkContent::NoDedup(&bytes),
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        });
        let refused = engine.write(&all.collect::<Vec<_>>()).expect("RAM");
        assert!(refused.is_empty());
        let parts = engine.stats().ram_bytes;
        let sum: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let most_of_all = ram_bytes - budget.index_bytes;
        assert!(sum <= most_of_all, "{most_of_all} bytes for {parts:?}");
        most = most.max(sum);
    }
    let stats = engine.stats();
    assert_eq!(stats.mapped_lbns, chunks);
    assert!(counter(&stats, "checkpoints") > 5, "{stats:?}");
    let (reader, mut random) = (engine.reader(), Random(1));
    const ASKED: u64 = 2000;
    for _ in 0..ASKED {
        let lbn = random.below(chunks) * 2;
        let mut found = Vec::new();
        let visit = &mut |lbns, kind| {
            found.push((lbns, kind));
            true
        };
        reader.extents(HeadId(0), lbn..lbn + 2, visit).expect("RAM");
        let expected = [
            (lbn..lbn + 1, ExtentKind::Data),
            (lbn + 1..lbn + 2, ExtentKind::Hole),
        ];
        assert_eq!(found, expected);
    }
    let reads = counter(&engine.stats(), "map page reads") - counter(&stats, "map page reads");
    assert!(reads <= 2 * ASKED, "{reads} page reads for {ASKED} LBNs");
}

fn create_options(ram_bytes: Option<u64>) -> CreateOptions {
    CreateOptions {
        engine: EngineKind::Log,
        capacity_bytes: Some(64 * MIB),
        ram_bytes,
        ..CreateOptions::new(40 * MIB, [1; 16], [2; 32])
    }
}

/// 64 MiB of data device and the least RAM: it is written over and over, deleted, and opened again.
#[test]
fn the_smallest_depot_works_with_the_least_ram() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let refused = Depot::create(&folder, &create_options(Some(4 * MIB))).expect_err("too little");
    let Error::Invalid { what } = refused else {
        panic!("{refused}");
    };
    let least = what.rsplit(' ').nth(1).and_then(|word| word.parse().ok());
    let least: u64 = least.unwrap_or_else(|| panic!("it says how many MiB are needed: {what}"));
    let least = least * MIB;
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    Depot::create(&folder, &create_options(Some(least))).expect("that is enough");
    let open = |ram_bytes| {
        let options = OpenOptions {
            front: Options {
                inline: true,
                ..Options::default()
            },
            ram_bytes,
            ..OpenOptions::default()
        };
        Depot::open(Arc::clone(&folder), options)
    };
    assert!(matches!(open(Some(4 * MIB)), Err(Error::Invalid { .. })));
    let content = |round: u64, at: u64| Random(round << 32 | at).bytes(4096).repeat(8);
    for round in 0..3 {
        let depot = open(Some(least)).expect("that is enough");
        let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
        let pieces = 40 * MIB / (8 * 4096);
        let place = |n: u64| (n * 7919 + round * 13) % pieces;
        for n in 0..pieces {
            let at = place(n);
            (caller.write(at * 8 * 4096, &content(round, at))).expect("there is room");
        }
        caller.flush().expect("a flush");
        for at in (0..pieces).step_by(97) {
            let found = caller.read(at * 8 * 4096, 8 * 4096).expect("a read");
            assert!(
                found[..] == content(round, at)[..],
                "round {round}, piece {at}"
            );
        }
        caller.discard(0, 4 * MIB).expect("a discard");
        drop(caller);
        depot.close().expect("it can be closed");
    }
}
