//! Two writers, a reader and a sweep at once on one repository, for some seconds, or minutes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::rig::{Files, Random, Rig, change, files, id_of, seeded};
use crate::scale::scale;

#[test]
fn two_writers_a_reader_and_a_sweep_at_once() {
    let seed = seeded("together").0;
    let rig = Rig::open();
    let acknowledged: Mutex<HashMap<String, (&str, Files)>> = Mutex::default();
    // The newest of each writer, which no sweep may drop.
    let newest: Mutex<HashMap<&str, String>> = Mutex::default();
    for source in ["w1", "w2"] {
        change(&rig.path(source), &mut Random(seed));
        let id = rig.backup(source);
        let files = files(&rig.path(source));
        acknowledged
            .lock()
            .expect("unpoisoned")
            .insert(id, (source, files));
    }
    let (ended, swept) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (number, source) in ["w1", "w2"].into_iter().enumerate() {
            let (rig, acknowledged, newest, ended) = (&rig, &acknowledged, &newest, &ended);
            scope.spawn(move || {
                let mut random = Random(seed ^ number as u64);
                while !ended.load(SeqCst) {
                    change(&rig.path(source), &mut random);
                    let ran = rig.run(["backup", source, "--json"]).ends(0);
                    let id = id_of(&ran);
                    newest
                        .lock()
                        .expect("unpoisoned")
                        .insert(source, id.clone());
                    acknowledged
                        .lock()
                        .expect("unpoisoned")
                        .insert(id, (source, files(&rig.path(source))));
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
    let acknowledged = acknowledged.into_inner().expect("unpoisoned");
    println!(
        "{} snapshots, {} sweeps",
        acknowledged.len(),
        swept.load(SeqCst)
    );
    rig.run(["check", "--read-data"]).ends(0);
    let listed = rig.snapshots();
    assert!(swept.load(SeqCst) > 0, "nothing was swept");
    for (source, id) in newest.into_inner().expect("unpoisoned") {
        assert!(listed.contains(&id), "the newest of {source} is gone");
    }
    for id in &listed {
        let (source, expected) = &acknowledged[id];
        assert!(
            rig.restored(id, source) == *expected,
            "snapshot {id} of {source} differs"
        );
    }
    rig.run(["prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
}
