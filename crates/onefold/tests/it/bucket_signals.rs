//! Commands that a signal ends, and commands that are done, leave nothing in a bucket that others would wait for.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::bucket::Machine;
use crate::mounted::{Mounted, can_mount};
use crate::rig::{PASSWORD, Ran, seeded};
use crate::stalling::Proxy;
use crate::versitygw::{BUCKET, Server};
use crate::wait::wait_until;

/// Times that a case is tried. A program that a signal ends gives up requests which a slow store does not answer within
/// some seconds, and leaves its session then.
const TRIES: usize = 3;

/// Names of the objects in a folder of the repository in the bucket.
fn objects(server: &Server, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder_of(server, folder));
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn folder_of(server: &Server, folder: &str) -> PathBuf {
    server.buckets.join(BUCKET).join("home").join(folder)
}

/// Sessions that are in the bucket.
fn sessions(server: &Server) -> Vec<String> {
    objects(server, "sessions")
}

/// Removes sessions and locks from the bucket.
fn remove_leftovers(server: &Server) {
    for folder in ["sessions", "locks"] {
        for name in objects(server, folder) {
            let object = folder_of(server, folder).join(name);
            std::fs::remove_file(object).expect("it is ours");
        }
    }
}

/// Runs a case, again where the store was too slow for it; fails where each run leaves something in the bucket.
#[track_caller]
fn leaves_nothing(server: &Server, what: &str, mut case: impl FnMut() -> bool) {
    for _ in 0..TRIES {
        if case() {
            return;
        }
        remove_leftovers(server);
    }
    panic!("{what}: something is left in the bucket, {TRIES} times");
}

fn signal(child: &Child, signal: Signal) {
    let process = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(process, signal).expect("it lives");
}

fn ends(child: Child) -> Ran {
    child.wait_with_output().expect("it ends").into()
}

/// A machine with a repository, and a file of some megabytes that do not compress.
fn machine(server: &Server) -> Machine {
    let machine = Machine::new(server);
    std::fs::create_dir_all(machine.source()).expect("a folder");
    let bytes = seeded("signals").bytes(4 << 20);
    std::fs::write(machine.source().join("file"), bytes).expect("a file");
    machine.run(&["init"]).ends(0);
    machine
}

#[test]
fn a_signal_takes_sessions_and_locks_out_of_the_bucket() {
    let Some(server) = Server::start() else {
        return;
    };
    let machine = machine(&server);
    machine.run(&["backup", "source"]).ends(0);
    std::fs::write(machine.source().join("new"), seeded("new").bytes(4 << 20)).expect("a file");
    let file = machine.source().join("file");
    let slow_backup = ["backup", "source", "--limit-upload", "64K"];
    // Its output is a pipe that nobody reads: it can only end at once.
    let dump = ["dump", "latest", file.to_str().expect("UTF-8")];
    for (args, with) in [
        (&slow_backup[..], Signal::INT),
        (&slow_backup[..], Signal::TERM),
        (&dump[..], Signal::INT),
    ] {
        leaves_nothing(&server, &args.join(" "), || {
            let mut command = machine.command(args);
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().expect("it starts");
            wait_until("its session", || !sessions(&server).is_empty());
            signal(&child, with);
            ends(child).ends(130);
            sessions(&server).is_empty()
        });
    }
    leaves_nothing(&server, "with-lock", || {
        let mut locked = machine
            .command(&["with-lock", "sh", "-c", "echo begun; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut begun = String::new();
        let stdout = locked.stdout.as_mut().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut begun)
            .expect("a line");
        machine.run(&["prune"]).ends(11);
        signal(&locked, Signal::TERM);
        ends(locked).ends(128 + 15);
        let pruned = machine.run(&["prune"]);
        if pruned.code == Some(11) {
            return false;
        }
        pruned.ends(0);
        true
    });
}

#[test]
fn a_copy_leaves_no_session_in_the_bucket_that_it_reads() {
    let Some(server) = Server::start() else {
        return;
    };
    let machine = machine(&server);
    machine.run(&["backup", "source"]).ends(0);
    let copy = |args: &[&str]| {
        let mut command = machine.command(args);
        command
            .env("ONEFOLD_REPOSITORY", machine.folder.path().join("copy"))
            .env("ONEFOLD_FROM_REPOSITORY", &machine.place)
            .env("ONEFOLD_FROM_PASSWORD", PASSWORD);
        Ran::from(command.output().expect("it starts"))
    };
    copy(&["init"]).ends(0);
    // The threads that read ahead may end soon enough by chance.
    for _ in 0..3 {
        copy(&["copy"]).ends(0);
        assert_eq!(sessions(&server), [""; 0]);
    }
}

/// A program that reads a file cannot be interrupted while it waits, so the mount must not wait for ever.
#[test]
fn a_store_that_stands_still_is_an_error_of_who_reads_the_mount() {
    if !can_mount() {
        return;
    }
    let Some(server) = Server::start() else {
        return;
    };
    let direct = machine(&server);
    direct.run(&["backup", "source"]).ends(0);
    let proxy = Proxy::before(&server.endpoint);
    let slow = Machine {
        place: format!("s3:{}/{BUCKET}/home", proxy.endpoint),
        ..Machine::new(&server)
    };
    let folder = slow.folder.path().join("mnt");
    std::fs::create_dir(&folder).expect("a folder");
    let mount = [
        "mount",
        "mnt",
        "-f",
        "--json",
        "--stuck-request-timeout",
        "5s",
    ];
    let mounted = Mounted::by(slow.command(&mount), folder);
    let source = direct.source();
    let source = source.strip_prefix("/").expect("absolute");
    let file = mounted.folder.join("latest").join(source).join("file");
    assert!(file.exists());
    proxy.stall();
    let error = std::fs::read(&file).expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    proxy.go_on();
    let was = std::fs::read(direct.source().join("file")).expect("a file");
    wait_until("its answer", || {
        std::fs::read(&file).is_ok_and(|read| read == was)
    });
    mounted.stop(Signal::TERM);
    wait_until("the hold's end", || sessions(&server).is_empty());
}
