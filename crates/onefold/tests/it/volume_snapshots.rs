//! Snapshots, clones and several volumes of a depot, their backups, and growing.

use std::process::Command;

use serde_json::Value;

use crate::devices::can_attach;
use crate::rig::{Random, Rig};
use crate::untested::has;
use crate::volume::{Serving, qemu_io, succeeds};

const MIB: usize = 1 << 20;

fn create(rig: &Rig) {
    let args = ["-q", "volume", "create", "depot", "--size", "32M"];
    rig.run(args.into_iter().chain(["--capacity", "160M"]))
        .ends(0);
}

/// URI of an export of a depot that is served at `socket`.
fn uri(rig: &Rig, name: &str) -> String {
    let socket = rig.path("socket");
    format!("nbd+unix:///{name}?socket={}", socket.display())
}

fn copy_in(rig: &Rig, name: &str, content: &[u8]) {
    let path = rig.path("content");
    std::fs::write(&path, content).expect("write");
    succeeds(Command::new("nbdcopy").arg(&path).arg(uri(rig, name)));
}

fn copy_out(rig: &Rig, name: &str) -> Vec<u8> {
    let path = rig.path("copied");
    let _ = std::fs::remove_file(&path);
    succeeds(Command::new("nbdcopy").arg(uri(rig, name)).arg(&path));
    std::fs::read(&path).expect("read")
}

fn names(rig: &Rig) -> Vec<String> {
    let listed = rig.run(["--json", "volume", "list", "depot"]).ends(0).out;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let heads = listed.as_array().expect("a list").iter();
    heads
        .map(|head| head["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn snapshots_and_clones_are_made_and_served_while_the_depot_is_served() {
    if !has("nbdcopy") || !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    create(&rig);
    let first = Random(1).bytes(4 * MIB);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    copy_in(&rig, "main", &first);
    rig.run(["-q", "volume", "snapshot", "depot@monday"])
        .ends(0);
    qemu_io(&uri(&rig, "main"), &["write -P 7 1M 1M"]);
    rig.run(["-q", "volume", "clone", "depot@monday", "depot:old"])
        .ends(0);
    qemu_io(&uri(&rig, "old"), &["write -P 8 2M 1M"]);
    rig.run(["-q", "volume", "create", "depot:new", "--size", "8M"])
        .ends(0);
    assert_eq!(names(&rig), ["main", "main@monday", "new", "old"]);
    assert!(copy_out(&rig, "main@monday").starts_with(&first));
    let mut changed = first.clone();
    changed[2 * MIB..3 * MIB].fill(8);
    assert!(copy_out(&rig, "old").starts_with(&changed));
    let refused = rig.run(["volume", "snapshot", "depot@monday"]).ends(1);
    assert!(refused.err.contains("has this name"), "{}", refused.err);
    serving.stop();

    // The origin and its snapshot go, and the clone stays; now without a server.
    rig.run(["-q", "volume", "snapshot", "depot@monday", "--delete"])
        .ends(0);
    rig.run(["volume", "delete", "depot:main"]).ends(2);
    rig.run(["-q", "volume", "delete", "depot:main", "--yes"])
        .ends(0);
    rig.run(["volume", "collect", "depot"]).ends(0);
    assert_eq!(names(&rig), ["new", "old"]);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    assert!(copy_out(&rig, "old").starts_with(&changed));
    serving.stop();
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
}

#[test]
fn options_of_a_depot_are_refused_for_one_more_volume() {
    let rig = Rig::empty();
    create(&rig);
    let args = ["volume", "create", "depot:two", "--size", "8M"];
    for (option, value) in [
        ("--backend", "cbt"),
        ("--capacity", "1G"),
        ("--chunk-size", "8K"),
        ("--packing", "none"),
    ] {
        let refused = rig.run(args.iter().chain(&[option, value])).ends(2);
        assert!(refused.err.contains(option), "{}", refused.err);
    }
    assert_eq!(names(&rig), ["main"]);
}

#[test]
fn other_backends_keep_one_volume() {
    let rig = Rig::empty();
    let args = ["-q", "volume", "create", "depot", "--size", "16M"];
    rig.run(args.into_iter().chain(["--backend", "inram-saved"]))
        .ends(0);
    let refused = rig.run(["volume", "snapshot", "depot@a"]).ends(1);
    assert!(refused.err.contains("backend log"), "{}", refused.err);
}

/// Writes to the volume at two places, discards at a third, and does the same to what it is to hold.
fn change(rig: &Rig, content: &mut [u8]) {
    for (command, at, length, byte) in [
        ("write -P 7 1M 512k", 1, 512 << 10, 7),
        ("write -P 9 5M 300k", 5, 300 << 10, 9),
        ("discard 9M 1M", 9, MIB, 0),
    ] {
        qemu_io(&uri(rig, "main"), &[command]);
        content[at * MIB..at * MIB + length].fill(byte);
    }
}

/// The latest snapshot's image of the volume, restored as a file.
fn restored_image(rig: &Rig) -> Vec<u8> {
    rig.run(["-q", "restore", "latest", "--target", "out"])
        .ends(0);
    let depot = rig.path("depot").canonicalize().expect("there");
    let path = depot.join("main");
    let inside = path.strip_prefix("/").expect("an absolute path");
    std::fs::read(rig.path("out").join(inside)).expect("restored")
}

/// A backup of a snapshot reads what changed since the one before, and what it holds comes back as a file and as a
/// volume.
#[test]
fn a_backup_of_a_snapshot_reads_what_changed() {
    if !has("nbdcopy") || !has("qemu-io") {
        return;
    }
    let rig = Rig::open();
    create(&rig);
    let mut content = Random(2).bytes(16 * MIB);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    copy_in(&rig, "main", &content);
    rig.run(["-q", "volume", "snapshot", "depot@a"]).ends(0);
    let first = rig
        .run(["--json", "backup", "volume:depot@a"])
        .ends(0)
        .last();
    assert_eq!(first["bytes_read"], 16 * MIB as u64, "{first}");
    change(&rig, &mut content);
    rig.run(["-q", "volume", "snapshot", "depot@b"]).ends(0);
    serving.stop();
    // Without a server, the backup opens the depot itself.
    let second = rig
        .run(["--json", "backup", "volume:depot@b"])
        .ends(0)
        .last();
    let read = second["bytes_read"].as_u64().expect("a number");
    let changed = (512 + 300) << 10;
    assert!(
        read >= 1 && read <= changed * 11 / 10,
        "{read} of {changed}"
    );
    let same = rig
        .run(["--json", "backup", "volume:depot@b"])
        .ends(0)
        .last();
    assert_eq!(same["bytes_read"], 0, "{same}");

    let restored = restored_image(&rig);
    assert_eq!(restored.len(), 32 * MIB);
    assert!(
        restored[..16 * MIB] == content[..],
        "the image is as it was"
    );
    assert!(restored[16 * MIB..].iter().all(|byte| *byte == 0));

    let onto = ["-q", "restore", "latest", "--target", "volume:depot:again"];
    let verified = onto.into_iter().chain(["--verify"]);
    rig.run(verified).ends(0);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    assert!(copy_out(&rig, "again") == restored);
    qemu_io(&uri(&rig, "again"), &["write -P 3 2M 64k"]);
    serving.stop();
    is_overwritten_only_if_asked(&rig, &onto, &restored);
    // Without its base, all is read.
    rig.run(["-q", "volume", "snapshot", "depot@b", "--delete"])
        .ends(0);
    rig.run(["-q", "volume", "snapshot", "depot@c"]).ends(0);
    let third = rig
        .run(["--json", "backup", "volume:depot@c"])
        .ends(0)
        .last();
    assert!(
        third["bytes_read"].as_u64() > Some(14 * MIB as u64),
        "{third}"
    );
    let refused = rig.run(["backup", "volume:depot"]).ends(2);
    assert!(refused.err.contains("names no snapshot"), "{}", refused.err);
}

/// The volume `again` holds something by now.
fn is_overwritten_only_if_asked(rig: &Rig, onto: &[&str], restored: &[u8]) {
    let refused = rig.run(onto).ends(2);
    assert!(refused.err.contains("is there already"), "{}", refused.err);
    for (option, value) in [
        ("--include", "x"),
        ("--exclude", "x"),
        ("--overwrite", "never"),
        ("--include-xattr", "x"),
    ] {
        let refused = rig.run(onto.iter().chain(&[option, value])).ends(2);
        assert!(refused.err.contains(option), "{}", refused.err);
    }
    rig.run(onto.iter().chain(&["--overwrite", "always"]))
        .ends(0);
    let serving = Serving::start(rig, &["depot", "--unix", "socket"]);
    assert!(copy_out(rig, "again") == restored);
    serving.stop();
}

/// A volume that a failed restore has made is gone again, so that the next one may make it.
#[test]
fn a_restore_that_fails_leaves_no_volume() {
    let rig = Rig::open();
    let args = ["-q", "volume", "create", "small", "--size", "8M"];
    rig.run(args.into_iter().chain(["--capacity", "64M"]))
        .ends(0);
    let fill = ["-q", "restore", "latest", "--target"];
    let mut volumes = 0;
    let failed = loop {
        let target = format!("volume:small:v{volumes}");
        rig.write("image", &Random(volumes).bytes(24 * MIB));
        rig.run(["-q", "backup", "image"]).ends(0);
        let ran = rig.run(fill.into_iter().chain([target.as_str()]));
        if ran.code != Some(0) {
            break ran;
        }
        volumes += 1;
        assert!(volumes < 8, "64 MiB have no room for that");
    };
    failed.ends(14);
    let listed = rig.run(["volume", "list", "small"]).ends(0).out;
    let expected = volumes as usize + 1;
    assert_eq!(listed.lines().count(), expected, "{listed}");
}

/// A client of NBD learns which bytes of a snapshot may differ from an earlier one, and none of it is read.
#[test]
fn block_status_tells_what_changed_between_snapshots() {
    if !has("nbdinfo") || !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    create(&rig);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    qemu_io(&uri(&rig, "main"), &["write -P 5 0 2M"]);
    rig.run(["-q", "volume", "snapshot", "depot@a"]).ends(0);
    qemu_io(&uri(&rig, "main"), &["write -P 7 1M 64k"]);
    rig.run(["-q", "volume", "snapshot", "depot@b"]).ends(0);
    let map = |export: &str, context: &str| {
        let args = ["--json", &format!("--map={context}"), &uri(&rig, export)].map(str::to_owned);
        let done = Command::new("nbdinfo").args(args).output().expect("runs");
        let map: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        let stretches = map.as_array().cloned().unwrap_or_default();
        let number = |stretch: &Value, name: &str| stretch[name].as_u64().expect("a number");
        stretches
            .iter()
            .map(|it| {
                (
                    number(it, "offset"),
                    number(it, "length"),
                    number(it, "type"),
                )
            })
            .collect::<Vec<_>>()
    };
    let mib = MIB as u64;
    let expected = [
        (0, mib, 0),
        (mib, 64 << 10, 1),
        (mib + (64 << 10), 31 * mib - (64 << 10), 0),
    ];
    assert_eq!(map("main%40b", "onefold:changed:a"), expected);
    assert_eq!(map("main%40b", "onefold:changed:main@a"), expected);
    // Nothing is told of a volume, which changes meanwhile, nor of a snapshot that is not there.
    for (export, context) in [
        ("main", "onefold:changed:a"),
        ("main%40b", "onefold:changed:c"),
    ] {
        assert_eq!(map(export, context), [], "{export} {context}");
    }
    serving.stop();
}

/// Bytes behind the end of the base are no part of it, though both hold nothing there.
#[test]
fn a_backup_of_a_grown_volume_is_whole() {
    let rig = Rig::open();
    create(&rig);
    rig.run(["-q", "volume", "snapshot", "depot@a"]).ends(0);
    rig.run(["-q", "backup", "volume:depot@a"]).ends(0);
    let args = ["-q", "volume", "grow", "depot", "--size", "48M"];
    rig.run(args.into_iter().chain(["--capacity", "200M"]))
        .ends(0);
    rig.run(["-q", "volume", "snapshot", "depot@b"]).ends(0);
    rig.run(["-q", "backup", "volume:depot@b"]).ends(0);
    assert!(restored_image(&rig) == vec![0; 48 * MIB]);
}

/// A device that is attached grows, and so does the room for its chunks.
#[test]
fn an_attached_volume_grows() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    create(&rig);
    let device = rig.run(["volume", "attach", "depot"]).ends(0).out;
    let device = device.trim();
    rig.run(["-q", "volume", "create", "depot:other", "--size", "16M"])
        .ends(0);
    let second = rig.run(["volume", "attach", "depot:other"]);
    rig.run([
        "-q",
        "volume",
        "grow",
        "depot",
        "--size",
        "64M",
        "--capacity",
        "256M",
    ])
    .ends(0);
    let bytes = succeeds(Command::new("blockdev").args(["--getsize64", device]));
    rig.run(["-q", "volume", "snapshot", "depot@small"]).ends(0);
    let refused = rig.run(["volume", "grow", "depot", "--size", "16M"]);
    let other = rig.run(["volume", "detach", "depot@small"]);
    let listed = rig.run(["volume", "list"]).ends(0).out;
    rig.run(["-q", "volume", "detach", "depot"]).ends(0);
    let other = other.ends(1).err;
    assert!(other.contains("main is"), "{other}");
    let is_listed = |line: &str| line.starts_with(device) && line.ends_with("/depot:main");
    assert!(listed.lines().any(is_listed), "{listed}");
    assert_eq!(bytes.trim(), (64 * MIB).to_string());
    let why = second.ends(11).err;
    let is_told = why.contains(device)
        && why.contains("has main of it")
        && why.contains("one volume at a time");
    assert!(is_told, "{why}");
    refused.ends(2);
    let stats = rig
        .run(["--json", "volume", "stats", "depot"])
        .ends(0)
        .last();
    let total = stats["space"]["total_bytes"].as_u64().expect("a number");
    assert!(total > 230 * MIB as u64, "{total}");
    rig.run(["volume", "check", "depot"]).ends(0);
}
