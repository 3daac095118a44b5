//! A folder of the repository that is missing altogether is damage, never an empty one.

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
                let ran = rig.run(args).ends(13);
                let named = format!("{folder}: the folder is missing");
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
