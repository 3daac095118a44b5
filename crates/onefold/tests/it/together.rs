//! Two writers, a reader and a sweep at once on one repository, for some seconds, or minutes; now and then a writer
//! is killed.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::rig::{Files, Ran, Random, Rig, change, files, id_of, seeded};
use crate::scale::scale;

/// Snapshots that were saved.
#[derive(Default)]
struct Acknowledged {
    all: HashMap<String, (&'static str, Files)>,
    /// Newest snapshot of each source, which no sweep may drop.
    newest: HashMap<&'static str, String>,
}

impl Acknowledged {
    fn add(&mut self, id: String, source: &'static str, files: Files) {
        self.newest.insert(source, id.clone());
        self.all.insert(id, (source, files));
    }
}

#[test]
fn two_writers_a_reader_and_a_sweep_at_once() {
    all_at_once(&Rig::open());
}

/// Opening takes so long that there are fewer rounds.
#[test]
fn two_writers_a_reader_and_a_sweep_at_once_with_encryption() {
    all_at_once(&Rig::new());
}

/// Backs up, or is killed with -9 before that ends: gives what it acknowledged.
fn back_up_unless_killed(rig: &Rig, source: &str, kill_after: Option<Duration>) -> Option<String> {
    let mut backup = rig.command(["backup", source, "--json"]);
    backup.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = backup.spawn().expect("starts");
    if let Some(after) = kill_after {
        std::thread::sleep(after);
        let _ = child.kill();
    }
    let ran = Ran::from(child.wait_with_output().expect("ends"));
    if kill_after.is_some() && ran.code.is_none() {
        return None;
    }
    Some(id_of(&ran.ends(0)))
}

fn all_at_once(rig: &Rig) {
    let seed = seeded("together").0;
    let acknowledged: Mutex<Acknowledged> = Mutex::default();
    for source in ["w1", "w2"] {
        change(&rig.path(source), &mut Random(seed));
        let id = rig.backup(source);
        let files = files(&rig.path(source));
        acknowledged.lock().add(id, source, files);
    }
    let (ended, deleted, killed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (number, source) in ["w1", "w2"].into_iter().enumerate() {
            let (acknowledged, ended, killed) = (&acknowledged, &ended, &killed);
            scope.spawn(move || {
                let mut random = Random(seed ^ number as u64);
                let mut may_be_killed = number == 0;
                while !ended.load(SeqCst) {
                    change(&rig.path(source), &mut random);
                    let kill = (may_be_killed && random.one_in(2))
                        .then(|| Duration::from_millis(random.below(300)));
                    match back_up_unless_killed(rig, source, kill) {
                        Some(id) => acknowledged
                            .lock()
                            .add(id, source, files(&rig.path(source))),
                        None => drop(killed.fetch_add(1, SeqCst)),
                    }
                    // Two that died behind their commit would push the newest that was acknowledged out of what is
                    // kept.
                    may_be_killed = number == 0 && kill.is_none();
                }
            });
        }
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                let forget = "forget --keep-last 2 --prune --compact-below 95% --wait 20 --json";
                let ran = rig.run(forget.split(' ')).ends(0);
                let lines = ran.lines();
                let counts = lines
                    .iter()
                    .filter_map(|line| line["deleted_containers"].as_u64());
                deleted.fetch_add(counts.sum(), SeqCst);
            }
        });
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                rig.run(["restore", "latest", "--target", "reader", "-q"])
                    .ends(0);
                rig.run(["find", "f1", "-q"]).ends(0);
            }
        });
        // CI gets some seconds, who asks for ten times as much some minutes.
        let until = Instant::now() + Duration::from_secs(5 + 15 * (scale().max(1) - 1));
        let is_too_long = || Instant::now() > until + Duration::from_secs(240);
        while Instant::now() < until || deleted.load(SeqCst) == 0 && !is_too_long() {
            std::thread::sleep(Duration::from_millis(50));
        }
        ended.store(true, SeqCst);
    });
    let acknowledged = acknowledged.into_inner();
    let (deleted, killed) = (deleted.load(SeqCst), killed.load(SeqCst));
    println!(
        "{} snapshots, {deleted} containers deleted, {killed} backups killed",
        acknowledged.all.len()
    );
    assert!(deleted > 0, "nothing was deleted");
    assert_all_is_there(rig, acknowledged);
}

/// Checks that every acknowledged and kept snapshot comes back as it was, the newest of each source among them.
fn assert_all_is_there(rig: &Rig, Acknowledged { all, newest }: Acknowledged) {
    rig.run(["check", "--read-data"]).ends(0);
    let listed = rig.snapshots();
    for (source, id) in newest {
        assert!(listed.contains(&id), "the newest of {source} is gone");
    }
    for id in &listed {
        // One that was killed between its commit and its acknowledgement is whole, too, but nobody knows what it held.
        let Some((source, expected)) = all.get(id) else {
            rig.run(["restore", id, "--target", "unknown", "-q"])
                .ends(0);
            continue;
        };
        assert!(
            rig.restored(id, source) == *expected,
            "snapshot {id} of {source} differs"
        );
    }
    rig.run(["prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
}
