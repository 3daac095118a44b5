//! Messages for people who mistype, or are new: each says what is wrong, and what to do where that is not plain.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::rig::{Random, Rig, program};

/// Runs, and expects this exit code and these words on standard error.
#[track_caller]
fn says(rig: &Rig, args: &[&str], code: i32, words: &[&str]) {
    let ran = rig.run(args).ends(code);
    for word in words {
        assert!(
            ran.err.contains(word),
            "{args:?} lacks {word:?}: {}",
            ran.err
        );
    }
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
}

#[test]
fn an_empty_repository_has_nothing_to_say() {
    let rig = Rig::open();
    for args in [
        &["ls", "latest"][..],
        &["restore", "latest", "--target", "t"],
        &["dump", "latest", "/x"],
        &["diff", "latest", "latest"],
        &["tag", "--add", "t", "latest"],
        &["cat", "snapshot", "latest"],
    ] {
        says(&rig, args, 1, &["there is no snapshot yet"]);
    }
    for args in [
        &["snapshots"][..],
        &["find", "x"],
        &["forget", "--keep-last", "1"],
        &["prune"],
        &["check"],
        &["repair"],
        &["stats", "--mode", "blobs-per-file"],
        &["list", "snapshots"],
        &["tag", "--add", "t"],
    ] {
        rig.run(args).ends(0);
    }
}

#[test]
fn a_wrong_id_leads_to_the_list() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for _ in 0..17 {
        rig.backup("s");
    }
    let ids = rig.snapshots();
    let shared = |digit: &char| ids.iter().filter(|id| id.starts_with(*digit)).count() > 1;
    // Seventeen ids have two that begin with the same digit.
    let digit = "0123456789abcdef".chars().find(shared).expect("two");
    says(
        &rig,
        &["ls", &digit.to_string()],
        1,
        &["give more digits", "onefold snapshots"],
    );
    says(
        &rig,
        &["ls", "ffffffffff"],
        1,
        &["begins with ffffffffff", "onefold snapshots"],
    );
    says(
        &rig,
        &["ls", "latest", "--host", "mars"],
        1,
        &["no snapshot has that host"],
    );
    says(&rig, &["ls", "../etc"], 2, &["names no snapshot"]);
    says(&rig, &["ls", "latest:/nope"], 1, &["nothing of that path"]);
    says(
        &rig,
        &["dump", "latest", "/nope"],
        1,
        &["/nope is not in the snapshot", "onefold ls"],
    );
    says(
        &rig,
        &["restore", "latest:/nope", "--target", "t"],
        1,
        &["/nope is not in the snapshot", "onefold ls"],
    );
    says(
        &rig,
        &["restore", "latest", "--target", "t", "--include", "nope"],
        0,
        &["nothing in the snapshot matches"],
    );
}

#[test]
fn a_place_that_is_none_is_said_to_be_none() {
    let rig = Rig::open();
    rig.write("file", b"x");
    rig.write("s/a", b"x");
    says(
        &rig,
        &["snapshots", "--repo", "file"],
        10,
        &["file, which is no folder"],
    );
    says(
        &rig,
        &["backup", "s", "--init", "--repo", "file"],
        1,
        &["file is there, and is no folder"],
    );
    says(
        &rig,
        &["init", "--repo", "file/sub"],
        1,
        &["make the folder file/sub"],
    );
    says(
        &rig,
        &["init", "--repo", "s"],
        1,
        &["the folder holds \"a\""],
    );
    says(
        &rig,
        &["init", "--repo", "/proc/none"],
        1,
        &["make the folder /proc/none"],
    );
    says(&rig, &["init"], 1, &["there is a repository at"]);
    says(
        &rig,
        &["snapshots", "--repo", "s3:bucket"],
        2,
        &["a host and no bucket", "s3://BUCKET/PREFIX"],
    );
    says(
        &rig,
        &["snapshots", "--repo", "b2:bucket"],
        2,
        &["not supported yet", "./b2:bucket"],
    );
    says(&rig, &["backup", "nowhere"], 1, &["nowhere does not exist"]);
    says(&rig, &["backup", ""], 2, &["a path is empty"]);
    says(&rig, &["restore", "latest", "--target", "file"], 1, &[]);
    says(
        &rig,
        &["snapshots", "--ram", "5K"],
        2,
        &["too small", "--ram"],
    );
    says(
        &rig,
        &["forget", "--keep-last", "-3"],
        2,
        &["neither a number nor"],
    );
    rig.run(["forget", "--keep-last", "-1"]).ends(0);
}

#[test]
fn names_may_be_any_bytes_and_paths_any_depth() {
    let rig = Rig::open();
    let odd = rig.path("s").join(OsStr::from_bytes(b"d\xff\xfe"));
    fs::create_dir_all(&odd).expect("made");
    fs::write(odd.join(OsStr::from_bytes(b"n\xe9\n\x1b[31m")), b"odd").expect("written");
    // Deeper than any path may be long: made step by step.
    let name = "a-name-of-twenty-char";
    let mut at =
        rustix::fs::open(rig.path("s"), rustix::fs::OFlags::PATH, 0.into()).expect("there");
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, name, 0o755.into()).expect("made");
        at = rustix::fs::openat(&at, name, rustix::fs::OFlags::PATH, 0.into()).expect("made");
    }
    rig.backup("s");
    let listed = rig.run(["ls", "latest"]).ends(0).out;
    assert!(!listed.contains('\x1b') && listed.lines().any(|line| line.len() > 6000));
    for args in [
        &["ls", "latest", "--json"][..],
        &["ls", "latest", "--ncdu"],
        &["find", "n*", "--json"],
    ] {
        for line in rig
            .run(args)
            .ends(0)
            .out
            .lines()
            .filter(|_| args[2] == "--json")
        {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }
    rig.run(["restore", "latest", "--target", "t", "--verify"])
        .ends(0);
    rig.run(["diff", "latest", "latest"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn no_home_is_needed() {
    let rig = Rig::empty();
    rig.write("s/a", b"x");
    let mut command = program();
    command.env_clear().current_dir(rig.dir.path());
    command.args([
        "backup",
        "s",
        "--init",
        "--encryption",
        "none",
        "--repo",
        "repo",
    ]);
    let ran: crate::rig::Ran = command.output().expect("runs").into();
    ran.ends(0);
}

#[test]
fn words_of_other_programs_and_an_unreplaced_tilde_are_explained() {
    let rig = Rig::open();
    for (args, word) in [
        (&["rewrite", "--exclude", "x"][..], "no `rewrite`"),
        (
            &["prune", "--repack-uncompressed", "--json"],
            "no `--repack",
        ),
        (&["extract", "x"], "`onefold restore`"),
        (&["--repo=~/x", "init"], "$HOME/x"),
        (
            &["backup", "--stdin-from-command", "tar", "-c"],
            "--stdin-from-command -- COMMAND -c",
        ),
        (&["ls", "-R"], "`--recursive` lists"),
        (&["list", "index"], "`onefold stats --mode raw-data`"),
        (&["cat", "masterkey"], "`onefold key list`"),
        (&["init", "repo"], "named by --repo"),
        (&["restore", "latest", "t"], "named by --target"),
        (&["backup", "--progress", "s"], "shown on a terminal"),
    ] {
        says(&rig, args, 2, &[word]);
    }
    let json = rig.run(["rewrite", "x", "--json"]).ends(2).err;
    let json: serde_json::Value = serde_json::from_str(&json).expect("a line of JSON");
    assert_eq!(json["code"], 2);
    assert!(!rig.path("~").exists());
}

#[test]
fn what_was_chosen_at_first_cannot_be_chosen_again() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let args = ["backup", "s", "--init", "--chunk-size", "4K"];
    says(&rig, &args, 0, &["--chunk-size 4.00 KiB changes nothing"]);
    let args = ["backup", "s", "--chunker", "fixed", "--index", "strata"];
    let err = rig.run(args).ends(0).err;
    assert!(err.contains("--chunker fixed changes nothing: the repository was made with sieve"));
    assert!(
        !err.contains("--index") && !err.contains("--chunk-size"),
        "{err}"
    );
    assert_eq!(
        rig.run(["backup", "s", "--index", "ram", "--json"])
            .ends(0)
            .err,
        ""
    );
}

#[test]
fn a_comparison_of_a_folder_counts_that_folder_alone() {
    let rig = Rig::open();
    rig.write("s/d/a", b"x");
    rig.write("s/e/b", b"y");
    rig.backup("s");
    rig.write("s/d/new", b"four");
    rig.write("s/e/new", b"of no interest");
    rig.write("s/dd/new", b"nor this");
    rig.backup("s");
    let ids = rig.snapshots();
    let below = |name: &str| format!("{}:{}", ids[1], rig.path(name).display());
    let diff = rig.run(["diff", &ids[0], &below("s/d")]).ends(0).out;
    assert!(
        diff.contains("+    /new\n") && !diff.contains("/e"),
        "{diff}"
    );
    assert!(
        diff.contains("added      1 file, 0 folders, 0 other, 4 B of data\n"),
        "{diff}"
    );
    let sums = rig
        .run(["diff", &ids[0], &below("s/d"), "--json"])
        .ends(0)
        .last();
    assert_eq!(
        (&sums["added"]["files"], &sums["added"]["data_blobs"]),
        (&1.into(), &1.into())
    );
    says(
        &rig,
        &["diff", &ids[0], &below("s/nope")],
        1,
        &["s/nope is not in the snapshot"],
    );
}

#[test]
fn one_is_no_plural_and_a_dry_run_has_no_speed() {
    let rig = Rig::open();
    rig.write("s/d/a", b"x");
    rig.backup("s");
    rig.write("s/d/b", b"y");
    let gone = rig.run(["backup", "s", "nowhere"]).ends(3);
    assert!(
        gone.err
            .contains("1 source is not there or cannot be looked at, and is not in the snapshot")
    );
    let ids = rig.snapshots();
    let diff = rig.run(["diff", &ids[0], &ids[1]]).ends(0).out;
    assert!(!diff.contains("1 files"), "{diff}");
    let stats = rig.run(["stats", &ids[0]]).ends(0).out;
    assert!(stats.contains(" (folders, links and devices)\n"), "{stats}");
    let dry = rig
        .run(["restore", &ids[0], "--target", "t", "--dry-run", "-v"])
        .ends(0);
    assert!(dry.out.contains("/s/d/a\n"), "{}", dry.out);
    assert!(
        dry.out.contains("1 file,") && !dry.out.contains("/s)"),
        "{}",
        dry.out
    );
    assert!(!rig.path("t").exists());
}

#[test]
fn what_cannot_be_is_said_in_plain_words() {
    let rig = Rig::open();
    rig.write("file", b"x");
    let taken = rig.run(["init", "-r", "file"]).ends(1);
    assert!(
        taken.err.contains("is there, and is no folder"),
        "{}",
        taken.err
    );
    let large = rig.run(["init", "-r", "new", "--chunk-size", "3M"]).ends(2);
    assert!(large.err.contains("a mean of 3.0 MiB"), "{}", large.err);
    rig.run(["init", "-r", "plain", "--encryption", "none"])
        .ends(0);
    let keys = rig
        .run(["-r", "plain", "--encryption", "none", "key", "list"])
        .ends(0);
    assert!(keys.out.contains("it has no keys"), "{}", keys.out);
    let json = rig
        .run([
            "-r",
            "plain",
            "--encryption",
            "none",
            "key",
            "list",
            "--json",
        ])
        .ends(0);
    assert_eq!(json.out.trim(), "[]");
}

#[test]
fn a_file_without_an_end_is_refused() {
    let rig = Rig::new();
    rig.write("s/a", b"x");
    let endless = "/dev/zero";
    for (args, code) in [
        (&["backup", "s", "--password-file", endless][..], 12),
        (&["backup", "s", "--exclude-file", endless], 1),
        (&["backup", "--files-from-raw", endless], 1),
    ] {
        says(&rig, args, code, &["has more than"]);
    }
    let mut snapshots = rig.command(["snapshots", "--repository-file", endless]);
    let ran = snapshots.env_remove("ONEFOLD_REPOSITORY").output();
    let ran: crate::rig::Ran = ran.expect("runs").into();
    assert!(ran.ends(1).err.contains("has more than"));
}

/// Sessions of others describe themselves by text from outside.
#[test]
fn a_sessions_name_does_not_reach_the_terminal_as_it_is() {
    use onefold_store::{OpenOptions, PinInfo, Repository, SessionKind};
    let rig = Rig::open();
    let pin = PinInfo {
        process: 1,
        host: "evil\x1b]0;host".into(),
        activity: "a \x1b[2Jbackup".into(),
    };
    let options = OpenOptions {
        pin,
        ..OpenOptions::default()
    };
    let dir = onefold_io::FileDir::open(rig.repo()).expect("a folder");
    let repository = Repository::open(std::sync::Arc::new(dir), options, None).expect("opened");
    let session = repository.session(SessionKind::Read).expect("a session");
    let ran = rig.run(["unlock"]).ends(0);
    assert!(!ran.out.contains('\x1b'), "{:?}", ran.out);
    assert!(ran.out.contains("evil"), "{}", ran.out);
    session.finish().expect("ended");
}

#[test]
fn holes_are_not_said_to_be_deduplicated() {
    let rig = Rig::open();
    rig.write("s/disk", &Random(1).bytes(1_000_000));
    let file = fs::File::options().write(true).open(rig.path("s/disk"));
    file.and_then(|file| file.set_len(1 << 40)).expect("a hole");
    let said = rig.run(["backup", "s"]).ends(0).out;
    let line = |begin: &str| said.lines().find(|line| line.starts_with(begin));
    let scanned = line("scanned").expect("a line");
    assert!(scanned.contains("1 file, 1.00 TiB in "), "{scanned}");
    assert!(!scanned.contains("TiB/s"), "{scanned}");
    assert_eq!(line("dedup"), None, "{said}");
}

#[test]
fn repositories_of_other_programs_are_none_and_not_damaged() {
    let rig = Rig::empty();
    rig.write("restic/config", &[7; 155]);
    rig.write("restic/data/00/x", b"");
    rig.write("restic/snapshots/x", b"");
    rig.write("borg/config", b"[repository]\nversion = 1\n");
    rig.write("borg/data/0/1", b"");
    rig.run(["-q", "volume", "create", "depot", "--size", "16M"])
        .ends(0);
    for (folder, told) in [
        ("restic", "which is a repository of restic"),
        ("borg", "which is a repository of borg"),
        ("depot", "which is a depot of block devices"),
    ] {
        let ran = rig.run(["-r", folder, "snapshots"]).ends(10);
        assert!(ran.err.contains(told), "{}", ran.err);
    }
}

#[test]
fn a_relative_path_is_told_what_it_would_be_in_a_snapshot() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    rig.backup("s");
    let meant = format!("is {} meant?", rig.path("s/a").display());
    for args in [
        &["ls", "latest", "s/a"][..],
        &["ls", "latest:s/a"],
        &["dump", "latest", "s/a"],
        &["dump", "latest:s/a", "/"],
        &["restore", "latest:s/a", "--target", "t"],
        &["diff", "latest:s/a", "latest:s/a"],
    ] {
        let said = rig.run(args).ends(1).err;
        assert!(said.contains(&meant), "{args:?}: {said}");
    }
}
