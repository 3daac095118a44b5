//! `find --blob`, `--tree` and `--pack`, and times of access: what restic finds and keeps.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::rig::{Random, Rig};

fn texts(found: &Value, field: &str) -> BTreeSet<String> {
    let found = found.as_array().expect("a list").iter();
    found
        .map(|one| one[field].as_str().expect("text").to_owned())
        .collect()
}

/// Two snapshots that share a file, its twin and another.
fn two_snapshots(rig: &Rig) -> [String; 2] {
    let bytes = Random(1).bytes(3_000);
    rig.write("s/a", &bytes);
    rig.write("s/sub/twin", &bytes);
    rig.write("s/other", &Random(2).bytes(3_000));
    let first = rig.backup("s");
    rig.write("s/later", b"later");
    [first, rig.backup("s")]
}

fn find(rig: &Rig, args: &[&str]) -> Value {
    rig.run([&["find", "--json"][..], args].concat())
        .ends(0)
        .last()
}

/// Returns the first of the found objects whose path has this end.
fn with_path<'a>(found: &'a Value, end: &str) -> Option<&'a Value> {
    let mut found = found.as_array().expect("a list").iter();
    found.find(|one| one["path"].as_str().is_some_and(|path| path.ends_with(end)))
}

/// Finds the objects in the container of the data.
fn in_data(rig: &Rig) -> Value {
    let containers = rig.run(["list", "packs"]).ends(0).out;
    let mut all = containers
        .lines()
        .map(|container| find(rig, &["--pack", container]));
    all.find(|found| with_path(found, "/s/a").is_some())
        .expect("data")
}

#[test]
fn objects_are_found_by_their_ids() {
    let rig = Rig::open();
    let [first, second] = two_snapshots(&rig);
    let data = in_data(&rig);
    assert_eq!(texts(&data, "object_type"), BTreeSet::from(["blob".into()]));
    assert!(with_path(&data, "/s/sub/twin").is_some(), "{data}");
    assert!(with_path(&data, "/s/other").is_some(), "{data}");
    let snapshots = BTreeSet::from([first, second.clone()]);
    assert_eq!(texts(&data, "snapshot"), snapshots);

    let a = with_path(&data, "/s/a").and_then(Value::as_object);
    let a = a.expect("an object");
    let keys: Vec<&str> = a.keys().map(String::as_str).collect();
    let of_restic = [
        "id",
        "object_type",
        "parent_tree",
        "path",
        "snapshot",
        "time",
    ];
    assert_eq!(keys, of_restic);
    let (id, parent) = (&a["id"], &a["parent_tree"]);
    let (id, parent) = (id.as_str().expect("an id"), parent.as_str().expect("an id"));
    let found = find(&rig, &["--blob", &id[..12], "--snapshot", &second]);
    assert_eq!(texts(&found, "path").len(), 2, "{found}");
    assert!(with_path(&found, "/s/sub/twin").is_some(), "{found}");

    assert!(with_path(&find(&rig, &["--tree", parent]), "/").is_some());
    let tree = rig.run(["snapshots", "--json"]).ends(0).last()[1]["tree"].clone();
    let found = find(&rig, &["--tree", tree.as_str().expect("an id")]);
    assert_eq!(texts(&found, "path"), BTreeSet::from(["/".into()]));

    let listed = rig.run(["list", "blobs"]).ends(0).out;
    assert!(listed.contains(&format!("data {id}\n")), "{listed}");
    assert!(listed.contains(&format!("tree {parent}\n")), "{listed}");
    let text = rig
        .run(["find", "--blob", id, "--show-pack-id"])
        .ends(0)
        .out;
    assert!(text.contains(&format!("Found blob {id}\n ... in file ")));
    assert!(text.contains(" ... in pack "), "{text}");
}

#[test]
fn what_is_no_id_is_refused_and_what_no_object_has_is_not_found() {
    let rig = Rig::open();
    two_snapshots(&rig);
    rig.run(["find", "--blob", "no id"]).ends(2);
    rig.run(["find", "--blob", "--tree", "ab"]).ends(2);
    rig.run(["find", "--show-pack-id", "a"]).ends(2);
    rig.run(["find", "--pack", "0000000000"]).ends(1);
    let found = find(&rig, &["--blob", &"f".repeat(64)]);
    assert_eq!(found, serde_json::json!([]));
}

#[test]
fn times_of_access_are_kept_where_that_is_asked_for() {
    let rig = Rig::open();
    rig.write("s/f", b"content");
    let (atime, mtime) = (
        UNIX_EPOCH + Duration::new(1_000_000_001, 500),
        UNIX_EPOCH + Duration::from_secs(2_000),
    );
    let times = std::fs::FileTimes::new()
        .set_accessed(atime)
        .set_modified(mtime);
    let file = std::fs::File::options().write(true).open(rig.path("s/f"));
    file.and_then(|file| file.set_times(times)).expect("times");
    rig.run(["backup", "s"]).ends(0);
    rig.run(["backup", "s", "--with-atime"]).ends(0);
    let of = |snapshot: &str| {
        let lines = rig.run(["ls", snapshot, "--json"]).ends(0).lines();
        let file = lines.iter().find(|line| line["name"] == "f").expect("f");
        file["atime"].as_str().expect("a time").to_owned()
    };
    let ids: Vec<String> = texts_in_order(&rig);
    assert!(
        of(&ids[0]).starts_with("1970-01-01T00:33:20"),
        "{}",
        of(&ids[0])
    );
    assert!(
        of(&ids[1]).starts_with("2001-09-09T01:46:41.0000005"),
        "{}",
        of(&ids[1])
    );
    let spec = format!("{}:{}", ids[1], rig.path("s").display());
    rig.run(["restore", &spec, "--target", "t", "--verify"])
        .ends(0);
    let restored = std::fs::metadata(rig.path("t/f")).expect("restored");
    assert_eq!(restored.modified().ok(), Some(mtime));
    assert_eq!(restored.accessed().ok(), Some(atime));
    let diff = rig.run(["diff", "--metadata", &ids[0], &ids[1]]).ends(0);
    assert!(
        !diff.out.contains("/f"),
        "one that is not kept differs from none: {}",
        diff.out
    );
}

fn texts_in_order(rig: &Rig) -> Vec<String> {
    let all = rig.run(["snapshots", "--json"]).ends(0).last();
    let all = all.as_array().expect("a list").iter();
    all.map(|one| one["id"].as_str().expect("an id").to_owned())
        .collect()
}
