//! Files that a restore leaves in the target, and its messages.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::rig::{Ran, Rig, files};
use crate::untested::{has, is_root, not_tested};

#[test]
fn a_restore_that_deletes_leaves_the_repository_wherever_it_is() {
    for behind_a_link in [false, true] {
        let rig = Rig::empty();
        let repo = rig.path("home/backups/repo");
        let init = rig
            .command(["init", "--encryption", "none"])
            .env("ONEFOLD_REPOSITORY", &repo)
            .status();
        assert!(init.expect("init").success());
        if behind_a_link {
            fs::rename(repo.join("index"), rig.path("home/elsewhere")).expect("move");
            std::os::unix::fs::symlink(rig.path("home/elsewhere"), repo.join("index"))
                .expect("link");
        }
        rig.write("home/file", b"kept");
        let source = fs::canonicalize(rig.path("home")).expect("path");
        let run = |args: &[&str]| {
            let command =
                rig.run([&["-r", "home/backups/repo", "--encryption", "none"], args].concat());
            command.ends(0)
        };
        run(&["backup", "home", "-e", "elsewhere", "-e", "backups"]);
        rig.write("home/new", b"made later");
        let from = format!("latest:{}", source.display());
        for dry_run in [&["--dry-run"][..], &[]] {
            let restore = [&["restore", &from, "--target", "home", "--delete"], dry_run].concat();
            let ran = run(&restore);
            assert!(
                ran.err.contains("/backups/repo: nothing is deleted here"),
                "{}",
                ran.err
            );
        }
        assert!(!rig.path("home/new").exists());
        assert_eq!(behind_a_link, rig.path("home/elsewhere/manifest").exists());
        run(&["check", "--read-data"]);
    }
}

/// A snapshot may hold an older repository that lay where this one lies.
#[test]
fn a_restore_writes_nothing_into_its_own_repository() {
    let rig = Rig::new();
    for name in ["config", "config.copy", "containers/00/x", "notes"] {
        rig.write(&format!("old/repo/{name}"), b"of another");
    }
    let snapshot = rig.backup("old");
    let source = fs::canonicalize(rig.path("old")).expect("path");
    let from = format!("{snapshot}:{}", source.display());
    let own = || {
        let is_other = |name: &Path| {
            ["sessions", "locks", "index"]
                .iter()
                .any(|it| name.starts_with(it))
        };
        let mut files = files(&rig.repo());
        files.retain(|name, _| !is_other(name));
        files
    };
    let before = own();
    let to = rig.dir.path();
    let to = to.to_str().expect("UTF-8");
    let dry = rig
        .run(["restore", &from, "--target", to, "--dry-run"])
        .ends(3);
    assert!(
        dry.err.contains("nothing would be restored here"),
        "{}",
        dry.err
    );
    let ran = rig.run(["restore", &from, "--target", to]).ends(3);
    let told = "nothing is restored here: the repository that is restored from is here";
    assert_eq!(ran.err.matches(told).count(), 1, "{}", ran.err);
    assert!(before == own(), "{:?}", own().keys());
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn a_target_inside_of_the_repository_is_refused_before_anything_else() {
    let rig = Rig::new();
    rig.write("s/f", b"x");
    rig.backup("s");
    std::os::unix::fs::symlink("repo/containers", rig.path("link")).expect("link");
    let folders = || fs::read_dir(rig.repo()).expect("a folder").count();
    let before = folders();
    for target in [
        "repo",
        "repo/x",
        "repo/snapshots/zz/yy",
        "link/x",
        "missing/../repo/x",
        "repo/missing/../../y",
    ] {
        // No password is needed to see that.
        let args = ["restore", "latest", "--dry-run", "--target", target];
        for args in [&args[..], &[&args[..2], &args[3..]].concat()] {
            let mut command = rig.command(args);
            let ran: Ran = command
                .env_remove("ONEFOLD_PASSWORD")
                .output()
                .expect("runs")
                .into();
            let ran = ran.ends(2);
            let told = "the target is inside of the repository";
            assert!(ran.err.contains(told), "{target}: {}", ran.err);
        }
    }
    assert_eq!(before, folders());
    assert!(!rig.path("missing").exists() && !rig.repo().join("snapshots/zz").exists());
    // Beside it, and where there is no repository, is not in it.
    rig.run(["restore", "latest", "--target", "repository"])
        .ends(0);
    rig.run(["restore", "latest", "-r", "s", "--target", "s/x"])
        .ends(10);
}

#[test]
fn what_stays_is_said_by_its_kind() {
    let rig = Rig::open();
    rig.write("s/a", b"one");
    rig.write("s/b", b"two");
    for number in 0..5 {
        let link = |folder: &str| rig.path(&format!("{folder}/link-{number}"));
        fs::create_dir_all(rig.path("t")).expect("a folder");
        std::os::unix::fs::symlink("a", link("s")).expect("a link");
        std::os::unix::fs::symlink("b", link("t")).expect("a link");
    }
    rig.backup("s");
    let from = format!("latest:{}", rig.path("s").display());
    let never = ["restore", &from, "--target", "t", "--overwrite", "never"];
    let dry = rig.run([&never[..], &["--dry-run"]].concat()).ends(0);
    assert!(
        dry.out
            .contains("would restore 2 files, 0 folders, 0 other"),
        "{}",
        dry.out
    );
    assert!(
        dry.out.contains("would leave 5 other as they were"),
        "{}",
        dry.out
    );
    let real = rig.run(never).ends(0).out;
    assert!(
        real.contains("restored 2 files, 0 folders, 0 other"),
        "{real}"
    );
    assert!(real.contains("left 5 other as they were"), "{real}");
    let again = rig.run(never).ends(0).out;
    assert!(
        again.contains("left 2 files, 5 other as they were"),
        "{again}"
    );
    rig.write("s/d/c", b"three");
    fs::create_dir(rig.path("s/e")).expect("a folder");
    fs::create_dir(rig.path("t/d")).expect("a folder");
    rig.backup("s");
    let folders = rig.run(never).ends(0).out;
    assert!(
        folders.contains("restored 1 file, 1 folder, 0 other"),
        "{folders}"
    );
    assert!(
        folders.contains("left 2 files, 1 folder, 5 other as they were"),
        "{folders}"
    );
    // One that only leads there was not asked for, and is not told.
    let part = rig.run([&never[..], &["-i", "c"]].concat()).ends(0).out;
    assert!(part.contains("left 1 file as it was"), "{part}");
}

#[test]
fn a_low_limit_of_open_files_loses_nothing() {
    let rig = Rig::open();
    for n in 0..400 {
        rig.write(&format!("s/folder {n}/file"), format!("{n}").as_bytes());
    }
    for n in 0..12 {
        rig.write(&format!("s/large {n}"), &vec![n; 8 << 20]);
    }
    rig.backup("s");
    let program = env!("CARGO_BIN_EXE_onefold");
    let spec = format!("latest:{}", rig.path("s").display());
    let script = format!("ulimit -n 100; exec {program} -r repo restore {spec} -t t");
    // And again, over what is there.
    for _ in 0..2 {
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(rig.dir.path())
            .output();
        let output = output.expect("runs");
        Ran::from(output).ends(0);
        assert_eq!(files(&rig.path("t")), files(&rig.path("s")));
    }
}

#[test]
fn further_names_are_links_where_proc_is_not_mounted() {
    let rig = Rig::open();
    rig.write("s/f", b"one file");
    fs::hard_link(rig.path("s/f"), rig.path("s/g")).expect("link");
    rig.backup("s");
    if !is_root() || !has("unshare") || !has("umount") {
        return;
    }
    let from = format!("latest:{}", rig.path("s").display());
    let script = "umount -l /proc || exit 99; exec \"$@\"";
    match rig.run_where(script, &["restore", &from, "--target", "t"]) {
        Some(ran) => drop(ran.ends(0)),
        None => return not_tested("/proc cannot be unmounted here"),
    }
    let links = |name: &str| fs::metadata(rig.path(name)).expect("stat").nlink();
    assert_eq!((links("t/f"), links("t/g")), (2, 2));
}
