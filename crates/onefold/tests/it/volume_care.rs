//! `onefold volume check`, `delete` and `dump`, and what is told when a depot fills.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::rig::{Random, Rig, program};
use crate::untested::has;
use crate::volume::{Serving, qemu_io, succeeds};
use crate::wait::wait_until;

const MIB: usize = 1 << 20;

fn create(rig: &Rig, more: &[&str]) {
    let args = ["-q", "volume", "create", "depot", "--size", "64M"];
    rig.run(args.iter().chain(more).copied()).ends(0);
}

/// Copies bytes into the depot's volume over NBD.
pub fn copy_in(rig: &Rig, content: &[u8]) {
    let path = rig.path("content");
    std::fs::write(&path, content).expect("write");
    let serving = Serving::start(rig, &["depot", "--unix", "socket"]);
    succeeds(Command::new("nbdcopy").arg(&path).arg(&serving.uri));
    serving.stop();
}

#[test]
fn a_check_names_what_is_damaged_and_ends_with_13() {
    if !has("nbdcopy") {
        return;
    }
    let rig = Rig::empty();
    create(&rig, &[]);
    let content = Random(5).bytes(4 * MIB);
    copy_in(&rig, &content);
    let clean = rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
    assert!(clean.out.contains("1,024 chunks read"), "{}", clean.out);
    rig.run(["volume", "check", "depot"]).ends(0);

    let data = rig.path("depot/data");
    let mut bytes = std::fs::read(&data).expect("read");
    let wanted = &content[700 * 4096..701 * 4096];
    let at = (0..bytes.len())
        .step_by(4096)
        .find(|at| &bytes[*at..*at + 4096] == wanted)
        .expect("it was written");
    bytes[at + 7] ^= 1;
    std::fs::write(&data, &bytes).expect("write");
    rig.run(["volume", "check", "depot"]).ends(0);
    let found = rig
        .run(["volume", "check", "depot", "--read-data"])
        .ends(13);
    assert!(
        found.out.contains("volume main, chunk 700"),
        "{}",
        found.out
    );
    let found = rig
        .run(["--json", "volume", "check", "depot", "--read-data"])
        .ends(13)
        .last();
    assert_eq!(found["damaged"][0]["lbn"], 700);
    assert_eq!(found["damaged"][0]["offset"], 700 * 4096);
    assert_eq!(found["chunks_damaged"], 1);
    // The process that serves it is asked.
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    rig.run(["volume", "check", "depot", "--read-data"])
        .ends(13);
    serving.stop();
    rig.run(["volume", "check", "nothing"]).ends(10);
}

#[test]
fn a_depot_is_deleted_only_when_that_is_meant_and_nobody_uses_it() {
    let rig = Rig::empty();
    create(&rig, &[]);
    rig.run(["volume", "delete", "depot"]).ends(2);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    rig.run(["volume", "delete", "depot", "--yes"]).ends(11);
    serving.stop();
    std::fs::write(rig.path("depot/letter"), "mine").expect("write");
    let done = rig.run(["volume", "delete", "depot", "--yes"]).ends(0);
    assert!(done.out.contains("letter"), "{}", done.out);
    let left: Vec<_> = std::fs::read_dir(rig.path("depot"))
        .expect("the folder stays")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(left, ["letter"]);
    rig.run(["volume", "delete", "depot", "--yes"]).ends(10);
    std::fs::remove_file(rig.path("depot/letter")).expect("remove");
    create(&rig, &[]);
    rig.run(["volume", "delete", "depot", "--yes"]).ends(0);
    assert!(!rig.path("depot").exists());
}

#[test]
fn a_depot_that_fills_is_told_once_for_each_threshold() {
    if !has("nbdcopy") || !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    create(&rig, &["--capacity", "16M"]);
    let mut script = std::fs::File::create(rig.path("tell.sh")).expect("a file");
    writeln!(
        script,
        "echo $ONEFOLD_THRESHOLD $ONEFOLD_FULL_PERCENT >> {}",
        rig.path("told").display()
    )
    .expect("write");
    let tell = format!("sh {}", rig.path("tell.sh").display());
    let serving = Serving::start(
        &rig,
        &["depot", "--unix", "socket", "--on-threshold", &tell],
    );
    let told = || std::fs::read_to_string(rig.path("told")).unwrap_or_default();
    std::fs::write(rig.path("content"), Random(8).bytes(20 * MIB)).expect("write");
    let full = Command::new("nbdcopy")
        .arg(rig.path("content"))
        .arg(&serving.uri)
        .output()
        .expect("it starts");
    assert!(!full.status.success(), "20 MiB do not fit into 16");
    // The process looks once a second; while it fills, it may see lower thresholds first.
    let is_told = || {
        let said = told();
        said.contains("95 ") || said.contains("100 ")
    };
    wait_until("the command", is_told);
    let mut thresholds: Vec<u64> = told()
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default())
        .map(|threshold| threshold.parse().expect("a number"))
        .collect();
    // The process waits for no command, so a later one may have told before an earlier one.
    thresholds.sort_unstable();
    assert!(thresholds.is_sorted_by(|a, b| a < b), "{thresholds:?}");
    let log = std::fs::read_to_string(rig.path("depot/log")).expect("the depot's log");
    assert!(log.contains("full"), "{log}");
    let percent_of = |line: &str| match line.split_once(" % full") {
        Some((before, _)) => before.rsplit(' ').next()?.parse().ok(),
        None => line.contains("the depot is full").then_some(100),
    };
    let percents: Vec<u64> = log.lines().filter_map(percent_of).collect();
    assert!(percents.is_sorted_by(|a, b| a < b), "{log}");
    assert!(percents.len() >= thresholds.len(), "{thresholds:?}: {log}");
    let stats = rig
        .run(["--json", "volume", "stats", "depot"])
        .ends(0)
        .last();
    assert!(
        stats["space"]["full_percent"].as_u64() >= Some(95),
        "{stats}"
    );
    assert!(
        stats["latency_us"]["write"]["count"].as_u64() > Some(0),
        "{stats}"
    );
    // Space of deleted data can be written again, while the depot is served.
    let write = format!("write -P 7 0 {}", 8 * MIB);
    qemu_io(&serving.uri, &["discard 0 20M", &write, "flush"]);
    serving.stop();
}

#[test]
fn statistics_of_a_closed_depot_call_nothing_garbage() {
    if !has("nbdcopy") {
        return;
    }
    let rig = Rig::empty();
    create(&rig, &[]);
    std::fs::write(rig.path("content"), Random(3).bytes(8 * MIB)).expect("write");
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    succeeds(
        Command::new("nbdcopy")
            .arg(rig.path("content"))
            .arg(&serving.uri),
    );
    let stats = || {
        rig.run(["--json", "volume", "stats", "depot"])
            .ends(0)
            .last()
    };
    // Garbage is an upper bound until somebody looks.
    rig.run(["volume", "collect", "depot"]).ends(0);
    let open = stats();
    assert_eq!(open["message_type"], "volume_stats");
    assert_eq!(open["space"]["reclaimable_bytes"], 0);
    let percent = open["space"]["full_percent"].as_u64().expect("known");
    assert!(percent >= 10, "{open}");
    assert!(open["counters"]["zones_ready"].is_u64(), "{open}");
    serving.stop();
    let closed = stats();
    assert!(closed["space"]["reclaimable_bytes"].is_null(), "{closed}");
    assert!(closed["space"]["full_percent"].is_null(), "{closed}");
    let most = closed["space"]["full_percent_max"]
        .as_u64()
        .expect("a bound");
    assert!(
        (percent..=percent + 5).contains(&most),
        "{percent} {closed}"
    );
    let shown = rig.run(["volume", "stats", "depot"]).ends(0).out;
    assert!(shown.contains("–") && shown.contains("at most"), "{shown}");
    // Somebody looks: it is known then.
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    rig.run(["volume", "collect", "depot"]).ends(0);
    let seen = stats();
    assert!(seen["space"]["full_percent"].as_u64() >= Some(10), "{seen}");
    assert!(
        seen["space"]["reclaimable_bytes"].as_u64() < Some(MIB as u64),
        "{seen}"
    );
    serving.stop();
}

#[test]
fn a_depot_is_made_only_where_nothing_of_others_is_and_leaves_nothing_when_it_fails() {
    let rig = Rig::empty();
    std::fs::create_dir(rig.path("full")).expect("a folder");
    std::fs::write(rig.path("full/data"), "mine").expect("write");
    std::fs::write(rig.path("filled"), [7; 4096]).expect("write");
    let create = |args: &[&str]| {
        let all = ["volume", "create"].iter().chain(args).copied();
        rig.run(all)
    };
    let said = create(&["full", "--size", "64M"]).ends(1);
    assert!(said.err.contains("full: it holds"), "{}", said.err);
    std::fs::rename(rig.path("full/data"), rig.path("full/letter")).expect("rename");
    let said = create(&["full", "--size", "64M"]).ends(1);
    assert!(said.err.contains("letter"), "{}", said.err);
    let names: Vec<_> = std::fs::read_dir(rig.path("full"))
        .expect("a folder")
        .collect();
    assert_eq!(names.len(), 1);
    let said = create(&["new", "--size", "64M", "--data", "filled"]);
    assert!(
        said.err.contains("filled") && !said.err.contains("new:"),
        "{}",
        said.err
    );
    assert!(!rig.path("new").exists());
    let said = create(&["new", "--size", "64M", "--ram", "1M"]).ends(2);
    assert!(said.err.contains("1 MiB of RAM"), "{}", said.err);
    assert!(!rig.path("new").exists());
    let said = create(&["new", "--size", "40"]).ends(2);
    assert!(said.err.contains("40G"), "{}", said.err);
    std::fs::create_dir(rig.path("empty")).expect("a folder");
    create(&["empty", "--size", "64M", "--ram", "1M"]).ends(2);
    assert_eq!(
        std::fs::read_dir(rig.path("empty"))
            .expect("it stays")
            .count(),
        0
    );
    create(&["empty", "--size", "64M"]).ends(0);
}

#[test]
fn options_of_raw_files_are_refused_with_a_depot() {
    let rig = Rig::empty();
    create(&rig, &[]);
    let serve = ["volume", "serve", "depot", "--unix", "socket"];
    for more in [&["--name", "foo"][..], &["--read-only"]] {
        rig.run(serve.iter().chain(more).copied()).ends(2);
    }
    rig.run(["volume", "attach", "depot", "--read-only"])
        .ends(2);
    std::fs::write(rig.path("raw.img"), "").expect("write");
    rig.run(["volume", "stats", "raw.img"]).ends(10);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    let said = rig.run(["volume", "detach", "depot"]).ends(11);
    assert!(said.err.contains("kill -TERM"), "{}", said.err);
    serving.stop();
}

#[test]
fn a_watch_that_is_ended_says_nothing_of_loss() {
    let rig = Rig::empty();
    create(&rig, &[]);
    let mut watch = program()
        .current_dir(rig.dir.path())
        .args(["volume", "stats", "depot", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(watch.stdout.as_mut().expect("piped"))
        .read_line(&mut line)
        .expect("statistics");
    let pid = rustix::process::Pid::from_child(&watch);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    let mut said = String::new();
    let stderr = watch.stderr.as_mut().expect("piped");
    std::io::Read::read_to_string(stderr, &mut said).expect("text");
    assert_eq!(
        (watch.wait().expect("it ends").code(), &*said),
        (Some(0), "")
    );
}

/// Ends a server as the kernel does when memory runs out.
fn killed_while_served(rig: &Rig, backend: &str) {
    create(rig, &["--backend", backend]);
    let serving = Serving::start(rig, &["depot", "--unix", "socket"]);
    qemu_io(&serving.uri, &["write -P 1 0 1M", "flush"]);
    serving.kill();
}

#[test]
fn a_backend_that_lost_what_was_written_says_so() {
    if !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    killed_while_served(&rig, "inram");
    let mut server = program()
        .current_dir(rig.dir.path())
        .args(["volume", "serve", "depot", "--unix", "socket"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    BufReader::new(server.stderr.as_mut().expect("piped"))
        .read_line(&mut said)
        .expect("it says something");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    server.wait().expect("it ends");
    assert!(said.contains("saved last"), "{said}");
    let rig = Rig::empty();
    killed_while_served(&rig, "dtb");
    let said = rig.run(["volume", "stats", "depot"]).ends(13);
    assert!(
        said.err.contains("all data of the depot is lost"),
        "{}",
        said.err
    );
    assert!(said.err.contains("volume delete"), "{}", said.err);
}

#[test]
fn a_server_that_may_open_few_files_says_how_many_clients_it_serves() {
    if !has("prlimit") {
        return;
    }
    let rig = Rig::empty();
    let disk = std::fs::File::create(rig.path("disk.img"));
    disk.and_then(|file| file.set_len(1 << 20)).expect("a file");
    let mut server = Command::new("prlimit")
        .arg("--nofile=256:256")
        .arg(program().get_program())
        .args(["volume", "serve", "--raw", "disk.img", "--unix", "socket"])
        .current_dir(rig.dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    BufReader::new(server.stderr.as_mut().expect("piped"))
        .read_line(&mut said)
        .expect("it says something");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    server.wait().expect("it ends");
    assert!(said.contains("some 56 clients are served"), "{said}");
}

#[test]
fn a_way_to_the_kernel_that_is_not_there_is_told_in_words() {
    let rig = Rig::empty();
    create(&rig, &[]);
    for (way, word) in [("nbd", "serve"), ("ublk", "volume serve --unix")] {
        let attach = ["volume", "attach", "depot", "--via", way];
        let refused = rig.run(attach).ends(16);
        assert!(refused.err.contains(word), "{}", refused.err);
        let has_nbd = std::path::Path::new("/sys/block/nbd0").exists();
        let is_told = refused.err.contains("this kernel has no nbd");
        assert_eq!(is_told, way == "nbd" && !has_nbd, "{}", refused.err);
    }
    rig.run(["volume", "check", "depot"]).ends(0);
}

#[test]
fn a_missing_file_is_damage_and_a_growth_has_a_size() {
    let rig = Rig::empty();
    rig.run(["-q", "volume", "create", "depot", "--size", "64M"])
        .ends(0);
    rig.run(["volume", "grow", "depot"]).ends(2);
    let saved = rig.run(["--json", "volume", "save", "depot"]).ends(0);
    assert_eq!(saved.last()["message_type"], "saved");
    std::fs::remove_file(rig.path("depot/manifest")).expect("it is there");
    let refused = rig.run(["volume", "stats", "depot"]).ends(13).err;
    assert!(
        refused.contains("manifest") && refused.contains("missing"),
        "{refused}"
    );
}
