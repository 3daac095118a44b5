//! A data device has one owner: whoever else names it is refused before anything of it is read or written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::rig::Rig;
use crate::untested::{has, is_root, not_tested};
use crate::volume::{Serving, succeeds};

fn file(rig: &Rig, name: &str, mib: u64) -> File {
    let file = File::create_new(rig.path(name)).expect("a file");
    file.set_len(mib << 20).expect("room");
    file
}

fn create(rig: &Rig, depot: &str, more: &[&str]) -> crate::rig::Ran {
    let args = ["-q", "volume", "create", depot, "--size", "64M"];
    rig.run(args.iter().chain(more).copied())
}

/// Names `device`, which somebody has, in every way there is; `copy` is a copy of its depot's folder.
fn is_refused_everywhere(rig: &Rig, device: &str, copy: Option<&str>) {
    let other = create(rig, "other", &["--data", device, "--overwrite"]).ends(11);
    assert!(other.err.contains(device), "{}", other.err);
    let raw = ["volume", "serve", "--raw", device, "--unix", "raw.socket"];
    let raw = rig.run(raw).ends(11);
    assert!(raw.err.contains(device), "{}", raw.err);
    if let Some(copy) = copy {
        let served = rig.run(["volume", "serve", copy, "--unix", "copy.socket"]);
        let served = served.ends(11);
        assert!(served.err.contains(device), "{}", served.err);
        rig.run(["volume", "delete", copy, "--yes"]).ends(11);
        assert!(rig.path(copy).join("config").exists());
    }
}

#[test]
fn the_data_file_of_a_served_depot_is_nobody_elses() {
    let rig = Rig::empty();
    file(&rig, "data.img", 100);
    let data = rig.path("data.img");
    let data = data.to_str().expect("UTF-8");
    create(&rig, "depot", &["--data", data]).ends(0);
    succeeds(
        Command::new("cp")
            .args(["-a"])
            .args([rig.path("depot"), rig.path("copy")]),
    );
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    is_refused_everywhere(&rig, data, Some("copy"));
    serving.stop();
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
    rig.run(["volume", "delete", "depot", "--yes"]).ends(0);
    create(&rig, "again", &["--data", data]).ends(0);
}

#[test]
fn the_data_file_in_the_folder_of_a_served_depot_is_nobody_elses() {
    let rig = Rig::empty();
    create(&rig, "depot", &[]).ends(0);
    let data = rig.path("depot/data");
    let data = data.to_str().expect("UTF-8");
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    is_refused_everywhere(&rig, data, None);
    serving.stop();
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
}

#[test]
fn a_file_that_is_served_raw_becomes_no_depots() {
    let rig = Rig::empty();
    file(&rig, "disk.img", 100);
    let serving = Serving::start(&rig, &["--raw", "disk.img", "--unix", "socket"]);
    let data = rig.path("disk.img");
    is_refused_everywhere(&rig, data.to_str().expect("UTF-8"), None);
    serving.stop();
}

struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn the_data_device_of_a_served_depot_is_nobody_elses() {
    if !has("losetup") || !is_root() || !std::path::Path::new("/dev/loop-control").exists() {
        not_tested("loop devices");
        return;
    }
    let rig = Rig::empty();
    file(&rig, "disk.img", 100);
    let mut losetup = Command::new("losetup");
    let device = succeeds(losetup.args(["--find", "--show"]).arg(rig.path("disk.img")));
    let device = Loop(device.trim().to_owned());
    create(&rig, "depot", &["--data", &device.0]).ends(0);
    succeeds(
        Command::new("cp")
            .args(["-a"])
            .args([rig.path("depot"), rig.path("copy")]),
    );
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    is_refused_everywhere(&rig, &device.0, Some("copy"));
    serving.stop();
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
}

#[test]
fn what_holds_something_at_either_end_is_not_taken_for_blank() {
    let rig = Rig::empty();
    // Superblocks of btrfs and of RAID of version 1.0, a label of zfs, and a GPT's copy.
    for (place, at) in [
        ("btrfs", (64 << 10) + 64),
        ("zfs", 768 << 10),
        ("raid", (100 << 20) - (8 << 10)),
        ("gpt", (100 << 20) - 512),
    ] {
        file(&rig, place, 100)
            .write_at(b"_BHRfS_M", at)
            .expect("room");
        let taken = create(&rig, "depot", &["--data", place]);
        assert_ne!(taken.code, Some(0), "{place} counts as blank");
        assert!(taken.err.contains("may hold something"), "{}", taken.err);
    }
    create(&rig, "depot", &["--data", "gpt", "--overwrite"]).ends(0);
}
