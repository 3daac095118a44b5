//! Processes that sleep in the middle of their work, as on a laptop whose lid is closed, while others go on: SIGSTOP
//! and SIGCONT. Nothing that was acknowledged is lost, and whoever meets a sleeper is told of it.

use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Ran, Random, Rig, id_of};
use crate::wait::wait_until;

fn start(rig: &Rig, args: &[&str]) -> Child {
    let mut command = rig.command(args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn ended(child: Child) -> Ran {
    Ran::from(child.wait_with_output().expect("it ends"))
}

/// Returns once the process sleeps.
fn stop(child: &Child) {
    send(child, Signal::STOP);
    wait_until("the stop", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        status.expect("it lives").contains("State:\tT")
    });
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().try_into().expect("a process number")).expect("not zero");
    kill_process(pid, signal).expect("signalled");
}

/// Whether there is something in a folder of the repository.
fn is_in(rig: &Rig, folder: &str) -> bool {
    let entries = fs::read_dir(rig.repo().join(folder));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

/// A repository in which only garbage holds `bytes`, and a backup of them that has begun and waits for their end.
fn backup_of_garbage(rig: &Rig, bytes: &[u8]) -> (Child, ChildStdin) {
    rig.write("old/file", bytes);
    let id = rig.backup("old");
    rig.write("kept/file", &Random(9).bytes(100_000));
    rig.backup("kept");
    rig.run(["forget", &id]).ends(0);
    let mut backup = start(rig, &["backup", "--stdin", "--json"]);
    let mut pipe = backup.stdin.take().expect("a pipe");
    pipe.write_all(bytes).expect("it reads");
    wait_until("a session", || is_in(rig, "sessions"));
    (backup, pipe)
}

fn assert_holds(rig: &Rig, backup: Ran, bytes: &[u8]) {
    let id = id_of(&backup.ends(0));
    for _ in 0..2 {
        rig.run(["check", "--read-data"]).ends(0);
        let dump = rig.command(["dump", &id, "/stdin"]).output();
        assert!(dump.expect("it starts").stdout == bytes, "data is lost");
        rig.run(["prune"]).ends(0);
    }
}

/// The sweep has put its list and waits for the backup, which does not know the list. Then it sleeps, the backup
/// commits what refers to the condemned, and the sweep wakes up.
#[test]
fn a_sweep_that_sleeps_before_it_deletes_while_a_backup_commits_deletes_nothing_of_it() {
    let rig = Rig::open();
    let bytes = Random(5).bytes(2 << 20);
    let (backup, pipe) = backup_of_garbage(&rig, &bytes);
    let prune = start(&rig, &["prune", "--wait", "600"]);
    wait_until("a list of the condemned", || is_in(&rig, "condemned"));
    stop(&prune);
    // The prune has its lock while it sleeps, and the next one is refused.
    let other = rig.run(["prune"]).ends(11);
    let words = "another prune or repair is running";
    assert!(other.err.contains(words), "{}", other.err);
    drop(pipe);
    let backup = ended(backup);
    send(&prune, Signal::CONT);
    ended(prune).ends(0);
    assert_holds(&rig, backup, &bytes);
}

/// The backup sleeps, so that a sweep that waits for no one leaves its garbage to the next.
#[test]
fn a_backup_that_sleeps_while_a_sweep_passes_commits_when_it_wakes_up() {
    let rig = Rig::open();
    let bytes = Random(6).bytes(2 << 20);
    let (backup, pipe) = backup_of_garbage(&rig, &bytes);
    stop(&backup);
    let prune = rig.run(["prune", "--wait", "0"]).ends(0);
    let left = "2 containers to the next prune";
    assert!(prune.out.contains(left), "{}", prune.out);
    send(&backup, Signal::CONT);
    drop(pipe);
    assert_holds(&rig, ended(backup), &bytes);
}
