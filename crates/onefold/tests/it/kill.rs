//! kill -9 at random moments: what was acknowledged is there, whole, and nothing needs a human.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::rig::{Files, Ran, Rig, change, files, id_of, seeded};
use crate::scale::scale;

/// Snapshots that `forget` keeps.
const KEPT: usize = 3;

/// Half of the rounds are with encryption, where opening takes most of the time.
#[test]
fn killed_at_random_moments_nothing_acknowledged_is_lost() {
    kill_at_random_moments(&Rig::open(), 5 * scale());
}

#[test]
fn killed_at_random_moments_nothing_acknowledged_is_lost_with_encryption() {
    kill_at_random_moments(&Rig::new(), 5 * scale());
}

fn kill_at_random_moments(rig: &Rig, rounds: u64) {
    let mut random = seeded("kill");
    let source = rig.path("s");
    change(&source, &mut random);
    let mut acknowledged: HashMap<String, Files> = HashMap::new();
    let started = Instant::now();
    acknowledged.insert(rig.backup("s"), files(&source));
    // Kills fall between the start and somewhat after the usual end.
    let mut usual = started.elapsed();
    let (mut killed, mut round) = (0, 0);
    while round < rounds || killed == 0 {
        assert!(round < 20 * rounds, "all are faster than their killer");
        change(&source, &mut random);
        let args: &[&str] = match round % 3 {
            0 | 1 => &["backup", "s", "--json"],
            _ => &[
                "forget",
                "--keep-last",
                "3",
                "--prune",
                "--compact-below",
                "95%",
            ],
        };
        let before = rig.snapshots();
        let after = usual.mul_f64(random.below(1100) as f64 / 1000.0);
        let began = Instant::now();
        let ran = killed_after(rig, args, after);
        match ran.code {
            None => killed += 1,
            Some(code) => {
                assert_eq!(code, 0, "{args:?}: {}", ran.err);
                usual = began.elapsed();
                if args[0] == "backup" {
                    acknowledged.insert(id_of(&ran), files(&source));
                }
            }
        }
        let kept = if args[0] == "forget" {
            KEPT.min(before.len())
        } else {
            before.len()
        };
        verify(rig, &acknowledged, &before[before.len() - kept..]);
        round += 1;
    }
    println!("{killed} of {round} were killed before they ended");
    rig.run(["prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
    let left: Vec<_> = files(&rig.repo()).into_keys().collect();
    let is_stale =
        |path: &&PathBuf| path.starts_with("sessions") || path.to_string_lossy().contains("tmp-");
    assert_eq!(
        left.iter().find(is_stale),
        None,
        "what killed processes left is gone after a prune"
    );
}

/// A death between writing an object and naming it, without waiting for a kill that hits it.
#[test]
fn unfinished_objects_are_gone_after_a_prune_or_a_repair() {
    let rig = Rig::new();
    rig.write("s/f", b"x");
    let kept = rig.backup("s");
    let unfinished = ["snapshots/", "keys/", "containers/00/", ""]
        .map(|folder| format!("repo/{folder}tmp-4295e9072cbb845b"));
    let are_there = || unfinished.iter().filter(|name| rig.path(name).exists());
    for verb in ["prune", "repair"] {
        unfinished
            .iter()
            .for_each(|name| rig.write(name, b"half an object"));
        rig.run(["prune", "--dry-run"]).ends(0);
        assert_eq!(are_there().count(), 4);
        rig.run([verb]).ends(0);
        assert_eq!(are_there().count(), 0, "{verb}");
    }
    assert_eq!(rig.snapshots(), [kept]);
}

fn killed_after(rig: &Rig, args: &[&str], after: Duration) -> Ran {
    let mut child = rig
        .command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait_with_output().expect("ends").into()
}

/// The repository checks; what must be listed is; and every acknowledged snapshot that is listed comes back as it was.
fn verify(rig: &Rig, acknowledged: &HashMap<String, Files>, must_be_there: &[String]) {
    rig.run(["check"]).ends(0);
    let listed = rig.snapshots();
    for id in must_be_there {
        assert!(listed.contains(id), "snapshot {id} is gone");
    }
    for id in &listed {
        let found = rig.restored(id, "s");
        // One that was killed between its commit and its acknowledgement is whole, too, but nobody knows what it held.
        if let Some(expected) = acknowledged.get(id) {
            assert!(found == *expected, "snapshot {id} differs");
        }
    }
}
