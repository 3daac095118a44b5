//! Advice at the end of a check and a repair: a check sends to a repair for damage that a repair mends, and neither
//! sends to the other for the rest.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rig::{Ran, Random, Rig, files};

const REPAIR: &str = "`onefold repair` reads everything";

fn ruin(path: &Path) {
    let len = fs::metadata(path).expect("ours").len();
    fs::write(path, vec![0; len as usize]).expect("ours");
}

fn backed_up(rig: Rig) -> (Rig, String) {
    rig.write("s/file", &Random(3).bytes(20_000));
    let id = rig.backup("s");
    (rig, id)
}

/// Each container, the one of data first.
fn containers(rig: &Rig) -> Vec<PathBuf> {
    let folder = rig.repo().join("containers");
    let mut all: Vec<_> = files(&folder).into_iter().collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    let paths = all.into_iter().map(|(name, _)| folder.join(name));
    paths.collect()
}

/// Returns the messages of a check and of a repair, both of which end with 13.
#[track_caller]
fn said(rig: &Rig) -> [String; 2] {
    ["check", "repair"].map(|verb| rig.run([verb]).ends(13).err)
}

#[test]
fn what_a_repair_has_left_is_not_sent_to_a_repair_again() {
    let (rig, _) = backed_up(Rig::open());
    ruin(&containers(&rig)[0]);
    let [first, repaired] = said(&rig);
    assert!(first.contains(REPAIR), "{first}");
    let [again, _] = said(&rig);
    for said in [repaired, again] {
        assert!(!said.contains(REPAIR), "{said}");
        assert!(said.contains("back up the same files again"), "{said}");
        assert!(said.contains("repair snapshots --forget"), "{said}");
    }
    // The advice does help.
    rig.run(["repair", "snapshots", "--forget"]).ends(0);
    rig.run(["check"]).ends(0);
}

/// A repair has the index forget what is lost: a backup before it would refer to that again.
#[test]
fn a_bad_block_of_a_listing_is_sent_to_a_repair_once() {
    let (rig, _) = backed_up(Rig::open());
    let listing = containers(&rig).pop().expect("a container");
    let mut bytes = fs::read(&listing).expect("read");
    bytes[100] ^= 1;
    fs::write(&listing, bytes).expect("ours");
    let [first, repaired] = said(&rig);
    assert!(first.contains(REPAIR), "{first}");
    let [again, _] = said(&rig);
    for said in [repaired, again] {
        assert!(!said.contains(REPAIR), "{said}");
        assert!(said.contains("back up the same files again"), "{said}");
    }
    rig.run(["backup", "s", "--force"]).ends(0);
    assert_eq!(rig.restored("latest", "s"), files(&rig.path("s")));
}

/// Nobody can mend what is not there.
#[test]
fn a_missing_container_is_not_sent_to_a_repair() {
    let (rig, _) = backed_up(Rig::open());
    for container in containers(&rig) {
        fs::remove_file(container).expect("ours");
    }
    for said in said(&rig) {
        assert!(!said.contains(REPAIR), "{said}");
        assert!(said.contains("repair snapshots --forget"), "{said}");
    }
    rig.run(["repair", "snapshots", "--forget"]).ends(0);
    rig.run(["check"]).ends(0);
}

#[test]
fn a_missing_folder_is_to_be_put_back() {
    for folder in ["containers", "snapshots"] {
        let (rig, _) = backed_up(Rig::open());
        fs::rename(rig.repo().join(folder), rig.path("away")).expect("ours");
        for said in said(&rig) {
            assert!(said.contains("put the folder back"), "{said}");
            assert!(!said.contains(REPAIR), "{said}");
            assert!(!said.contains("check --read-data"), "{said}");
            assert!(!said.contains("can be read"), "{said}");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_not_said_to_be_healed_by_a_backup() {
    let (rig, id) = backed_up(Rig::open());
    ruin(&rig.repo().join("snapshots").join(&id));
    for said in said(&rig) {
        assert!(said.contains("onefold forget ID"), "{said}");
        assert!(!said.contains("back up the same"), "{said}");
        assert!(!said.contains(REPAIR), "{said}");
    }
    let said = rig.run(["ls", &id]).ends(13).err;
    assert!(said.contains("onefold forget ID"), "{said}");
}

#[test]
fn another_key_is_spoken_of_only_where_there_may_be_one() {
    let (rig, _) = backed_up(Rig::new());
    let keys = || files(&rig.repo().join("keys")).into_keys();
    let first: Vec<_> = keys().collect();
    rig.write("new", b"another");
    rig.run(["key", "add", "--new-password-file", "new"])
        .ends(0);
    let new = keys().find(|name| !first.contains(name)).expect("two");
    ruin(&rig.repo().join("keys").join(&new));
    for said in said(&rig) {
        assert!(said.contains("onefold key remove ID"), "{said}");
        assert!(!said.contains("back up the same"), "{said}");
    }
    let mut with_new = rig.command(["check"]);
    let with_new = with_new.env("ONEFOLD_PASSWORD", "another").output();
    let told = Ran::from(with_new.expect("it starts")).ends(13);
    assert!(told.err.contains("if there is another key"), "{}", told.err);
    let id = new.display().to_string();
    rig.run(["key", "remove", &id[..8]]).ends(0);
    rig.run(["check"]).ends(0);

    for name in keys() {
        fs::remove_file(rig.repo().join("keys").join(name)).expect("ours");
    }
    for said in said(&rig) {
        assert!(said.contains("put the folder `keys` back"), "{said}");
        assert!(!said.contains("another key"), "{said}");
    }
}
