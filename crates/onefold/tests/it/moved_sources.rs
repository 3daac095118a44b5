//! `backup --as`: what lies elsewhere for now is stored where it belongs, and its series goes on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::rig::{Rig, files, id_of};
use crate::untested::{has, not_tested};

/// The absolute path of what is in the rig's folder, as text.
fn path(rig: &Rig, name: &str) -> String {
    rig.path(name).to_str().expect("text").to_owned()
}

/// As a restore leaves it: a copy below another folder, with everything above it.
fn moved(rig: &Rig, name: &str) -> String {
    let there = path(rig, "there") + &path(rig, name);
    let above = PathBuf::from(&there);
    fs::create_dir_all(above.parent().expect("a folder")).expect("made");
    fs::rename(rig.path(name), &there).expect("moved");
    there
}

#[test]
fn a_folder_that_was_moved_goes_on_with_its_series() {
    let rig = Rig::open();
    rig.write("home/ann/notes", b"notes");
    rig.write("home/ann/sub/large", &[7; 700_000]);
    let belongs = path(&rig, "home/ann");
    let first = rig.backup("home/ann");
    let there = moved(&rig, "home/ann");
    fs::write(format!("{there}/new"), b"new").expect("written");
    let args = ["backup", &there, "--as", &belongs, "--json", "-e"];
    let ran = rig
        .run(args.into_iter().chain([&belongs[..], "-e", "*.tmp"]))
        .ends(0);
    let summary = ran.last();
    // The backup sees that the file is the parent's.
    assert_eq!(
        (&summary["files_new"], &summary["files_unmodified"]),
        (&1.into(), &2.into())
    );
    let second = id_of(&ran);
    let listed = rig
        .run(["snapshots", "--path", &belongs, "--json"])
        .ends(0)
        .last();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!(listed[1]["paths"], serde_json::json!([belongs]));
    assert_eq!(listed[1]["parent"], listed[0]["id"]);
    let diff = rig.run(["diff", &first, &second]).ends(0).out;
    assert!(diff.contains(&format!("+    {belongs}/new")), "{diff}");
    assert!(!diff.contains("notes") && !diff.contains("there"), "{diff}");
    let restored = rig.restored(&second, "home/ann");
    assert_eq!(restored, files(PathBuf::from(&there).as_path()));
    let forget = ["forget", "--keep-last", "1", "--dry-run", "--json"];
    let forget = rig.run(forget).ends(0).last();
    assert_eq!(
        forget.as_array().map(Vec::len),
        Some(1),
        "one series: {forget}"
    );
}

/// A snapshot of a file system, say, that is mounted where there is room.
#[test]
fn a_folder_may_have_another_name_than_it_has() {
    let rig = Rig::open();
    rig.write("mnt/snapshot/f", b"home");
    rig.write("etc/passwd", b"etc");
    fs::set_permissions(rig.path("mnt/snapshot"), Permissions::from_mode(0o750)).expect("chmod");
    let (home, etc) = (path(&rig, "mnt/snapshot"), path(&rig, "etc"));
    // In any order; a file keeps its own name.
    let passwd = format!("{etc}/passwd");
    let args = [
        "backup",
        &passwd,
        &home,
        "--as",
        "/srv/passwd",
        "--as",
        "/home",
        "--json",
    ];
    let id = id_of(&rig.run(args).ends(0));
    let listed = rig.run(["ls", &id]).ends(0).out;
    let lines: Vec<_> = listed.lines().skip(1).collect();
    assert_eq!(lines, ["/home", "/srv", "/home/f", "/srv/passwd"]);
    let target = path(&rig, "t");
    rig.run(["restore", &id, "-t", &target]).ends(0);
    assert_eq!(fs::read(rig.path("t/home/f")).expect("there"), b"home");
    assert_eq!(fs::read(rig.path("t/srv/passwd")).expect("there"), b"etc");
    let mode = fs::metadata(rig.path("t/home"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o750);
    let whole = ["backup", &home, "--as", "/", "--json"];
    let id = id_of(&rig.run(whole).ends(0));
    assert_eq!(rig.run(["dump", &id, "/f"]).ends(0).out, "home");
}

#[test]
fn what_belongs_nowhere_or_is_not_there_makes_no_snapshot() {
    let rig = Rig::open();
    rig.write("a/f", b"x");
    rig.write("b/f", b"x");
    let nowhere = path(&rig, "nowhere");
    for (args, code, part) in [
        (&["a", "b", "--as", "/home"][..], 2, "of each path"),
        (&["a", "--as", "home"], 2, "the whole path"),
        (&["a", "--as", ""], 2, "--as is empty"),
        (&["a", "--as", "/home/../etc"], 2, "without .."),
        (&["a/f", "--as", "/home/g"], 2, "no folder"),
        (
            &["a", "b", "--as", "/home", "--as", "/home/b"],
            2,
            "into each other",
        ),
        (
            &["a", "b", "--as", "/home", "--as", "/home"],
            2,
            "into each other",
        ),
        (
            &["a", &nowhere, "--as", "/a", "--as", "/b"],
            1,
            "does not exist",
        ),
        (&["repo", "--as", "/a"], 1, "not backed up into itself"),
    ] {
        let ran = rig.run([&["backup"], args].concat()).ends(code);
        assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
    }
    assert_eq!(rig.snapshots().len(), 0);
}

/// Runs a program with the old repository of restic.
fn with_restic(rig: &Rig, command: &mut Command) {
    command
        .env("RESTIC_REPOSITORY", rig.path("old"))
        .env("RESTIC_PASSWORD", "old")
        .env("RESTIC_CACHE_DIR", rig.path("cache"))
        .stdin(std::process::Stdio::null());
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
}

/// Runs the loop of docs/restic.md that moves snapshots from restic.
fn run_the_loop(rig: &Rig) {
    let page = include_str!("../../../../docs/restic.md");
    let from = page.find("restic snapshots --json |").expect("the loop");
    let script = &page[from..];
    let script = &script[..script.find("```").expect("its end")];
    let script = script.replace("/tmp/move", &path(rig, "place"));
    let program = PathBuf::from(env!("CARGO_BIN_EXE_onefold"));
    let bin = program.parent().expect("a folder").display();
    let path = std::env::var("PATH").expect("PATH");
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .current_dir(rig.dir.path())
        .env("PATH", format!("{bin}:{path}"))
        .env("ONEFOLD_REPOSITORY", rig.repo());
    with_restic(rig, &mut command);
}

/// The loop of docs/restic.md, with restic where it is installed.
#[test]
fn the_page_moves_a_history_from_restic_and_its_series_go_on() {
    for program in ["restic", "jq", "bash"] {
        let version = Command::new(program).arg("--version").output();
        if version.is_err() && Command::new(program).arg("version").output().is_err() {
            return not_tested("the move from restic, which is not installed, or jq is not");
        }
    }
    if !has("bash") {
        return;
    }
    let rig = Rig::open();
    rig.write("home/ann it's/notes", b"first");
    rig.write("etc/conf", b"conf");
    let tree = path(&rig, "home/ann it's");
    let conf = path(&rig, "etc/conf");
    let restic = |args: &[&str]| with_restic(&rig, Command::new("restic").args(args));
    restic(&["init"]);
    restic(&[
        "backup",
        &tree,
        &conf,
        "--host",
        "h",
        "--tag",
        "a,b",
        "--time",
        "2024-01-01 00:00:00",
    ]);
    rig.write("home/ann it's/notes", b"second");
    restic(&[
        "backup",
        &tree,
        &conf,
        "--host",
        "h",
        "--time",
        "2024-02-01 00:00:00",
    ]);
    run_the_loop(&rig);
    // The second run passes over the snapshots that are moved.
    run_the_loop(&rig);
    let listed = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    for snapshot in listed.as_array().expect("a list") {
        assert_eq!(snapshot["hostname"], "h");
        assert_eq!(snapshot["paths"], serde_json::json!([conf, tree]));
    }
    assert!(
        listed[0]["tags"].to_string().contains("\"a\",\"b\""),
        "{listed}"
    );
    let time = listed[0]["time"].as_str().expect("text");
    assert!(
        time.starts_with("2023-12-31") || time.starts_with("2024-01-01"),
        "{time}"
    );
    // The next one is a child of the last.
    let args = ["backup", &tree, &conf, "--host", "h", "--json"];
    let id = id_of(&rig.run(args).ends(0));
    let about = rig.run(["cat", "snapshot", &id, "--json"]).ends(0).last();
    assert_eq!(about["parent"], listed[1]["id"]);
    let dump = rig
        .run(["dump", "latest", &format!("{tree}/notes")])
        .ends(0);
    assert_eq!(dump.out, "second");
}
