//! Snapshots, clones and deletions against twins: random work, crashes at every point, space that comes back.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::HeadChange;
use crate::log::manifest::Manifest;

/// Heads at most: then some are deleted.
const HEADS: usize = 6;

/// Twins of all heads; those of snapshots never change.
#[derive(Clone)]
struct World {
    twins: BTreeMap<HeadId, Twin>,
    volumes: BTreeSet<HeadId>,
}

impl World {
    fn new() -> Self {
        Self {
            twins: BTreeMap::from([(HEAD, Twin::new())]),
            volumes: BTreeSet::from([HEAD]),
        }
    }

    fn commit(&mut self) {
        self.twins.values_mut().for_each(Twin::commit);
    }

    fn assert_newest(&self, engine: &LogEngine) {
        let known: Vec<HeadId> = engine.heads().iter().map(|head| head.id).collect();
        assert_eq!(known, self.twins.keys().copied().collect::<Vec<_>>());
        self.twins
            .values()
            .for_each(|twin| twin.assert_newest(engine));
    }

    fn any(&self, random: &mut Random) -> HeadId {
        let all: Vec<HeadId> = self.twins.keys().copied().collect();
        all[random.below(all.len() as u64) as usize]
    }

    fn any_volume(&self, random: &mut Random) -> HeadId {
        let all: Vec<HeadId> = self.volumes.iter().copied().collect();
        all[random.below(all.len() as u64) as usize]
    }

    fn copy(&mut self, from: HeadId, to: HeadId, is_writable: bool) {
        let mut twin = self.twins[&from].clone();
        twin.head = to;
        twin.commit();
        self.twins.insert(to, twin);
        if is_writable {
            self.volumes.insert(to);
        }
    }
}

/// A change of the heads; after a crash within it, the world is as before or as after.
fn change(engine: &mut LogEngine, world: &mut World, random: &mut Random) -> Result<()> {
    let number = random.next() % 1_000_000_000;
    let is_full = world.twins.len() >= HEADS;
    if is_full || world.twins.len() > 1 && random.one_in(3) {
        let head = world.any(random);
        if world.volumes.len() > 1 || !world.volumes.contains(&head) {
            engine.change_heads(&HeadChange::Delete { head })?;
            world.twins.remove(&head);
            world.volumes.remove(&head);
            world.commit();
            return Ok(());
        }
    }
    let is_writable = random.one_in(2);
    let (from, name) = if is_writable {
        (world.any(random), format!("v{number}"))
    } else {
        (world.any_volume(random), format!("v@s{number}"))
    };
    let to = engine.change_heads(&HeadChange::Copy {
        from,
        name,
        is_writable,
        created: number,
    })?;
    world.copy(from, to, is_writable);
    world.commit();
    Ok(())
}

/// One random thing, with any volume or with the heads.
fn act_in_world(engine: &mut LogEngine, world: &mut World, random: &mut Random) -> Result<Act> {
    if random.one_in(12) {
        change(engine, world, random)?;
        return Ok(Act::Commit);
    }
    let head = world.any_volume(random);
    let twin = world.twins.get_mut(&head).expect("a volume");
    let done = act(engine, twin, random, 500)?;
    if done == Act::Commit {
        world.commit();
    }
    Ok(done)
}

#[test]
fn snapshots_and_clones_keep_what_they_had() {
    for seed in 0..4 {
        vary_by(seed);
        let (dir, said) = (SimDir::new(seed), ever_said(seed));
        let mut engine = create(&dir, 64, &said);
        let (mut world, mut random) = (World::new(), Random(seed + 100));
        for round in 0..6 {
            for _ in 0..60 {
                act_in_world(&mut engine, &mut world, &mut random).expect("no faults");
            }
            world.assert_newest(&engine);
            engine.collect(Effort::Whole).expect("no faults");
            world.assert_newest(&engine);
            let mapped: usize = (world.twins.values().flat_map(|twin| &twin.versions))
                .filter(|versions| versions.last() != Some(&0))
                .count();
            assert_eq!(engine.stats().mapped_lbns, mapped as u64, "seed {seed}");
            engine.commit().expect("no faults");
            world.commit();
            drop(engine);
            engine = open(&dir, &said)
                .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            world.assert_newest(&engine);
        }
        let counters = engine.stats().counters;
        let moved = counters.iter().find(|(name, _)| *name == "relocations");
        assert!(moved.is_some(), "{counters:?}");
    }
}

/// A crash at each point of some changes: each is whole or absent, and everything else is as it was.
#[test]
fn a_change_of_heads_is_whole_or_absent_after_a_crash() {
    let mut crashes = 0;
    for seed in 0..2 {
        vary_by(seed);
        let (dir, said) = (SimDir::new(seed), ever_said(seed));
        let mut engine = create(&dir, 64, &said);
        let (mut world, mut random) = (World::new(), Random(seed + 7));
        for _ in 0..40 {
            act_in_world(&mut engine, &mut world, &mut random).expect("no faults");
        }
        dir.keep_history();
        let mut moments = Vec::new();
        for _ in 0..5 {
            let head = world.any_volume(&mut random);
            let twin = world.twins.get_mut(&head).expect("a volume");
            act(&mut engine, twin, &mut random, 500).expect("no faults");
            let done = world.clone();
            moments.push((dir.counts().points, done.clone(), done));
            let before = world.clone();
            change(&mut engine, &mut world, &mut random).expect("no faults");
            moments.push((dir.counts().points, before, world.clone()));
        }
        let last = moments.last().map_or(0, |(end, ..)| *end);
        let first = moments.first().map_or(0, |(end, ..)| *end);
        for point in first..last {
            let at = moments.partition_point(|(end, ..)| *end <= point);
            let (_, before, after) = &moments[at];
            // Crashes within other work have tests of their own.
            if before.twins.len() == after.twins.len() && point % 9 > 0 {
                continue;
            }
            for luck in [0, 1, 2 + point] {
                let image = dir.crash_image_at(point, luck).expect("history was kept");
                let why = format!("seed {seed}, point {point}, luck {luck}");
                let engine = open(&image, &said).unwrap_or_else(|error| panic!("{why}: {error}"));
                assert_one_of(&engine, before, after, &why);
                crashes += 1;
            }
        }
    }
    assert!(crashes > 150, "{crashes}");
}

fn assert_one_of(engine: &LogEngine, before: &World, after: &World, why: &str) {
    let known: Vec<HeadId> = engine.heads().iter().map(|head| head.id).collect();
    let is_like = |world: &&World| known.iter().eq(world.twins.keys());
    let world = [after, before].into_iter().find(is_like);
    let world = world.unwrap_or_else(|| panic!("{why}: {known:?} are neither the old nor the new"));
    for (head, twin) in &world.twins {
        // A head of both worlds may be older than the newer one says.
        let mut possible = before.twins.get(head).unwrap_or(twin).clone();
        possible.assert_possible(engine, why);
    }
}

#[test]
fn clone_of_a_clone_outlives_both() {
    let (dir, said) = (SimDir::new(5), ever_said(5));
    let mut engine = create(&dir, 64, &said);
    let mut world = World::new();
    let mut random = Random(5);
    let mut copies = Vec::new();
    let mut from = HEAD;
    for (round, is_writable) in [false, true, false, true].into_iter().enumerate() {
        if world.volumes.contains(&from) {
            for _ in 0..30 {
                let twin = world.twins.get_mut(&from).expect("a volume");
                act(&mut engine, twin, &mut random, 500).expect("no faults");
            }
        }
        let name = if is_writable {
            format!("clone{round}")
        } else {
            format!("main@{round}")
        };
        let made = engine.change_heads(&HeadChange::Copy {
            from,
            name,
            is_writable,
            created: 0,
        });
        let made = made.expect("no faults");
        world.copy(from, made, is_writable);
        copies.push(from);
        from = made;
    }
    for head in copies {
        let deleted = engine.change_heads(&HeadChange::Delete { head });
        assert_eq!(deleted.expect("no faults"), head);
        world.twins.remove(&head);
    }
    engine.collect(Effort::Whole).expect("no faults");
    world.assert_newest(&engine);
    drop(engine);
    let engine = open(&dir, &said).expect("whole");
    world.assert_newest(&engine);
    assert_eq!(engine.heads().len(), 1);
}

/// After all snapshots are deleted, what is stored is what one volume needs, and no file of the map is left over.
#[test]
fn pruning_leaks_nothing() {
    let (dir, said) = (SimDir::new(8), ever_said(8));
    let mut engine = create(&dir, 128, &said);
    let mut twin = Twin::new();
    let mut snapshots = Vec::new();
    for round in 0..12u64 {
        let writes: Vec<(u64, u64)> = (0..150)
            .map(|at| ((at * 4 + round) % LBNS, 1 + round * 1000 + at))
            .collect();
        writes
            .iter()
            .for_each(|(lbn, content)| twin.set(*lbn, *content));
        write(&mut engine, &writes).expect("room");
        let made = engine.change_heads(&HeadChange::Copy {
            from: HEAD,
            name: format!("main@{round}"),
            is_writable: false,
            created: round,
        });
        snapshots.push(made.expect("no faults"));
    }
    engine.collect(Effort::Whole).expect("no faults");
    let full = engine.free_space().free;
    let mut random = Random(8);
    while !snapshots.is_empty() {
        let at = random.below(snapshots.len() as u64) as usize;
        let head = snapshots.swap_remove(at);
        engine
            .change_heads(&HeadChange::Delete { head })
            .expect("no faults");
    }
    engine.collect(Effort::Whole).expect("no faults");
    twin.assert_newest(&engine);
    let stats = engine.stats();
    assert_eq!(stats.mapped_lbns, LBNS);
    let used = engine.shared().zones.read().used();
    assert!(used <= 600 / 50 + 6, "{used} zones hold {LBNS} chunks");
    assert!(engine.free_space().free > full + 1000);
    let listed: BTreeSet<_> = Manifest::read(&dir, &seals())
        .expect("whole")
        .runs()
        .collect();
    let files = dir
        .open_subdir("map")
        .expect("there")
        .list()
        .expect("simulated");
    assert_eq!(
        files.len(),
        listed.len(),
        "runs that no list names are gone"
    );
}

/// Deleting a snapshot reads nothing of its map, and writes as little as any checkpoint does.
#[test]
fn deleting_needs_no_ram() {
    let mut written = Vec::new();
    for chunks in [10, 590] {
        let (dir, said) = (SimDir::new(9), ever_said(9));
        let mut engine = create(&dir, 64, &said);
        for lbn in 0..chunks {
            write(&mut engine, &[((lbn * 7) % LBNS, 1 + lbn)]).expect("room");
        }
        let snapshot = engine.change_heads(&HeadChange::Copy {
            from: HEAD,
            name: "main@1".into(),
            is_writable: false,
            created: 0,
        });
        let head = snapshot.expect("no faults");
        let page_reads = engine.shared().map_pages.reads();
        let before = dir.counts().points;
        engine
            .change_heads(&HeadChange::Delete { head })
            .expect("no faults");
        written.push(dir.counts().points - before);
        assert_eq!(engine.shared().map_pages.reads(), page_reads);
    }
    assert_eq!(written[0], written[1], "writes and syncs, whatever it held");
}

/// A write that was under way to a volume when it was deleted goes nowhere, and harms nobody.
#[test]
fn a_write_to_a_deleted_volume_is_dropped() {
    let (dir, said) = (SimDir::new(1), ever_said(1));
    let mut engine = create(&dir, 64, &said);
    let made = engine.change_heads(&HeadChange::Create {
        name: "second".into(),
        lbns: LBNS,
        created: 0,
    });
    let second = made.expect("no faults");
    write(&mut engine, &[(1, 5)]).expect("room");
    write_to(&mut engine, second, &[(1, 6)]).expect("room");
    engine
        .change_heads(&HeadChange::Delete { head: second })
        .expect("no faults");
    write_to(&mut engine, second, &[(1, 7)]).expect("dropped");
    engine.discard(second, 0..9).expect("dropped");
    engine.commit().expect("no faults");
    drop(engine);
    let mut engine = open(&dir, &said).expect("whole");
    assert!(read(&engine, 1).expect("readable") == bytes_of(5));
    let names: Vec<String> = engine.heads().into_iter().map(|head| head.name).collect();
    assert_eq!(names, ["main"]);
    // Its number is not given again.
    let made = engine.change_heads(&HeadChange::Create {
        name: "second".into(),
        lbns: LBNS,
        created: 0,
    });
    assert!(made.expect("no faults") > second);
}

/// A full device that grows takes writes again, at once and after a crash at any point of growing.
#[test]
fn a_device_grows_while_it_is_full() {
    let (dir, said) = (SimDir::new(3), ever_said(3));
    let mut engine = create(&dir, 20, &said);
    let fill = |engine: &mut LogEngine, from: u64| {
        let mut lbn = from;
        while engine.free_space().claimable_data > 0 && lbn < from + 5000 {
            write(engine, &[(lbn, 1 + lbn)]).expect("room");
            engine.write_out().expect("no faults");
            lbn += 1;
        }
        lbn
    };
    let first = fill(&mut engine, 0);
    engine.commit().expect("no faults");
    let data = dir.open_write("data").expect("there");
    data.set_len(60 * (256 << 10)).expect("simulated");
    data.sync().expect("simulated");
    dir.keep_history();
    assert_eq!(
        engine.grow_device(60 * (256 << 10)).expect("no faults"),
        60 * (256 << 10)
    );
    for point in 0..dir.counts().points {
        let image = dir
            .crash_image_at(point, point % 3)
            .expect("history was kept");
        let engine = open(&image, &said).unwrap_or_else(|error| panic!("point {point}: {error}"));
        let zones = engine.shared().zones.read().count();
        assert!(zones == 20 || zones == 60, "{zones}");
        assert!(read(&engine, first - 1).expect("readable") == bytes_of(first));
    }
    let second = fill(&mut engine, first);
    assert!(second > first + 1000, "{first} and then {second}");
    engine.commit().expect("no faults");
    drop(engine);
    let engine = open(&dir, &said).expect("whole");
    for lbn in [0, first - 1, first, second - 1] {
        assert!(read(&engine, lbn).expect("readable") == bytes_of(1 + lbn));
    }
    drop(engine);
    let mut engine = open(&dir, &said).expect("whole");
    let error = engine.grow_device(30 * (256 << 10)).expect_err("smaller");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}
