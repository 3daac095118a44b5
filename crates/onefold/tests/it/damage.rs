//! How far damage of metadata goes: what is told of it, and that the other snapshots are read all the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::rig::{Random, Rig, files};

/// Two snapshots of other files, and the one container of metadata that each has for itself.
fn two_snapshots(rig: &Rig) -> [(String, PathBuf); 2] {
    let mut random = Random(7);
    let folder = rig.repo().join("containers");
    let mut known = BTreeSet::new();
    ["old", "new"].map(|source| {
        for name in 0..30 {
            rig.write(&format!("{source}/d{name}/file"), &random.bytes(5_000));
        }
        let id = rig.backup(source);
        let listed: BTreeSet<_> = files(&folder).into_iter().collect();
        let added = listed.iter().filter(|one| !known.contains(*one));
        let small = added.min_by_key(|(_, bytes)| bytes.len()).expect("two");
        let metadata = folder.join(&small.0);
        known = listed;
        (id, metadata)
    })
}

fn flip_a_bit(path: &PathBuf) {
    let mut bytes = fs::read(path).expect("a container");
    bytes[60] ^= 1;
    fs::write(path, bytes).expect("ours");
}

#[test]
fn find_and_stats_go_on_past_a_snapshot_that_cannot_be_read() {
    for of_the_object in [false, true] {
        let rig = Rig::open();
        let [(old, _), (new, metadata)] = two_snapshots(&rig);
        match of_the_object {
            true => flip_a_bit(&rig.repo().join("snapshots").join(&new)),
            false => flip_a_bit(&metadata),
        }
        let found = rig.run(["find", "file"]).ends(13);
        assert_eq!(found.out.matches("/file\n").count(), 30, "{}", found.out);
        assert!(found.err.contains(&new[..8]), "{}", found.err);
        let found = rig.run(["find", "file", "--json"]).ends(13);
        let results = found.last();
        assert_eq!(results.as_array().map(Vec::len), Some(1));
        assert_eq!(results[0]["snapshot"], old.as_str());
        assert_eq!(results[0]["hits"], 30);
        // Standard error is JSON, too.
        let told: Vec<serde_json::Value> = found
            .err
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert_eq!(told[0]["message_type"], "error");
        assert_eq!(told[0]["item"], new.as_str());
        assert_eq!(told[1]["message_type"], "exit_error");
        let stats = rig.run(["stats", "--json"]).ends(13);
        assert_eq!(stats.last()["total_file_count"], 30);
        assert!(stats.err.contains(&new), "{}", stats.err);
    }
}

#[test]
fn a_snapshot_without_its_listing_is_lost_whole_and_counts_as_that() {
    let rig = Rig::open();
    let snapshots = two_snapshots(&rig);
    for (_, metadata) in &snapshots {
        flip_a_bit(metadata);
    }
    for args in [&["check"][..], &["check", "--read-data"]] {
        let ran = rig.run(args).ends(13);
        assert!(ran.err.contains("2 whole snapshots"), "{}", ran.err);
    }
    let checked = rig.run(["check", "--json"]).ends(13);
    let lost: Vec<_> = checked
        .lines()
        .into_iter()
        .filter(|line| line["message_type"] == "hurt")
        .map(|line| (line["snapshot"].clone(), line["what"].clone()))
        .collect();
    let all = snapshots.each_ref();
    let all = all.map(|(id, _)| (id.as_str().into(), "all".into()));
    assert_eq!(lost, all);
    assert_eq!(checked.last()["hurt_snapshots"], 2);
    let ran = rig.run(["restore", "latest", "--target", "t"]).ends(13);
    assert!(ran.err.contains("nothing is restored"), "{}", ran.err);
    assert!(!ran.err.contains("everything else"), "{}", ran.err);
    assert!(!ran.err.contains("1 path"), "{}", ran.err);
    // A lost object is no file either.
    flip_a_bit(&rig.repo().join("snapshots").join(&snapshots[0].0));
    let ran = rig.run(["check"]).ends(13);
    assert!(ran.err.contains("2 whole snapshots"), "{}", ran.err);
}
