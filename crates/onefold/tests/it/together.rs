//! Two writers, a reader and a sweep at once on one repository, for some seconds, or minutes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::rig::{Files, Random, Rig, change, files, id_of, seeded};
use crate::scale::scale;

/// Snapshots that were saved.
#[derive(Default)]
struct Acknowledged {
    all: HashMap<String, (&'static str, Files)>,
    /// Of each source, which no sweep may drop.
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
    let seed = seeded("together").0;
    let rig = Rig::open();
    let acknowledged: Mutex<Acknowledged> = Mutex::default();
    for source in ["w1", "w2"] {
        change(&rig.path(source), &mut Random(seed));
        let id = rig.backup(source);
        let files = files(&rig.path(source));
        acknowledged.lock().add(id, source, files);
    }
    let (ended, swept) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (number, source) in ["w1", "w2"].into_iter().enumerate() {
            let (rig, acknowledged, ended) = (&rig, &acknowledged, &ended);
            scope.spawn(move || {
                let mut random = Random(seed ^ number as u64);
                while !ended.load(SeqCst) {
                    change(&rig.path(source), &mut random);
                    let ran = rig.run(["backup", source, "--json"]).ends(0);
                    let files = files(&rig.path(source));
                    acknowledged.lock().add(id_of(&ran), source, files);
                }
            });
        }
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                rig.run([
                    "forget",
                    "--keep-last",
                    "2",
                    "--prune",
                    "--compact-below",
                    "95%",
                    "--wait",
                    "1",
                ])
                .ends(0);
                swept.fetch_add(1, SeqCst);
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
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        ended.store(true, SeqCst);
    });
    let Acknowledged { all, newest } = acknowledged.into_inner();
    println!("{} snapshots, {} sweeps", all.len(), swept.load(SeqCst));
    rig.run(["check", "--read-data"]).ends(0);
    let listed = rig.snapshots();
    assert!(swept.load(SeqCst) > 0, "nothing was swept");
    for (source, id) in newest {
        assert!(listed.contains(&id), "the newest of {source} is gone");
    }
    for id in &listed {
        let (source, expected) = &all[id];
        assert!(
            rig.restored(id, source) == *expected,
            "snapshot {id} of {source} differs"
        );
    }
    rig.run(["prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
}
