//! `--index-dir`: the index lies on another device, and may be deleted at any time.

use std::fs;

use crate::rig::{Rig, files, seeded};

#[test]
fn the_index_lies_where_it_was_asked_for_and_may_be_deleted() {
    let rig = Rig::new();
    let folder = rig.path("fast");
    let index = folder.to_str().expect("UTF-8").to_owned();
    let with = |args: &[&str]| rig.run([args, &["--index-dir", &index]].concat());
    let bytes = seeded("index_dir").bytes(400_000);
    rig.write("src/a", &bytes);
    // The repository was made without the flag, and has an empty index of its own.
    let own = || files(&rig.repo().join("index"));
    let before = own();
    with(&["backup", "src"]).ends(0);
    assert_eq!(own(), before, "nothing is written to the repository's own");
    assert!(!files(&folder).is_empty());
    // Known chunks are found by that index, and by one that is made anew: they are not stored again.
    let stored = || -> usize {
        let containers = files(&rig.repo().join("containers"));
        containers.values().map(Vec::len).sum()
    };
    let once = stored();
    fs::copy(rig.path("src/a"), rig.path("src/b")).expect("copy");
    with(&["backup", "src"]).ends(0);
    fs::remove_dir_all(&folder).expect("remove");
    rig.write("src/c", &bytes);
    with(&["backup", "src"]).ends(0);
    assert!(stored() < once + 50_000, "{} after {once}", stored());
    with(&["forget", "--keep-last", "1", "--prune"]).ends(0);
    with(&["check", "--read-data"]).ends(0);
    // Without the flag the repository's own index is made; both are right.
    rig.run(["check", "--read-data"]).ends(0);
    rig.backup("src");
    assert_eq!(rig.restored("latest", "src"), files(&rig.path("src")));
}

#[test]
fn the_variable_means_the_same_and_two_repositories_share_a_folder() {
    let rig = Rig::new();
    rig.write("src/a", b"every byte once");
    let folder = rig.path("fast");
    for repository in ["one", "other"] {
        let place = rig.path(repository);
        let mut command = rig.command(["backup", "src", "--init", "--repo"]);
        let ran = command
            .arg(&place)
            .env("ONEFOLD_INDEX_DIR", &folder)
            .status();
        assert!(ran.expect("it starts").success());
        assert!(files(&place.join("index")).is_empty());
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 2);
}

/// Reading needs no index; writing does, and says so.
#[test]
fn who_reads_goes_on_without_an_index_that_cannot_be_had_and_is_warned_once() {
    let rig = Rig::new();
    rig.write("src/a", b"every byte once");
    rig.backup("src");
    // No folder can be made here, by root either.
    rig.write("file", b"in the way");
    let folder = rig.path("file/fast");
    let folder = folder.to_str().expect("UTF-8");
    for args in [
        &["restore", "latest", "--target", "out"][..],
        &["check", "--read-data"],
        &["snapshots"],
        &["ls", "latest"],
        &["dump", "latest", "/"],
    ] {
        let ran = rig.run([args, &["--index-dir", folder]].concat()).ends(0);
        assert_eq!(ran.err.matches("cannot be used").count(), 1, "{}", ran.err);
        assert!(ran.err.contains(folder), "{}", ran.err);
    }
    // The flag is what is wrong.
    for folder in [folder, "/proc/foo"] {
        let refused = rig.run(["backup", "src", "--index-dir", folder]).ends(2);
        let told = "--index-dir names a folder that cannot be made";
        assert!(refused.err.contains(told), "{}", refused.err);
        assert!(refused.err.contains(folder), "{}", refused.err);
    }
    assert_eq!(rig.snapshots().len(), 1);
}

/// As the repository itself is.
#[test]
fn a_backup_leaves_out_the_index_that_lies_in_its_source() {
    let rig = Rig::new();
    rig.write("src/a", b"every byte once");
    let folder = rig.path("src/cache");
    let folder = folder.to_str().expect("UTF-8");
    rig.write("src/cache/another", b"of somebody else");
    for _ in 0..2 {
        let ran = rig.run(["backup", "src", "--index-dir", folder]).ends(0);
        assert!(
            ran.out.contains("the repository's index is left out"),
            "{}",
            ran.out
        );
    }
    let names: Vec<_> = rig.restored("latest", "src").into_keys().collect();
    assert_eq!(names, ["a", "cache/another"].map(std::path::PathBuf::from));
}
