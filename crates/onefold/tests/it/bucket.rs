//! The program with repositories in buckets, over a real server where there is one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::rig::{Files, PASSWORD, Ran, change, files, id_of, program, seeded};
use crate::scale::scale;
use crate::versitygw::{BUCKET, SECRET, Server, USER};

/// Rounds in which processes are killed, for each step of the scale: a scale of 25 makes 500.
const ROUNDS: u64 = 20;
/// How long others have shown no life when they count as dead, in milliseconds: everybody may be taken for dead.
const STALE_MS: &str = "400";

/// A machine: a folder with a cache and a source of its own.
pub struct Machine {
    pub folder: tempfile::TempDir,
    pub place: String,
}

impl Machine {
    pub fn new(server: &Server) -> Self {
        Self::at(&server.endpoint)
    }

    /// A machine that reaches its repository at this endpoint.
    pub fn at(endpoint: &str) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            place: format!("s3:{endpoint}/{BUCKET}/home"),
        }
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("ONEFOLD_REPOSITORY", &self.place)
            .env("ONEFOLD_PASSWORD", PASSWORD)
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("AWS_ACCESS_KEY_ID", USER)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env_remove("AWS_PROFILE")
            .env_remove("AWS_ENDPOINT_URL");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output();
        output.expect("the program starts").into()
    }

    fn restored(&self, snapshot: &str, source: &Path) -> Files {
        let target = tempfile::tempdir_in(self.folder.path()).expect("a target");
        let spec = format!("{snapshot}:{}", source.display());
        let into = target.path().to_str().expect("a name").to_owned();
        self.run(&["restore", &spec, "--target", &into]).ends(0);
        files(target.path())
    }
}

#[test]
fn every_step_of_a_repositorys_life_works_in_a_bucket() {
    let Some(server) = Server::start() else {
        return;
    };
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let mut random = seeded("bucket");
    one.run(&["snapshots"]).ends(10);
    one.run(&["init"]).ends(0);
    one.run(&["init"]).ends(1);
    let mut stored = Vec::new();
    for machine in [&one, &other, &one] {
        change(&machine.source(), &mut random);
        let ran = machine.run(&["backup", "source", "--json"]).ends(0);
        stored.push((id_of(&ran), machine.source(), files(&machine.source())));
    }
    // Each machine reads the snapshots that the other stored.
    for (id, source, was) in &stored {
        assert!(other.restored(id, source) == *was, "{id}");
    }
    let pruned = other.run(&["forget", &stored[0].0, "--prune"]).ends(0);
    assert!(pruned.out.contains("after their grace"), "{}", pruned.out);
    let pruned = other
        .run(&["prune", "--grace", "0s", "--json"])
        .ends(0)
        .last();
    assert!(pruned["deleted_containers"].as_u64() > Some(0), "{pruned}");
    other.run(&["tag", "--add", "kept", &stored[1].0]).ends(0);
    let checked = one.run(&["check", "--read-data"]).ends(0);
    assert!(checked.out.contains("no damage"), "{}", checked.out);
    // Without this machine's own folder all is there.
    std::fs::remove_dir_all(one.folder.path().join("cache")).expect("it has one");
    let (id, source, was) = &stored[2];
    assert!(one.restored(id, source) == *was);
    let again = one.run(&["backup", "source", "--json"]).ends(0).last();
    assert_eq!(again["files_new"], 0, "{again}");
    let wrong = Machine {
        place: format!("s3:{}/nosuchbucket/home", server.endpoint),
        ..Machine::new(&server)
    };
    wrong.run(&["snapshots"]).ends(15);
    wrong.run(&["doctor"]).ends(15);
    one.run(&["doctor"]).ends(0);
}

/// Changes the environment of a command.
type Change<'a> = &'a dyn Fn(&mut Command);

#[test]
fn what_a_store_refuses_is_told_with_what_to_do() {
    let Some(server) = Server::start() else {
        return;
    };
    let machine = Machine::new(&server);
    machine.run(&["init"]).ends(0);
    let home = tempfile::tempdir().expect("a folder");
    let told = |args: &[&str], change: Change<'_>| {
        let mut command = machine.command(args);
        command.env("HOME", home.path());
        change(&mut command);
        let ran: Ran = command.output().expect("it starts").into();
        assert!(!ran.err.contains("disk"), "{}", ran.err);
        ran
    };
    let wrong = |command: &mut Command| {
        command.env("AWS_SECRET_ACCESS_KEY", "wrong");
    };
    let unknown = |command: &mut Command| {
        command.env("AWS_ACCESS_KEY_ID", "nobody");
    };
    let without = |command: &mut Command| {
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            // Nobody answers there: this machine has no role.
            .env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9");
    };
    let elsewhere = |command: &mut Command| {
        let place = format!("s3:{}/nosuchbucket/home", server.endpoint);
        command.env("ONEFOLD_REPOSITORY", place);
    };
    let cases: [(Change<'_>, &str); 4] = [
        (&wrong, "refuses these credentials"),
        (&unknown, "refuses these credentials"),
        (&without, "no credentials were found"),
        (&elsewhere, "there is no such bucket"),
    ];
    for (change, part) in cases {
        for args in [&["snapshots"][..], &["doctor"], &["backup", "."]] {
            let ran = told(args, change);
            assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
            assert!(ran.err.contains("AWS_"), "{args:?}: {}", ran.err);
            // Only a write is known to be refused: what cannot be read may be there or not.
            let is_write = args == ["doctor"] && part.contains("refuses");
            let code = if is_write { 1 } else { 15 };
            assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        }
    }
}

/// Tools that tidy up delete empty objects.
#[test]
fn a_folder_with_objects_in_it_is_none_that_is_missing() {
    let Some(server) = Server::start() else {
        return;
    };
    let machine = Machine::new(&server);
    change(&machine.source(), &mut seeded("made"));
    machine.run(&["init"]).ends(0);
    machine.run(&["backup", "source"]).ends(0);
    let made = server.buckets.join(BUCKET).join("home/snapshots/.made");
    std::fs::remove_file(&made).expect("it is there");
    let checked = machine.run(&["check"]).ends(0);
    assert!(checked.out.contains("no damage"), "{}", checked.out);
    assert!(made.exists(), "it is put again");
    // Where nothing is left, the folder was emptied.
    std::fs::remove_dir_all(made.parent().expect("a folder")).expect("ours");
    let checked = machine.run(&["check"]).ends(13);
    assert!(checked.err.contains("missing"), "{}", checked.err);
}

/// Snapshots that were acknowledged: the source that each is of, and what was in it.
type Acknowledged = BTreeMap<String, (PathBuf, Files)>;

/// Whatever is killed, and whoever is taken for dead: what was acknowledged restores, and nothing is damaged.
#[test]
fn two_machines_and_a_prune_that_are_killed_lose_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let machines = [Machine::new(&server), Machine::new(&server)];
    let mut random = seeded("killed");
    machines[0].run(&["init"]).ends(0);
    let mut acknowledged = Acknowledged::new();
    let rounds = ROUNDS * scale();
    for round in 0..rounds {
        for machine in &machines {
            change(&machine.source(), &mut random);
        }
        let start = |machine: &Machine, args: &[&str]| {
            let mut command = machine.command(args);
            command.env("ONEFOLD_TEST_STALE_MS", STALE_MS);
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the program starts")
        };
        let backups = [0, 1].map(|at| start(&machines[at], &["backup", "source", "--json"]));
        // Some of what was acknowledged is forgotten, and counts no more.
        let forgotten: Vec<_> = acknowledged.keys().take(1).cloned().collect();
        let hasty = ["--grace", "0s", "--retry-lock", "10s"];
        let mut args = [&["forget", "--prune"][..], &hasty].concat();
        if acknowledged.len() > 3 {
            acknowledged.remove(&forgotten[0]);
            args.push(&forgotten[0]);
        } else {
            args = [&["prune"][..], &hasty].concat()
        }
        let prune = start(&machines[(round % 2) as usize], &args);
        let mut running = [Some(prune), None, None];
        let [first, second] = backups;
        (running[1], running[2]) = (Some(first), Some(second));
        // At a random moment one of them is killed.
        std::thread::sleep(Duration::from_millis(random.below(600)));
        if let Some(child) = &mut running[random.below(3) as usize] {
            let _ = child.kill();
        }
        for (at, child) in running.into_iter().flatten().enumerate() {
            let ran = end(child);
            // Killed, done, taken for dead, or another was at work.
            let is_fine = matches!(ran.code, None | Some(0 | 1 | 11));
            assert!(is_fine, "round {round}: {:?}\n{}", ran.code, ran.err);
            if at > 0 && ran.code == Some(0) {
                let source = machines[at - 1].source();
                let was = files(&source);
                acknowledged.insert(id_of(&ran), (source, was));
            }
        }
    }
    assert!(!acknowledged.is_empty());
    for (id, (source, was)) in &acknowledged {
        assert!(machines[0].restored(id, source) == *was, "{id}");
    }
    let checked = machines[1].run(&["check", "--read-data"]).ends(0);
    assert!(checked.out.contains("no damage"), "{}", checked.out);
}

fn end(child: Child) -> Ran {
    child.wait_with_output().expect("it ends").into()
}
