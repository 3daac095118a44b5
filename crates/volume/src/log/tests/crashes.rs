//! Crashes at every write and every sync of a run: of groups, zones, map runs and their merges, files of zones and of
//! relocations, manifests, cleaning, and of the recovery behind each.
//!
//! `ONEFOLD_TEST_SCALE=6` makes more than 10,000 of them, in some minutes; the test says how many (`--nocapture`).

use super::*;
use crate::log::faults::Fault;
use crate::log::faults::tests::leave_out;

/// Some work, remembered at each point, with what a crash there may leave.
struct Run {
    dir: SimDir,
    said: EverSaid,
    /// Each act's end as a crash point, and the contents that may be found before it.
    moments: Vec<(u64, Twin)>,
}

impl Run {
    fn new(seed: u64, acts: u64) -> Self {
        vary_by(seed);
        let (dir, said) = (SimDir::new(seed), ever_said(seed));
        let mut engine = create(&dir, 20, &said);
        let (mut twin, mut random) = (Twin::new(), Random(seed));
        // Levels of the map have some runs, and zones some garbage.
        for _ in 0..60 {
            act(&mut engine, &mut twin, &mut random, 900).expect("no faults");
        }
        dir.keep_history();
        let mut moments = Vec::new();
        for _ in 0..acts {
            let before = twin.clone();
            let done = act(&mut engine, &mut twin, &mut random, 900).expect("no faults");
            let allowed = match done {
                Act::Commit => before,
                Act::Work => twin.clone(),
            };
            moments.push((dir.counts().points, allowed));
        }
        let counters = engine.stats().counters;
        for name in ["checkpoints", "zones freed", "relocations", "map runs"] {
            let is_there = counters
                .iter()
                .any(|(known, count)| *known == name && *count > 0);
            assert!(is_there, "seed {seed}: {name} in {counters:?}");
        }
        Self { dir, said, moments }
    }

    fn points(&self) -> u64 {
        self.moments.last().map_or(0, |(end, _)| *end)
    }

    /// A twin of what a crash at a point may leave.
    fn allowed(&self, point: u64) -> Twin {
        let at = self.moments.partition_point(|(end, _)| *end <= point);
        self.moments[at.min(self.moments.len() - 1)].1.clone()
    }

    /// The index as it is now: what other images tell it is not for this one.
    fn index(&self) -> EverSaid {
        let said = self.said.lock();
        Arc::new(parking_lot::Mutex::new((said.0.clone(), said.1.clone())))
    }

    /// Opens what a crash leaves, looks at everything, and goes on with some of the images. Returns how many crashes
    /// that were.
    fn crash(&self, point: u64, luck: u64, why: &str) -> u64 {
        let image = self
            .dir
            .crash_image_at(point, luck)
            .expect("history was kept");
        let why = format!("{why}, point {point}, luck {luck}");
        let mut random = Random(point * 31 + luck);
        let mut crashes = 1;
        if random.one_in(32) {
            crashes += self.crash_while_opening(&image, point, &why, &mut random);
        }
        let (mut twin, said) = (self.allowed(point), self.index());
        let mut engine = open(&image, &said).unwrap_or_else(|error| panic!("{why}: {error}"));
        twin.assert_possible(&engine, &why);
        if random.one_in(8) {
            for _ in 0..10 {
                act(&mut engine, &mut twin, &mut random, 900).expect("no faults any more");
            }
            twin.assert_newest(&engine);
        }
        crashes
    }

    /// Opening crashes, at each of its points.
    fn crash_while_opening(
        &self,
        image: &SimDir,
        point: u64,
        why: &str,
        random: &mut Random,
    ) -> u64 {
        let again = image.fork();
        again.keep_history();
        drop(open(&again, &self.index()).unwrap_or_else(|error| panic!("{why}: {error}")));
        let points = again.counts().points;
        for opening_point in 0..points {
            let luck = random.below(4);
            let left = again
                .crash_image_at(opening_point, luck)
                .expect("history was kept");
            let why = format!("{why}, then point {opening_point} of opening, luck {luck}");
            let engine =
                open(&left, &self.index()).unwrap_or_else(|error| panic!("{why}: {error}"));
            self.allowed(point).assert_possible(&engine, &why);
        }
        points
    }
}

#[test]
fn nothing_committed_is_lost_in_a_crash_at_every_point_of_a_run() {
    let scale: u64 = std::env::var("ONEFOLD_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok())
        .unwrap_or(1);
    let (mut crashes, mut points) = (0, 0);
    // One more than asked for: odd seeds are packed.
    for seed in 0..scale + 1 {
        let run = Run::new(100 + seed, 60);
        let why = format!("seed {}", 100 + seed);
        // The short form takes some of the points, and one kind of luck at each.
        let (step, lucks) = if scale > 1 { (1, 3) } else { (5, 1) };
        for point in (0..run.points()).step_by(step) {
            let all = [2 + point, 0, 1];
            for luck in &all[..lucks] {
                crashes += run.crash(point, *luck, &why);
            }
        }
        points += run.points();
    }
    println!(
        "{crashes} crashes at {points} points of {} runs, none lost anything",
        scale + 1
    );
    assert!(crashes > 50 * scale, "{crashes}");
}

/// Crash after crash, each behind some work: what one leaves, the next must not make worse.
fn crash_again_and_again(seed: u64, rounds: u64) {
    vary_by(seed);
    let (mut dir, said) = (SimDir::new(seed), ever_said(seed));
    let mut engine = create(&dir, 20, &said);
    let (mut twin, mut random) = (Twin::new(), Random(seed));
    for round in 0..rounds {
        let why = format!("seed {seed}, round {round}");
        dir.inject(Faults {
            crash_at: Some(random.below(300)),
            ..Faults::default()
        });
        while act(&mut engine, &mut twin, &mut random, 900).is_ok() {}
        assert!(dir.crashed(), "{why}: only the crash fails");
        drop(engine);
        dir = dir.crash_image(random.below(4));
        engine = open(&dir, &said).unwrap_or_else(|error| panic!("{why}: {error}"));
        twin.assert_possible(&engine, &why);
    }
}

#[test]
fn crash_after_crash_loses_nothing() {
    for seed in 0..6 {
        crash_again_and_again(seed, 10);
    }
}

/// A group may be on its way to the device, and the next one half full.
#[test]
fn crash_after_crash_beside_writing_threads_loses_nothing() {
    use_threads();
    for seed in 0..12 {
        crash_again_and_again(seed, 10);
    }
}

/// As [`act`], where the folder's file system may have no room: what is refused is not there, and all else is.
fn act_without_room(engine: &mut LogEngine, twin: &mut Twin, random: &mut Random) -> Result<()> {
    let start = random.below(LBNS);
    let lbns: Vec<u64> = (start..(start + 1 + random.below(30)).min(LBNS)).collect();
    let done = match random.below(8) {
        0 | 1 => engine.commit().map(|()| twin.commit()),
        2 => engine.collect(Effort::Step).map(drop),
        3 => (engine.discard(HEAD, start..start + lbns.len() as u64))
            .map(|()| lbns.iter().for_each(|lbn| twin.set(*lbn, 0))),
        _ => lbns.iter().try_for_each(|lbn| {
            let content = 1 + random.below(900);
            write_at(engine, *lbn, content).map(|()| twin.set(*lbn, content))
        }),
    };
    match done {
        Err(Error::NoSpace { .. }) => Ok(()),
        done => done,
    }
}

/// A checkpoint that finds no room leaves the journal as it was: nothing committed is lost in a crash behind it. The
/// folder is on a device of its own, which is full now and then.
#[test]
fn crash_after_crash_with_a_full_folder_loses_nothing() {
    for seed in 0..12 {
        vary_by(seed);
        let (mut data, said) = (SimDir::new(seed), ever_said(seed));
        let disk = data.create("data").expect("simulated");
        disk.set_len(20 * (256 << 10)).expect("simulated");
        disk.sync().expect("simulated");
        data.sync().expect("simulated");
        let mut folder = SimDir::new(100 + seed);
        let dir: Arc<dyn Dir> = Arc::new(folder.clone());
        let mut engine = LogEngine::create(dir, disk, CHUNK as u32, options(&said)).expect("room");
        let (mut twin, mut random) = (Twin::new(), Random(seed));
        let mut refused = 0;
        for round in 0..12 {
            let why = format!("seed {seed}, round {round}");
            folder.inject(Faults {
                capacity_bytes: Some(random.below(12 << 10)),
                ..Faults::default()
            });
            for _ in 0..60 {
                act_without_room(&mut engine, &mut twin, &mut random)
                    .unwrap_or_else(|error| panic!("{why}: {error}"));
            }
            refused += u64::from(engine.checkpoint().is_err());
            drop(engine);
            let luck = random.below(4);
            (data, folder) = (data.crash_image(luck), folder.crash_image(luck));
            let (dir, disk) = (Arc::new(folder.clone()), data.open_write("data"));
            engine = LogEngine::open(dir, disk.expect("simulated"), options(&said))
                .unwrap_or_else(|error| panic!("{why}: {error}"));
            twin.assert_possible(&engine, &why);
        }
        assert!(refused > 0, "seed {seed}: there was always room");
    }
}

/// The suite is worth something: each step that is left out is found.
#[test]
fn deliberate_faults_are_found() {
    for fault in [
        Fault::HitsInCondemnedZones,
        Fault::NoCheckpointBeforeMark,
        Fault::NoSyncBeforeCheckpoint,
        Fault::NoSyncBeforeFreeing,
        Fault::IdsGivenAgain,
        Fault::RelocationsNotLedOn,
        Fault::MarkBeforeMergeIsInstalled,
    ] {
        let is_found = (0..60).any(|seed| {
            leave_out(Some(fault));
            let found = std::panic::catch_unwind(|| crash_again_and_again(seed, 12)).is_err();
            leave_out(None);
            found
        });
        assert!(is_found, "{fault:?} is not found");
    }
}
