//! A container destroyed: `check` and `repair` name every file of every snapshot that it hurts, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::rig::{Ran, Random, Rig, files};

/// Names of files by snapshot.
type Named = BTreeMap<String, BTreeSet<String>>;

fn containers(rig: &Rig) -> BTreeSet<PathBuf> {
    let folder = rig.repo().join("containers");
    let names = files(&folder).into_keys();
    names.map(|name| folder.join(name)).collect()
}

/// Three snapshots that share files, and the container with the data that the second brought.
fn three_snapshots(rig: &Rig) -> ([String; 3], PathBuf) {
    let mut random = Random(11);
    let (old, new) = (random.bytes(90_000), random.bytes(120_000));
    rig.write("s/stays", &random.bytes(50_000));
    rig.write("s/changes", &old);
    rig.write("s/sub/goes", &random.bytes(40_000));
    let first = rig.backup("s");
    let before = containers(rig);
    rig.write("s/changes", &[&old[..], &new[..]].concat());
    rig.write("s/sub/comes", &random.bytes(70_000));
    rig.write("s/sub/empty", b"");
    let second = rig.backup("s");
    let added = &containers(rig) - &before;
    fs::rename(rig.path("s/sub/comes"), rig.path("s/moved")).expect("rename");
    fs::remove_file(rig.path("s/sub/goes")).expect("remove");
    rig.write("s/copy", &[&random.bytes(30_000)[..], &new[..]].concat());
    rig.write("s/fresh", &random.bytes(20_000));
    let third = rig.backup("s");
    // The second backup stored more data than metadata.
    let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |m| m.len());
    let data = added.into_iter().max_by_key(bytes).expect("a container");
    ([first, second, third], data)
}

/// Returns the snapshots and files that a check or a repair names.
fn named(ran: &Ran) -> Named {
    let mut named = Named::new();
    for line in ran.lines() {
        if line["message_type"] == "hurt" {
            assert_eq!(line["what"], "file", "{line}");
            let text = |field: &str| line[field].as_str().expect("text").to_owned();
            let files = named.entry(text("snapshot")).or_default();
            assert!(files.insert(text("path")), "twice: {line}");
        }
    }
    named
}

/// Returns the files that cannot be dumped, by snapshot.
fn unreadable(rig: &Rig, snapshots: &[String]) -> Named {
    let mut named = Named::new();
    for snapshot in snapshots {
        let listed = rig.run(["ls", snapshot, "--json"]).ends(0).lines();
        for node in listed.iter().filter(|node| node["type"] == "file") {
            let path = node["path"].as_str().expect("a path");
            match rig.run(["dump", snapshot, path]).code {
                Some(0) => {}
                Some(13) => {
                    named
                        .entry(snapshot.clone())
                        .or_default()
                        .insert(path.into());
                }
                other => panic!("{other:?} of {path}"),
            }
        }
    }
    named
}

fn destroyed(destroy: impl Fn(&PathBuf)) {
    let rig = Rig::open();
    let (snapshots, container) = three_snapshots(&rig);
    destroy(&container);
    let at = |name: &str| rig.path("s").join(name).display().to_string();
    let expected = Named::from([
        (
            snapshots[1].clone(),
            [at("changes"), at("sub/comes")].into(),
        ),
        (
            snapshots[2].clone(),
            [at("changes"), at("moved"), at("copy")].into(),
        ),
    ]);
    let checked = rig.run(["check", "--read-data", "--json"]).ends(13);
    assert_eq!(named(&checked), expected);
    let name = container.file_name().expect("a name").to_string_lossy();
    assert_eq!(checked.last()["broken_packs"], serde_json::json!([name]));
    let repaired = rig.run(["repair", "--json"]).ends(13);
    assert_eq!(named(&repaired), expected);
    assert_eq!(unreadable(&rig, &snapshots), expected);
    // In words, each snapshot is a heading and its files follow.
    for how in [&["check"][..], &["check", "--quiet"]] {
        let words = rig.run(how).ends(13).out;
        assert_eq!(words.matches("hurt in snapshot").count(), 2, "{words}");
        assert_eq!(words.matches(&at("")).count(), 5, "{words}");
    }
    // The first snapshot is whole, and the same data backed up again heals the others.
    rig.run(["restore", &snapshots[0], "--target", "t"]).ends(0);
    rig.run(["backup", "s", "--force"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
    assert_eq!(unreadable(&rig, &snapshots), Named::new());
}

/// Returns how many bytes of `whole` are lost in `dumped`: zeros stand for them, and all else is equal.
fn lost_bytes(dumped: &[u8], whole: &[u8]) -> usize {
    assert_eq!(dumped.len(), whole.len());
    let differ = dumped.iter().zip(whole).filter(|(dumped, whole)| {
        let differ = dumped != whole;
        assert!(!differ || **dumped == 0);
        differ
    });
    differ.count()
}

#[test]
fn a_dump_that_salvages_has_zeros_for_what_is_lost_and_tells_where() {
    let rig = Rig::open();
    let (_, data) = three_snapshots(&rig);
    fs::remove_file(&data).expect("remove");
    let path = rig.path("s/changes").display().to_string();
    let whole = fs::read(rig.path("s/changes")).expect("read");

    rig.run(["dump", "latest", &path, "--target", "half"])
        .ends(13);
    assert!(!rig.path("half").exists());
    let ran = rig
        .run(["dump", "latest", &path, "--salvage", "--target", "rest"])
        .ends(13);
    // Side by side all of them, and one line.
    assert_eq!(ran.err.matches("are lost, ").count(), 1, "{}", ran.err);
    assert!(ran.err.contains(" parts, the first: "), "{}", ran.err);
    assert!(ran.err.contains("zeros stand"), "{}", ran.err);
    let rest = fs::read(rig.path("rest")).expect("read");
    let lost = lost_bytes(&rest, &whole);
    assert!((100_000..=125_000).contains(&lost), "{lost}");

    // Sound files come as ever, and an archive is one that its readers take.
    let sound = rig.path("s/stays").display().to_string();
    rig.run(["dump", "latest", &sound, "--salvage", "--target", "sound"])
        .ends(0);
    let folder = format!("latest:{}", rig.path("s").display());
    for archive in ["tar", "zip"] {
        let args = ["dump", &folder, "-a", archive, "--salvage", "--target"];
        let ran = rig.run([&args[..], &[archive]].concat()).ends(13);
        assert!(ran.err.contains(&path), "{}", ran.err);
    }
    let unpacked = rig.path("unpacked");
    fs::create_dir(&unpacked).expect("mkdir");
    let tar = Command::new("tar")
        .arg("-xf")
        .arg(rig.path("tar"))
        .arg("-C")
        .arg(&unpacked)
        .status();
    assert!(tar.expect("tar").success());
    for (name, whole) in files(&rig.path("s")) {
        let dumped = fs::read(unpacked.join(&name)).expect("read");
        lost_bytes(&dumped, &whole);
    }
}

/// Holes stay holes, lost data is zeros, and what follows is where the archive says.
#[test]
fn a_tar_that_salvages_a_file_with_holes_is_read_to_its_end() {
    use std::os::unix::fs::FileExt;
    let rig = Rig::open();
    rig.write("s/z-behind", b"behind");
    rig.backup("s");
    let before = containers(&rig);
    let file = fs::File::create(rig.path("s/a")).expect("create");
    file.set_len(8 << 20).expect("set the length");
    for (offset, len) in [(1 << 20, 75 << 12), (6 << 20, 25 << 12)] {
        let bytes = Random(offset).bytes(len);
        file.write_all_at(&bytes, offset).expect("write");
    }
    rig.backup("s");
    let added = &containers(&rig) - &before;
    let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |m| m.len());
    let data = added.into_iter().max_by_key(bytes).expect("a container");
    fs::remove_file(&data).expect("remove");
    let folder = format!("latest:{}", rig.path("s").display());
    let dump = ["dump", &folder, "/", "--target", "a.tar"];
    rig.run(dump).ends(13);
    let ran = rig.run([&dump[..], &["--salvage"]].concat()).ends(13);
    assert!(ran.err.contains("409,600 bytes are lost"), "{}", ran.err);
    let unpacked = rig.path("unpacked");
    fs::create_dir(&unpacked).expect("mkdir");
    let tar = Command::new("tar")
        .current_dir(rig.dir.path())
        .args(["-xf", "a.tar", "-C"])
        .arg(&unpacked)
        .status();
    assert!(tar.expect("tar").success());
    let there = files(&unpacked);
    let a = &there[std::path::Path::new("a")];
    assert!(a.len() == 8 << 20 && a.iter().all(|byte| *byte == 0));
    assert_eq!(there[std::path::Path::new("z-behind")], b"behind");
}

#[test]
fn repaired_snapshots_are_whole_and_say_what_they_lack() {
    let rig = Rig::open();
    let (snapshots, container) = three_snapshots(&rig);
    fs::remove_file(&container).expect("remove");
    rig.run(["repair"]).ends(13);
    let before = rig.run(["check", "--json"]).ends(13);
    let dry = rig.run(["repair", "snapshots", "--dry-run", "--forget", "--json"]);
    assert_eq!(named(&dry.ends(0)), named(&before));
    assert_eq!(rig.snapshots(), snapshots);

    let kept = rig
        .run(["repair", "snapshots", &snapshots[1], "--json"])
        .ends(0);
    assert_eq!(kept.last()["changed_snapshots"], 1);
    assert_eq!(rig.snapshots().len(), 4);
    rig.run(["repair", "--forget"]).ends(2);
    let ran = rig
        .run(["repair", "snapshots", "--forget", "--json"])
        .ends(0);
    assert_eq!(ran.last()["changed_snapshots"], 2);
    rig.run(["check", "--read-data"]).ends(0);
    let again = rig
        .run(["repair", "snapshots", "--forget", "--json"])
        .ends(0);
    assert_eq!(again.last()["changed_snapshots"], 0);

    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    let list = list.as_array().expect("an array");
    assert_eq!(list[0]["id"], snapshots[0]);
    let repaired = list
        .iter()
        .filter(|s| s["tags"][0] == "repaired")
        .collect::<Vec<_>>();
    assert_eq!(repaired.len(), list.len() - 1, "{list:?}");
    for snapshot in &repaired {
        let original = snapshot["original"].as_str().expect("an id").to_owned();
        assert!(snapshots[1..].contains(&original), "{snapshot}");
    }
    let third = repaired.last().expect("a snapshot")["id"]
        .as_str()
        .expect("an id");
    let nodes = rig.run(["ls", third, "--json"]).ends(0).lines();
    let lacks: BTreeSet<_> = nodes
        .iter()
        .filter(|node| node["unreadable"] == true)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|node| node["path"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(lacks, named(&before)[&snapshots[2]]);
    let whole = rig.restored_with(third, "s", 3);
    let names: Vec<_> = whole
        .keys()
        .map(|name| name.display().to_string())
        .collect();
    assert_eq!(names, ["fresh", "stays", "sub/empty"]);
    for (name, bytes) in whole {
        assert_eq!(fs::read(rig.path("s").join(name)).expect("read"), bytes);
    }
    // The next backup has everything again.
    let next = rig.backup("s");
    assert_eq!(rig.restored(&next, "s"), files(&rig.path("s")));
}

#[test]
fn a_missing_container_hurts_the_files_that_are_named() {
    destroyed(|container| fs::remove_file(container).expect("remove"));
}

#[test]
fn a_container_of_zeros_hurts_the_files_that_are_named() {
    destroyed(|container| {
        let len = fs::metadata(container).expect("stat").len();
        fs::write(container, vec![0; len as usize]).expect("write");
    });
}

/// With a flipped bit in it, nobody knows what it kept: nothing is swept, and no other is the latest, until it is
/// dropped.
#[test]
fn a_snapshot_that_cannot_be_read_can_be_dropped() {
    for drop_it in [
        &["forget", "ID"][..],
        &["repair", "snapshots", "--forget"],
        &["repair", "snapshots", "--forget", "ID"],
    ] {
        let rig = Rig::open();
        rig.write("s/a", &Random(1).bytes(50_000));
        let hurt = rig.backup("s");
        rig.write("s/b", &Random(2).bytes(50_000));
        let whole = rig.backup("s");
        let object = rig.repo().join("snapshots").join(&hurt);
        let mut bytes = fs::read(&object).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&object, bytes).expect("write");
        for refused in [
            &["prune"][..],
            &["ls", "latest"],
            &["repair", "snapshots"],
            &["repair", "snapshots", "--dry-run"],
        ] {
            rig.run(refused).ends(13);
        }
        let args = drop_it.iter().map(|arg| match *arg {
            "ID" => &hurt[..8],
            other => other,
        });
        rig.run(args).ends(0);
        assert_eq!(rig.snapshots(), std::slice::from_ref(&whole));
        rig.run(["prune"]).ends(0);
        rig.run(["check", "--read-data"]).ends(0);
        assert_eq!(rig.restored("latest", "s"), files(&rig.path("s")));
    }
}
