//! Power cuts at every write and every sync, with writes that are torn, lost and reordered.
//!
//! One run of a workload is remembered at each point, and the image of each is opened: with nothing left that was not
//! synced (seed 0), with all of it (seed 1), and with some of it.

use std::sync::Arc;

use onefold_io::{Dir, Disk, SimDir};
use onefold_volume::conformance::{Caller, Contents, CrashModel};
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::front::{Ack, Options};
use onefold_volume::inram::{InRam, SaveAt};
use onefold_volume::{ChunkContent, ChunkRead, Depot, Engine, HashedChunk, HeadId, Lbn};

const CHUNK: usize = 512;
const CHUNKS: u64 = 48;
const VOLUME: u64 = CHUNKS * CHUNK as u64;

/// A volume, with this many times its size for data.
fn create(device: &SimDir, backend: Backend, room: u64) -> Arc<dyn Dir> {
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let options = CreateOptions {
        engine: EngineKind::Dmdedup(backend),
        chunk_bytes: CHUNK as u32,
        capacity_bytes: Some(VOLUME * room),
        // Transactions that end within requests.
        parameters: Parameters {
            cache_bytes: 64 << 10,
            transaction_writes: 5,
        },
        ..CreateOptions::new(VOLUME, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot can be made");
    folder
}

fn open(folder: &Arc<dyn Dir>, ack: Ack) -> (Depot, Caller) {
    let front = Options {
        inline: true,
        ack,
        staging_bytes: 20 * CHUNK,
        ..Options::default()
    };
    let options = OpenOptions {
        front,
        ..OpenOptions::default()
    };
    let depot = Depot::open(Arc::clone(folder), options).expect("a depot can be opened");
    let device = depot.device(HeadId(0)).expect("the volume is there");
    (depot, Caller(device))
}

fn contents_of(caller: &Caller) -> Vec<Vec<u8>> {
    let all = caller.read(0, VOLUME).expect("all can be read");
    all.chunks(CHUNK).map(<[u8]>::to_vec).collect()
}

/// Contents that may be found after a crash at or behind a point.
struct Moment {
    point: u64,
    model: CrashModel,
}

/// Whether garbage is collected meanwhile, which saves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collect {
    Never,
    Sometimes,
}

/// Does random requests, and says after each what a crash from then on may leave. A request that is under way may have
/// been done or not, so it counts as written from its beginning, and as flushed from its end.
fn work(
    device: &SimDir,
    depot: &Depot,
    caller: &Caller,
    seed: u64,
    requests: u64,
    collect: Collect,
) -> Vec<Moment> {
    let mut contents = Contents::new(seed, 7);
    let mut model = CrashModel::new(CHUNK);
    let mut moments = Vec::new();
    let mut note = |model: &CrashModel| {
        moments.push(Moment {
            point: device.counts().points,
            model: model.clone(),
        });
    };
    note(&model);
    for _ in 0..requests {
        let start = contents.below(VOLUME);
        let length = 1 + contents.below((VOLUME - start).min(6 * CHUNK as u64));
        let range = start..start + length;
        match contents.below(16) {
            0..8 => {
                let bytes = contents.bytes(&range);
                model.write(start, &bytes);
                note(&model);
                caller.write(start, &bytes).expect("a write");
            }
            8..10 => {
                let bytes = contents.bytes(&range);
                model.write(start, &bytes);
                note(&model);
                caller.write_through(start, &bytes).expect("a write");
                // Ours is a flush of all that was staged.
                model.flushed();
                note(&model);
            }
            10..12 => {
                model.write(start, &vec![0; length as usize]);
                note(&model);
                caller.write_zeroes(start, length).expect("zeroing");
            }
            12..14 => {
                caller.flush().expect("a flush");
                model.flushed();
                note(&model);
            }
            14 if collect == Collect::Sometimes => {
                depot
                    .collect(onefold_volume::Effort::Whole)
                    .expect("a collection");
            }
            _ => {
                depot.step();
            }
        }
    }
    moments
}

/// The backend saves at each flush: everything that was flushed is there, each chunk whole.
#[test]
fn whatever_was_flushed_survives() {
    let images = crashes(Backend::InRamSaved, 8, &[0, 1, 2, 1000]);
    assert!(images > 5_000, "only {images} crashes");
}

/// The same of `cbt`, whose transactions end at flushes and in between.
#[test]
fn whatever_was_flushed_survives_in_cbt() {
    let images = crashes(Backend::Cbt, 4, &[0, 1, 2]);
    assert!(images > 4_000, "only {images} crashes");
}

/// Runs with some seeds, and opens the image of each point; lucks above 1 are another at each point.
fn crashes(backend: Backend, seeds: u64, lucks: &[u64]) -> u64 {
    let mut images = 0;
    for seed in 0..seeds {
        let device = SimDir::new(seed);
        let folder = create(&device, backend, 1 + seed % 2);
        let ack = if seed % 2 == 0 {
            Ack::Staged
        } else {
            Ack::Written
        };
        let (depot, caller) = open(&folder, ack);
        device.keep_history();
        let moments = work(&device, &depot, &caller, seed, 60, Collect::Sometimes);
        let points = device.counts().points;
        for point in 0..points {
            // Requests that ended before this point, and those that had begun.
            let at = moments.partition_point(|moment| moment.point <= point);
            let model = &moments[at - 1].model;
            for luck in lucks {
                let luck = luck + if *luck > 1 { point } else { 0 };
                let image = device
                    .crash_image_at(point, luck)
                    .expect("history was kept");
                check(&image, model, (seed, point, luck));
                images += 1;
            }
        }
    }
    images
}

fn check(image: &SimDir, model: &CrashModel, which: (u64, u64, u64)) {
    let folder: Arc<dyn Dir> = Arc::new(image.clone());
    let (depot, caller) = open(&folder, Ack::Staged);
    for (found, lbn) in contents_of(&caller).iter().zip(0..) {
        assert!(
            model.allows(lbn, found),
            "seed, point, luck {which:?}: chunk {lbn}"
        );
    }
    // The depot goes on: new data can be written, and all else stays.
    let before = contents_of(&caller);
    caller
        .write(5 * CHUNK as u64, &[9; CHUNK])
        .expect("a write");
    caller.flush().expect("a flush");
    drop((depot, caller));
    let (_depot, caller) = open(&folder, Ack::Staged);
    for (lbn, (found, before)) in contents_of(&caller).iter().zip(&before).enumerate() {
        let expected = if lbn == 5 { &vec![9; CHUNK] } else { before };
        assert!(
            found == expected,
            "seed, point, luck {which:?}: chunk {lbn} after going on"
        );
    }
}

/// The backend saves when told to: a crash leaves the last save, whole, or the one that was under way.
#[test]
fn a_crash_leaves_the_last_save_whole() {
    for seed in 0..6 {
        let device = SimDir::new(seed);
        // There is so much room that nothing is collected: a collection would save.
        let folder = create(&device, Backend::InRam, 20);
        let (depot, caller) = open(&folder, Ack::Staged);
        device.keep_history();
        // Contents of each save, with the points where it began and ended. Before the first there is nothing.
        let mut saves = vec![(0, 0, vec![vec![0; CHUNK]; CHUNKS as usize])];
        for round in 0..6 {
            work(
                &device,
                &depot,
                &caller,
                seed * 100 + round,
                12,
                Collect::Never,
            );
            caller.flush().expect("a flush");
            let state = contents_of(&caller);
            let begin = device.counts().points;
            depot.save().expect("a save");
            saves.push((begin, device.counts().points, state));
        }
        let counters = depot.stats().expect("it is open").engine.counters;
        assert!(
            counters.contains(&("save", 6)),
            "only we saved: {counters:?}"
        );
        for point in 0..device.counts().points {
            for luck in [0, 1, 2 + point] {
                let image = device
                    .crash_image_at(point, luck)
                    .expect("history was kept");
                let folder: Arc<dyn Dir> = Arc::new(image);
                let (depot, caller) = open(&folder, Ack::Staged);
                let found = contents_of(&caller);
                let last = saves
                    .iter()
                    .rposition(|(_, end, _)| *end <= point)
                    .unwrap_or(0);
                let is_one = saves[last..]
                    .iter()
                    .any(|(begin, _, state)| *begin <= point && *state == found);
                assert!(
                    is_one,
                    "seed {seed}, point {point}, luck {luck}: no save holds this"
                );
                assert!(depot.lost_unsaved());
            }
        }
    }
}

/// Blocks that were freed since the last save are not overwritten before the next one: the file still names them.
#[test]
fn blocks_of_the_last_save_stay() {
    let device = SimDir::new(3);
    let open = |device: &SimDir| {
        let folder: Arc<dyn Dir> = Arc::new(device.clone());
        let disk = match device.open_write("blocks") {
            Ok(disk) => disk,
            Err(_) => device.create("blocks").expect("a disk"),
        };
        disk.set_len(100 * CHUNK as u64).expect("room");
        device.sync().expect("a device");
        let backend = InRam::open(folder, 100, SaveAt::Close).expect("RAM");
        let data = DataArea::new(disk, 0, CHUNK as u32, 100);
        Dmdedup::open(Box::new(backend), data, 10).expect("RAM")
    };
    let all = |engine: &Dmdedup| {
        let mut bytes = vec![0xEE; 10 * CHUNK];
        let mut reads = [ChunkRead {
            lbn: Lbn(0),
            buffer: &mut bytes,
        }];
        engine.reader().read(HeadId(0), &mut reads).expect("a read");
        bytes
    };
    let saves = |engine: &Dmdedup| {
        let counters = engine.stats().counters;
        let found = counters.iter().find(|(name, _)| *name == "save");
        found.map_or(0, |(_, count)| *count)
    };
    let mut engine = open(&device);
    let (mut saved, mut count) = (vec![0; 10 * CHUNK], 0);
    for n in 0..400_u64 {
        let bytes = onefold_io::Random(n).bytes(CHUNK);
        let chunk = HashedChunk {
            head: HeadId(0),
            lbn: Lbn(n % 10),
            content: ChunkContent::NoDedup(&bytes),
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        };
        assert_eq!(engine.write(&[chunk]).expect("a write"), []);
        engine.commit().expect("a commit");
        if n == 20 {
            engine.checkpoint().expect("a save");
        }
        if saves(&engine) > count {
            (saved, count) = (all(&engine), saves(&engine));
        }
        for luck in [0, 1] {
            let found = all(&open(&device.crash_image(luck)));
            assert!(found == saved, "write {n}, luck {luck}");
        }
    }
    assert!(count > 2, "blocks ran out, and were saved for: {count}");
}

/// Opening after a crash can crash, too.
#[test]
fn a_crash_while_opening_costs_nothing() {
    for backend in [Backend::InRam, Backend::InRamSaved] {
        let device = SimDir::new(1);
        let folder = create(&device, backend, 2);
        let (depot, caller) = open(&folder, Ack::Staged);
        caller.write(0, &[7; 3 * CHUNK]).expect("a write");
        caller.flush().expect("a flush");
        depot.save().expect("a save");
        let crashed = device.crash_image(0);
        drop((depot, caller));
        crashed.keep_history();
        let folder: Arc<dyn Dir> = Arc::new(crashed.clone());
        drop(open(&folder, Ack::Staged));
        for point in 0..crashed.counts().points {
            for luck in 0..4 {
                let image = crashed
                    .crash_image_at(point, luck)
                    .expect("history was kept");
                let folder: Arc<dyn Dir> = Arc::new(image);
                let (_depot, caller) = open(&folder, Ack::Staged);
                assert_eq!(
                    caller.read(0, 3 * CHUNK as u64).expect("a read")[..],
                    [7; 3 * CHUNK]
                );
            }
        }
    }
}

/// Creating a depot can crash at any point: then there is none, and one can be created; or it is whole.
#[test]
fn a_crash_while_creating_leaves_none_or_all() {
    let device = SimDir::new(1);
    device.keep_history();
    create(&device, Backend::InRam, 2);
    for point in 0..device.counts().points {
        for luck in 0..5 {
            let image = device
                .crash_image_at(point, luck)
                .expect("history was kept");
            let folder: Arc<dyn Dir> = Arc::new(image.clone());
            match Depot::open(Arc::clone(&folder), OpenOptions::default()) {
                Ok(depot) => drop(depot),
                Err(onefold_volume::Error::NoDepot { .. }) => {
                    drop(create(&image, Backend::InRam, 2))
                }
                Err(error) => panic!("point {point}, luck {luck}: {error}"),
            }
        }
    }
    let _: &dyn Disk = &*device.open("config").expect("it is there");
}
