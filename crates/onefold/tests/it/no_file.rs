//! In the place of a repository's file stands what is none: a folder, a pipe, a socket, a link to nowhere. That is
//! damage, told and mended as other damage is. Nothing waits for a pipe, and no folder that holds something goes.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::rig::{Files, Random, Rig, files};

/// Thing that stands in the file's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    Pipe,
    Socket,
    Link,
    Empty,
    /// A folder with somebody's file.
    Full,
}

const THINGS: [Thing; 5] = [
    Thing::Pipe,
    Thing::Socket,
    Thing::Link,
    Thing::Empty,
    Thing::Full,
];
const SOMEBODYS: &str = "somebodys";

impl Thing {
    fn stand_at(self, path: &Path) {
        if path.exists() {
            fs::remove_file(path).expect("ours");
        }
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        match self {
            Self::Pipe => rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("a pipe"),
            Self::Socket => drop(UnixListener::bind(path).expect("a socket")),
            Self::Link => std::os::unix::fs::symlink("nowhere", path).expect("a link"),
            Self::Empty => fs::create_dir(path).expect("a folder"),
            Self::Full => {
                fs::create_dir(path).expect("a folder");
                fs::write(path.join(SOMEBODYS), b"x").expect("a file");
            }
        }
    }
}

/// A repository of one snapshot, which can be put back as it was.
struct Scene {
    rig: Rig,
    snapshot: String,
    repository: Files,
    source: Files,
}

impl Scene {
    fn new(rig: Rig) -> Self {
        rig.write("s/f", &Random(3).bytes(300_000));
        let snapshot = rig.backup("s");
        Self {
            repository: files(&rig.repo()),
            source: files(&rig.path("s")),
            rig,
            snapshot,
        }
    }

    /// Puts `thing` in the place of the file whose path begins so, of a repository that is as it was.
    fn with(&self, thing: Thing, start: &str) -> (&Rig, String) {
        let repo = self.rig.repo();
        for folder in fs::read_dir(&repo).expect("a repository") {
            let path = folder.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).expect("ours");
            } else {
                fs::remove_file(path).expect("ours");
            }
        }
        for (name, bytes) in &self.repository {
            let path = repo.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, bytes).expect("ours");
        }
        let begins = |name: &&PathBuf| name.to_string_lossy().starts_with(start);
        let found = self.repository.keys().find(begins);
        let name = found.map_or(start.to_owned(), |name| name.to_string_lossy().into());
        let folder = repo.join(&name);
        fs::create_dir_all(folder.parent().expect("a folder")).expect("folders");
        thing.stand_at(&repo.join(&name));
        (&self.rig, name)
    }

    /// All is well, and what is somebody's is there still.
    fn assert_mended(&self, thing: Thing, name: &str) {
        self.rig.run(["check", "--read-data"]).ends(0);
        let snapshot = self.rig.snapshots().pop().expect("a snapshot");
        assert!(self.rig.restored(&snapshot, "s") == self.source, "{name}");
        let repository = files(&self.rig.repo());
        let mut left = repository.keys().filter(|path| path.ends_with(SOMEBODYS));
        let is_left = left.next().is_some();
        assert_eq!(is_left, thing == Thing::Full, "{thing:?} at {name}");
    }
}

#[test]
fn in_the_place_of_a_file_of_the_index_it_costs_time_only() {
    let rig = Rig::empty();
    let init = ["init", "--encryption", "none", "--chunker", "fixed"];
    // so many chunks that the index has a run
    let small = ["--chunk-size", "256"];
    rig.run([&init[..], &small].concat()).ends(0);
    let scene = Scene::new(rig);
    for thing in THINGS {
        for start in [
            "index/manifest",
            "index/log-",
            "index/run-",
            "index/ingested",
        ] {
            let (rig, name) = scene.with(thing, start);
            let is_whole = name == start || name.len() > start.len() + 16;
            assert!(is_whole, "none begins with {start}");
            rig.run(["check"]).ends(0);
            assert!(rig.restored(&scene.snapshot, "s") == scene.source);
            let stored = rig.run(["backup", "s", "--force", "--json"]).ends(0).last();
            assert_eq!(stored["data_blobs"], 0, "{thing:?} at {name}: {stored}");
            rig.run(["prune"]).ends(0);
            scene.assert_mended(thing, &name);
        }
    }
}

#[test]
fn in_the_place_of_a_file_that_is_kept_twice_or_not_needed_a_repair_mends_it() {
    let scene = Scene::new(Rig::open());
    for thing in THINGS {
        let places = [
            ("config", 0),
            ("config.copy", 0),
            ("condemned", 13),
            ("condemned/0123456789abcdef", 13),
        ];
        for (name, hinders) in places {
            if name == "condemned" && matches!(thing, Thing::Empty | Thing::Full) {
                continue; // a folder belongs there
            }
            let (rig, name) = scene.with(thing, name);
            let run = |args: &[&str]| {
                let mut command = rig.command(args);
                let output = command.env_remove("ONEFOLD_PASSWORD").output();
                crate::rig::Ran::from(output.expect("it runs"))
            };
            let told = run(&["check"]).ends(13).err;
            assert!(told.contains(&format!("damaged: {name}: ")), "{told}");
            run(&["backup", "s"]).ends(hinders);
            run(&["restore", "latest", "--target", "t"]).ends(0);
            run(&["repair"]).ends(0);
            assert!(hinders != 0 || rig.repo().join(&name).is_file());
            scene.assert_mended(thing, &name);
        }
    }
}

#[test]
fn in_the_place_of_data_it_is_told_and_what_is_stored_again_heals() {
    let scene = Scene::new(Rig::open());
    for thing in THINGS {
        for start in ["containers/", "snapshots/"] {
            let (rig, name) = scene.with(thing, start);
            let told = rig.run(["check"]).ends(13).err;
            assert!(told.contains(&format!("damaged: {name}: ")), "{told}");
            let repaired = rig.run(["repair"]).ends(13);
            match start {
                "containers/" => {
                    assert!(repaired.out.contains(&name), "{}", repaired.out);
                    assert!(!rig.repo().join(&name).exists());
                }
                _ => {
                    assert!(rig.run(["snapshots"]).err.contains(&scene.snapshot));
                    rig.run(["forget", &scene.snapshot]).ends(0);
                }
            }
            rig.run(["backup", "s", "--force"]).ends(0);
            rig.run(["repair", "snapshots", "--forget"]);
            scene.assert_mended(thing, &name);
        }
    }
}

#[test]
fn in_the_place_of_a_key_slot_others_open() {
    let rig = Rig::new();
    fs::write(rig.path("new"), "another").expect("a password");
    let scene = Scene::new(rig);
    for thing in THINGS {
        let (rig, name) = scene.with(thing, "keys/");
        let told = rig.run(["check"]).ends(13).err;
        assert!(told.contains(&name), "{told}");
    }
    let (rig, _) = scene.with(Thing::Full, "index/manifest");
    rig.run(["key", "add", "--new-password-file", "new"])
        .ends(0);
    let slots = files(&rig.repo().join("keys"));
    let added = |name: &&PathBuf| !scene.repository.contains_key(&Path::new("keys").join(name));
    let added = slots.keys().find(added).expect("a second key");
    let id = added.to_string_lossy();
    for thing in THINGS {
        thing.stand_at(&rig.repo().join("keys").join(added));
        let told = rig.run(["check"]).ends(13).err;
        assert!(told.contains(&format!("damaged: keys/{id}: ")), "{told}");
        rig.run(["repair"]).ends(13);
        rig.run(["key", "remove", &id]).ends(0);
        rig.run(["check"]).ends(0);
    }
}
