//! A folder of the repository that is missing altogether is damage, never an empty one; one that is a link leads
//! nowhere, but for that of the index.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::{Rig, files};

#[test]
fn what_is_missing_with_its_folder_is_damage_and_nothing_is_deleted_for_it() {
    for folder in ["snapshots", "containers"] {
        for leads_nowhere in [false, true] {
            let rig = Rig::open();
            rig.write("source/file", &[7; 20_000]);
            let id = rig.backup("source");
            let (there, away) = (rig.repo().join(folder), rig.path("away"));
            fs::rename(&there, &away).expect("ours");
            if leads_nowhere {
                symlink(rig.path("nowhere"), &there).expect("a link");
            }
            let containers = match folder {
                "containers" => away.clone(),
                _ => rig.repo().join("containers"),
            };
            let stored = files(&containers);
            for args in [
                &["check"][..],
                &["prune"],
                &["prune", "--dry-run"],
                &["repair"],
                &["snapshots"],
                &["forget", "--keep-last", "1", "--prune"],
                &["backup", "source", "--force"],
            ] {
                // Listing snapshots needs no containers.
                if folder == "containers" && args == ["snapshots"] {
                    continue;
                }
                let (code, what) = if leads_nowhere {
                    (1, "a symbolic link, which is not followed here")
                } else {
                    (13, "the folder is missing")
                };
                let ran = rig.run(args).ends(code);
                let named = format!("{folder}: {what}");
                assert!(ran.err.contains(&named), "{args:?}: {}", ran.err);
            }
            assert_eq!(files(&containers), stored);
            if leads_nowhere {
                fs::remove_file(&there).expect("the link");
            }
            fs::rename(&away, &there).expect("nobody made another");
            rig.run(["check", "--read-data"]).ends(0);
            rig.run(["restore", &id, "--target", "target"]).ends(0);
        }
    }
}

/// Tools that copy no empty folders leave such a repository.
#[test]
fn a_repair_makes_folders_that_are_missing_only_where_nothing_was_in_them() {
    let rig = Rig::open();
    for folder in ["snapshots", "containers"] {
        fs::remove_dir(rig.repo().join(folder)).expect("empty");
    }
    rig.run(["check"]).ends(13);
    let said = rig.run(["repair"]).ends(0).out;
    assert!(said.contains("made the folder snapshots"), "{said}");
    assert!(said.contains("made the folder containers"), "{said}");
    rig.write("source/file", &[7; 20_000]);
    rig.backup("source");
    rig.run(["check", "--read-data"]).ends(0);
}

/// Only files of the engine's own names are in a repository's folders; who plants a link there must not have others
/// emptied.
#[test]
fn nothing_is_removed_through_a_link_or_that_the_program_did_not_make() {
    let rig = Rig::open();
    rig.write("source/file", &[7; 20_000]);
    rig.backup("source");
    rig.write("victim/0123456789abcdef", b"not a session");
    rig.write("victim/marks", b"not of a sweep");
    for folder in ["scratch", "sessions"] {
        let there = rig.repo().join(folder);
        fs::rename(&there, rig.path("away")).ok();
        symlink(rig.path("victim"), &there).expect("a link");
        let ran = rig.run(["prune"]).ends(1);
        assert!(ran.err.contains("a symbolic link"), "{}", ran.err);
        assert_eq!(files(&rig.path("victim")).len(), 2);
        fs::remove_file(&there).expect("the link");
        fs::rename(rig.path("away"), &there).ok();
    }
    rig.write("repo/scratch/notes", b"of a person");
    rig.write("repo/scratch/marks", b"of a sweep that died");
    rig.run(["prune"]).ends(0);
    assert!(rig.repo().join("scratch/notes").exists());
    assert!(!rig.repo().join("scratch/marks").exists());
}

/// A link of one's own puts the index on a faster disk.
#[test]
fn the_index_may_be_a_link() {
    let rig = Rig::open();
    let there = rig.repo().join("index");
    fs::rename(&there, rig.path("fast")).expect("one disk");
    symlink(rig.path("fast"), &there).expect("a link");
    rig.write("source/file", &[7; 20_000]);
    rig.backup("source");
    assert!(rig.path("fast/manifest").exists());
}
