//! Copies that a machine keeps of a repository in a bucket: the requests that they save, and that losing them costs
//! time only.
//! Over a server that counts requests.

use std::path::{Path, PathBuf};

use crate::bucket::Machine;
use crate::fake::Fake;
use crate::rig::{change, files, id_of, seeded};

/// Two machines that share a repository in which the first has stored three snapshots.
struct Shared {
    fake: Fake,
    first: Machine,
    second: Machine,
    latest: String,
}

impl Shared {
    fn new(test: &str) -> Self {
        let fake = Fake::start();
        fake.tell_the_time();
        let [first, second] = [0, 1].map(|_| Machine::at(&fake.endpoint()));
        first.run(&["init"]).ends(0);
        let mut random = seeded(test);
        let mut latest = String::new();
        for _ in 0..3 {
            change(&first.source(), &mut random);
            latest = id_of(&first.run(&["backup", "source", "--json"]).ends(0));
        }
        Self {
            fake,
            first,
            second,
            latest,
        }
    }

    /// Requests of a command for snapshots, catalogs, and what is in containers.
    fn reads(&self, machine: &Machine, args: &[&str]) -> usize {
        let before = self.fake.requests().len();
        machine.run(args).ends(0);
        let requests = self.fake.requests().split_off(before);
        let is_read = |request: &&String| {
            let folders = ["containers/", "snapshots/", "catalog/"];
            let key = request.strip_prefix("GET home/").unwrap_or_default();
            folders.iter().any(|folder| key.starts_with(folder))
        };
        requests.iter().filter(is_read).count()
    }

    fn restores(&self, machine: &Machine) {
        let target = tempfile::tempdir_in(machine.folder.path()).expect("a target");
        let into = target.path().to_str().expect("a name");
        let spec = format!("{}:{}", self.latest, self.first.source().display());
        machine.run(&["restore", &spec, "--target", into]).ends(0);
        assert!(files(target.path()) == files(&self.first.source()));
    }
}

/// The copies that a machine keeps.
fn copies(machine: &Machine) -> Vec<PathBuf> {
    let kept = machine.folder.path().join("cache/onefold");
    let own = std::fs::read_dir(kept).expect("it has one");
    let own = own.flatten().map(|entry| entry.path().join("cache"));
    own.flat_map(|folder| paths(&folder)).collect()
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

const LOOKS: [&[&str]; 4] = [
    &["snapshots"],
    &["ls", "latest"],
    &["find", "f1*"],
    &["diff", "latest", "latest"],
];

#[test]
fn what_was_stored_or_read_once_is_not_requested_again() {
    let shared = Shared::new("bucket_cache");
    let Shared { first, second, .. } = &shared;
    for look in LOOKS {
        assert_eq!(shared.reads(first, look), 0, "{look:?} by who stored it");
    }
    assert!(shared.reads(second, &["snapshots"]) >= 3);
    assert!(shared.reads(second, &["ls", "latest"]) >= 2);
    shared.reads(second, &["find", "f1*"]);
    for look in LOOKS {
        assert_eq!(shared.reads(second, look), 0, "{look:?} again");
    }
    // The parent of a backup.
    assert_eq!(shared.reads(first, &["backup", "source"]), 0);
    // Without copies all of it is requested, as often as it is asked for.
    for flags in [&["--no-cache"][..], &["--cache-size", "0"]] {
        let args = [&["snapshots"], flags].concat();
        assert!(shared.reads(first, &args) >= 3, "{flags:?}");
    }
    let kept = copies(first).len();
    assert!(
        shared.reads(first, &["check"]) > 3,
        "a check reads the store"
    );
    assert_eq!(copies(first).len(), kept);
    shared.restores(second);
}

#[test]
fn copies_that_are_lost_damaged_or_in_the_way_cost_time_alone() {
    let shared = Shared::new("bucket_cache_damaged");
    let second = &shared.second;
    shared.reads(second, &["ls", "latest"]);
    for copy in copies(second) {
        let mut bytes = std::fs::read(&copy).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&copy, bytes).expect("it is ours");
    }
    assert!(shared.reads(second, &["ls", "latest"]) > 0);
    assert_eq!(shared.reads(second, &["ls", "latest"]), 0, "made anew");
    for copy in copies(second) {
        std::fs::write(&copy, b"").expect("it is ours");
    }
    shared.restores(second);
    let own = copies(second)[0].parent().expect("a folder").to_path_buf();
    std::fs::remove_dir_all(&own).expect("it is ours");
    std::fs::write(&own, b"in the way").expect("it is ours");
    shared.restores(second);
    // A small bound holds, whatever is read.
    std::fs::remove_file(&own).expect("it is ours");
    second.run(&["ls", "latest", "--cache-size", "8K"]).ends(0);
    let len = |path: PathBuf| path.metadata().map_or(0, |about| about.len());
    let bytes: u64 = copies(second).into_iter().map(len).sum();
    assert!(bytes <= 8 << 10, "{bytes}");
}

#[test]
fn nothing_that_needs_a_password_is_on_the_machines_disk() {
    let shared = Shared::new("bucket_cache_sealed");
    let kept = copies(&shared.first);
    assert!(kept.len() > 4, "{kept:?}");
    let first = shared.fake.endpoint();
    let names = ["source", "d1/f", "correct horse", &first];
    for copy in kept {
        let bytes = std::fs::read(&copy).expect("it is there");
        let holds = |name: &&str| {
            bytes
                .windows(name.len())
                .any(|found| found == name.as_bytes())
        };
        assert!(!names.iter().any(holds), "{}", copy.display());
    }
}

#[test]
fn what_is_kept_is_shown_and_removed() {
    let shared = Shared::new("bucket_cache_verb");
    let first = &shared.first;
    let shown = || {
        let ran = first.run(&["cache", "--json"]).ends(0);
        let all: serde_json::Value = serde_json::from_str(ran.out.trim()).expect("JSON");
        all.as_array().expect("an array").clone()
    };
    let [kept] = &shown()[..] else {
        panic!("one repository is kept");
    };
    assert!(kept["copies_bytes"].as_u64() > Some(1_000), "{kept}");
    assert_eq!(kept["old"], false);
    let id = kept["repository"].as_str().expect("an id").to_owned();
    let table = first.run(&["cache"]).ends(0);
    assert!(table.out.contains(&id[..10]), "{}", table.out);
    // Used just now: not old. After two months without use it is.
    first.run(&["cache", "--cleanup"]).ends(0);
    assert_eq!(shown().len(), 1);
    let folder = PathBuf::from(kept["path"].as_str().expect("a path"));
    let age = |days: u64| {
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400);
        let opened = std::fs::File::open(&folder).expect("it is there");
        opened.set_modified(then).expect("it is ours");
    };
    age(60);
    first.run(&["snapshots"]).ends(0);
    first.run(&["cache", "--cleanup"]).ends(0);
    assert_eq!(shown().len(), 1, "a use makes it young");
    age(20);
    first.run(&["cache", "--cleanup"]).ends(0);
    assert_eq!(shown().len(), 1);
    first
        .run(&["cache", "--cleanup", "--max-age", "10"])
        .ends(0);
    assert_eq!(shown().len(), 0);
    shared.reads(first, &["backup", "source"]);
    first
        .run(&["cache", "--clear", "ffffffffffffffff0"])
        .ends(0);
    assert_eq!(shown().len(), 1, "another repository's");
    first.run(&["cache", "--clear", &id[..6]]).ends(0);
    assert!(!folder.exists());
    shared.restores(first);
}
