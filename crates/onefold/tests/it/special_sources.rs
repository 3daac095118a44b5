//! Devices, pipes and sockets that somebody names as what to back up: whoever does wants what is in them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::rig::{Ran, Random, Rig, id_of};
use crate::untested::{has, is_root, not_tested};

fn pipe(rig: &Rig, name: &str) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, rig.path(name), mode).expect("a pipe");
}

/// Runs with somebody who writes `bytes` into the pipe.
fn fed(rig: &Rig, pipe: &str, bytes: &[u8], args: &[&str]) -> Ran {
    let child = rig
        .command(args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut file = File::options()
        .write(true)
        .open(rig.path(pipe))
        .expect("open");
    file.write_all(bytes).expect("write");
    drop(file);
    child.wait_with_output().expect("ends").into()
}

#[test]
fn a_pipe_or_device_that_is_named_is_told_unless_it_is_read() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    pipe(&rig, "s/pipe");
    let _socket = UnixListener::bind(rig.path("s/socket")).expect("a socket");
    symlink("pipe", rig.path("s/link")).expect("link");
    for (name, what) in [
        ("s/pipe", "it is a pipe"),
        ("s/socket", "it is a socket"),
        ("s/link", "it is a link to a pipe"),
        ("/dev/null", "it is a character device"),
    ] {
        let ran = rig.run(["backup", "s/f", name]).ends(3);
        assert!(ran.err.contains(what), "{}", ran.err);
        let is_told = ran.err.contains("--read-special");
        assert_eq!(is_told, name != "s/socket", "{}", ran.err);
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    // Pipes and sockets below a folder are entries, and nobody asked for more.
    let id = rig.backup("s");
    let listed = rig.run(["ls", "-l", &id]).ends(0).out;
    assert!(listed.contains("prw") && listed.contains("srw"), "{listed}");
    // A socket cannot be read, and the others are.
    rig.run(["backup", "s/socket", "--read-special"]).ends(3);
    let ran = rig.run(["estimate", "s/pipe"]).ends(3);
    assert!(ran.err.contains("it is a pipe"), "{}", ran.err);
}

#[test]
fn a_pipe_is_read_as_a_file_among_others_if_that_is_asked_for() {
    let rig = Rig::open();
    rig.write("s/f", b"beside it");
    pipe(&rig, "pipe");
    symlink("pipe", rig.path("link")).expect("link");
    let bytes = Random(5).bytes(3_000_000);
    for name in ["pipe", "link"] {
        let args = ["backup", "s", name, "--read-special", "--json"];
        let ran = fed(&rig, "pipe", &bytes, &args).ends(0);
        assert_eq!(ran.err, "");
        let id = id_of(&ran);
        let copy = rig.path(&format!("back-{name}"));
        rig.run(["restore", &id, "-t", copy.to_str().expect("text")])
            .ends(0);
        let below = |name: &str| copy.join(rig.path(name).strip_prefix("/").expect("absolute"));
        assert!(fs::read(below(name)).expect("a file") == bytes, "{name}");
        assert_eq!(fs::read(below("s/f")).expect("a file"), b"beside it");
    }
    // The pipe's present content is read, whatever the parent has.
    let args = ["backup", "s", "pipe", "--read-special", "--json"];
    let ran = fed(&rig, "pipe", b"another", &args).ends(0);
    assert_eq!(ran.last()["files_changed"], 1);
    let path = rig.path("pipe");
    let dump = rig.run(["dump", &id_of(&ran), path.to_str().expect("text")]);
    assert_eq!(dump.ends(0).out, "another");
}

#[test]
fn a_block_device_is_read_whole_if_that_is_asked_for() {
    if !is_root() || !has("losetup") {
        return;
    }
    let rig = Rig::open();
    let bytes = Random(6).bytes(5 << 20);
    rig.write("disk", &bytes);
    let made = Command::new("losetup")
        .args(["-r", "-f", "--show"])
        .arg(rig.path("disk"))
        .output()
        .expect("it is there");
    if !made.status.success() {
        return not_tested("no loop device can be had here");
    }
    let device = String::from_utf8(made.stdout).expect("a path");
    let device = device.trim();
    let told = rig.run(["backup", device]);
    let read = rig.run(["backup", device, "--read-special", "--json"]);
    let detached = Command::new("losetup").args(["-d", device]).status();
    assert!(detached.expect("it is there").success());
    let told = told.ends(3);
    assert!(told.err.contains("it is a block device"), "{}", told.err);
    let read = read.ends(0);
    assert_eq!(read.last()["total_bytes_processed"], bytes.len());
    let dump = rig.command(["dump", &id_of(&read), device]).output();
    assert!(dump.expect("runs").stdout == bytes);
}

#[test]
fn a_dash_is_not_standard_input() {
    let rig = Rig::open();
    for verb in ["backup", "estimate"] {
        let ran = rig.run([verb, "-"]).ends(2);
        assert!(ran.err.contains("--stdin"), "{}", ran.err);
    }
    assert_eq!(rig.snapshots().len(), 0);
    rig.write("-", b"a file of that name");
    rig.run(["backup", "-"]).ends(0);
}
