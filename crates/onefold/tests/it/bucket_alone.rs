//! Repositories in buckets that one machine uses alone (`init --single-writer`): all of its commands have the same
//! locks, and whoever does not have them is refused.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::bucket::Machine;
use crate::rig::{Ran, change, seeded};
use crate::untested::{is_root, not_tested};
use crate::versitygw::{BUCKET, Server};

/// A machine since one of its starts, as its commands see it.
struct Seen {
    machine: Machine,
    /// Its identity and that of its start.
    is: &'static str,
    locks: PathBuf,
}

impl Seen {
    fn new(server: &Server, is: &'static str) -> Self {
        let machine = Machine::new(server);
        let locks = machine.folder.path().join("locks");
        std::fs::create_dir(&locks).expect("a folder");
        change(&machine.source(), &mut seeded("alone"));
        Self { machine, is, locks }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.machine.command(args);
        command
            .env("ONEFOLD_TEST_MACHINE", self.is)
            .env("ONEFOLD_TEST_LOCK_FOLDER", &self.locks);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().expect("it starts").into()
    }

    /// The folder with the locks of the repository.
    fn folder(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(&self.locks).expect("a folder");
        entries.next().expect("one").expect("it reads").path()
    }
}

fn is_in_the_bucket(server: &Server, name: &str) -> bool {
    server.buckets.join(BUCKET).join("home").join(name).exists()
}

#[test]
fn all_commands_of_the_one_machine_have_the_same_locks() {
    let Some(server) = Server::start() else {
        return;
    };
    let one = Seen::new(&server, "m1 b1");
    one.run(&["init", "--single-writer"]).ends(0);
    one.run(&["backup", "source"]).ends(0);
    let mut held = one
        .command(&["with-lock", "sh", "-c", "echo begun; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut begun = String::new();
    let stdout = held.stdout.as_mut().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut begun)
        .expect("a line");
    // Another user's cache folder, another index folder: the locks are the same.
    let elsewhere = |args: &[&str]| -> Ran {
        let cache = one.machine.folder.path().join("other cache");
        let mut command = one.command(args);
        command.env("XDG_CACHE_HOME", cache);
        command.output().expect("it starts").into()
    };
    elsewhere(&["prune"]).ends(11);
    elsewhere(&["prune", "--index-dir", "other index"]).ends(11);
    elsewhere(&["backup", "source"]).ends(0);
    drop(held.stdin.take());
    held.wait().expect("it ends");
    elsewhere(&["prune"]).ends(0);
    elsewhere(&["check", "--read-data"]).ends(0);
    // Nothing of that depends on the store.
    for folder in ["sessions", "locks"] {
        assert!(!is_in_the_bucket(&server, folder), "{folder}");
    }
}

#[test]
fn whoever_has_other_locks_is_refused_until_it_takes_over() {
    let Some(server) = Server::start() else {
        return;
    };
    let one = Seen::new(&server, "m1 b1");
    one.run(&["init", "--single-writer"]).ends(0);
    one.run(&["backup", "source"]).ends(0);
    let (other, container) = (Seen::new(&server, "m2 b2"), Seen::new(&server, "m1 b1"));
    for (who, told) in [(&other, "the machine "), (&container, "another container")] {
        for args in [
            &["snapshots"][..],
            &["backup", "source"],
            &["prune"],
            &["with-lock", "true"],
            &["sync", "--from", &one.machine.place, "--to", "replica"],
        ] {
            let refused = who.run(args).ends(11);
            assert!(refused.err.contains(told), "{args:?}: {}", refused.err);
            assert!(refused.err.contains("--take-over"), "{}", refused.err);
        }
        assert!(!Path::new(&who.machine.folder.path().join("replica")).exists());
    }
    // After a restart the folder is gone, and with it all who were at work.
    let restarted = Seen::new(&server, "m1 b3");
    restarted.run(&["snapshots"]).ends(0);
    Seen::new(&server, "m1 b3").run(&["snapshots"]).ends(11);
    other.run(&["backup", "source", "--take-over"]).ends(0);
    other.run(&["backup", "source"]).ends(0);
    restarted.run(&["snapshots"]).ends(11);
}

#[test]
fn locks_of_another_user_are_no_ones_but_theirs() {
    let Some(server) = Server::start() else {
        return;
    };
    let one = Seen::new(&server, "m1 b1");
    one.run(&["init", "--single-writer"]).ends(0);
    let folder = one.folder();
    let mode = |mode| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode));
    mode(0o777).expect("ours");
    let refused = one.run(&["snapshots"]).ends(2);
    assert!(refused.err.contains("others may write"), "{}", refused.err);
    mode(0o700).expect("ours");
    if !is_root() {
        return not_tested("a folder of another user's, as who runs this is not root");
    }
    std::os::unix::fs::chown(&folder, Some(1234), None).expect("root may");
    let refused = one.run(&["snapshots"]).ends(11);
    assert!(refused.err.contains("the user 1234"), "{}", refused.err);
    let plain = one.machine.folder.path().join("plain");
    let mut command = one.command(&["init", "--single-writer"]);
    command.env("ONEFOLD_REPOSITORY", plain);
    let refused = Ran::from(command.output().expect("it starts")).ends(2);
    assert!(refused.err.contains("for buckets"), "{}", refused.err);
}
