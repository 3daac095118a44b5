//! The first hour with the program, and each verb once.

use crate::rig::{Ran, Rig, files, id_of};

#[test]
fn first_run_story() {
    let rig = Rig::empty();
    rig.write("home/notes.txt", b"all is well\n");
    rig.write("home/deep/er/data.bin", &[7; 300_000]);
    rig.run(["backup", "home"]).ends(10);
    assert!(!rig.repo().exists(), "a typo must make nothing");

    let first = rig.run(["backup", "home", "--init"]).ends(0);
    for word in [
        "made repository",
        "scanned",
        "2 files",
        "2 new",
        "compressed",
        "saved",
        "next",
        "restore",
    ] {
        assert!(
            first.out.contains(word),
            "{word:?} is missing:\n{}",
            first.out
        );
    }
    let second = rig.run(["backup", "home"]).ends(0);
    assert!(
        second.out.contains("2 unchanged") && second.out.contains("0 new"),
        "{}",
        second.out
    );

    rig.write("home/notes.txt", b"all is better\n");
    rig.run(["backup", "home", "--tag", "good,daily"]).ends(0);
    let ids = rig.snapshots();
    assert_eq!(ids.len(), 3);
    looks_into_them(&rig, &ids);
    drops_and_proves_them(&rig, &ids);
}

/// The verbs that read, with three snapshots.
fn looks_into_them(rig: &Rig, ids: &[String]) {
    let diff = rig.run(["diff", &ids[0], &ids[2]]).ends(0);
    assert!(
        diff.out
            .lines()
            .any(|line| line.starts_with('M') && line.ends_with("home/notes.txt")),
        "{}",
        diff.out
    );
    let path = rig.path("home/notes.txt");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(
        rig.run(["dump", &ids[0], path]).ends(0).out,
        "all is well\n"
    );
    assert_eq!(
        rig.run(["dump", "latest", path]).ends(0).out,
        "all is better\n"
    );
    assert!(
        rig.run(["find", "notes.*"])
            .ends(0)
            .out
            .matches("notes.txt")
            .count()
            == 3
    );
    assert!(
        rig.run(["ls", "latest", "-l"])
            .ends(0)
            .out
            .contains("300000")
    );
    assert_eq!(rig.restored("latest", "home"), files(&rig.path("home")));
    assert!(
        rig.run(["snapshots", "--tag", "good"])
            .ends(0)
            .out
            .contains("1 snapshot\n")
    );
}

/// The verbs of upkeep, which leave the last of three.
fn drops_and_proves_them(rig: &Rig, ids: &[String]) {
    let dry = rig.run(["forget", "--keep-last", "1", "--dry-run"]).ends(0);
    assert!(
        dry.out.contains("would drop 2 snapshots") && dry.out.contains("reclaimable"),
        "{}",
        dry.out
    );
    let prune = ["forget", "--keep-last", "1", "--prune"];
    let sweep = |ran: Ran| ran.ends(0).last()["reclaimable_bytes"].as_u64();
    let expected = sweep(rig.run(prune.into_iter().chain(["--dry-run", "--json"])));
    let dry = rig.run(prune.into_iter().chain(["--dry-run"])).ends(0);
    assert!(
        dry.out.contains("worth rewriting") && dry.out.contains("would free"),
        "{}",
        dry.out
    );
    assert_eq!(rig.snapshots().len(), 3);
    assert!(expected > Some(0));
    assert_eq!(
        sweep(rig.run(prune.into_iter().chain(["--json"]))),
        expected
    );
    assert_eq!(rig.snapshots(), ids[2..]);
    rig.run(["prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
    rig.run(["check", "--read-data-subset", "1/2"]).ends(0);
    rig.run(["check", "--read-data-subset", "10%"]).ends(0);
    rig.run(["repair", "index"]).ends(0);
    rig.run(["repair"]).ends(0);
    rig.run(["stats"]).ends(0);
    assert!(
        rig.run(["stats", "--mode", "raw-data"])
            .ends(0)
            .out
            .contains("fill")
    );
    assert_eq!(rig.restored("latest", "home"), files(&rig.path("home")));
}

#[test]
fn keys_open_and_are_changed() {
    let rig = Rig::new();
    rig.write("second", b"another one\n");
    rig.write("third", b"a third\n");
    rig.run([
        "key",
        "add",
        "--new-password-file",
        "second",
        "--user",
        "bob",
        "--host",
        "far",
    ])
    .ends(0);
    let keys = rig.run(["key", "list", "--json"]).ends(0).last();
    assert_eq!(keys.as_array().expect("an array").len(), 2);
    let bob = keys
        .as_array()
        .expect("an array")
        .iter()
        .find(|key| key["userName"] == "bob")
        .expect("bob's");
    assert_eq!(
        (bob["hostName"].as_str(), bob["current"].as_bool()),
        (Some("far"), Some(false))
    );
    let with = |file: &str, args: &[&str]| rig.run([&["-p", file], args].concat());
    with("second", &["snapshots"]).ends(0);
    with("second", &["key", "passwd", "--new-password-file", "third"]).ends(0);
    with("second", &["snapshots"]).ends(12);
    with("third", &["snapshots"]).ends(0);
    rig.run(["snapshots"]).ends(0);
    let current = keys
        .as_array()
        .expect("an array")
        .iter()
        .find(|key| key["current"] == true)
        .expect("mine")["id"]
        .clone();
    let current = current.as_str().expect("an id");
    rig.run(["key", "remove", current]).ends(2);
    with("third", &["key", "remove", current]).ends(0);
    rig.run(["snapshots"]).ends(12);
    rig.run(["key", "remove", "-p", "third", "0123456789abcdef"])
        .ends(1);
}

#[test]
fn passwords_come_from_files_commands_and_the_environment() {
    let rig = Rig::new();
    rig.write("right", b"correct horse battery\nsecond line\n");
    rig.write("wrong", b"incorrect\n");
    let without = |args: &[&str]| -> crate::rig::Ran {
        rig.command(args)
            .env_remove("ONEFOLD_PASSWORD")
            .output()
            .expect("runs")
            .into()
    };
    without(&["snapshots"]).ends(12);
    without(&["snapshots", "-p", "right"]).ends(0);
    without(&["-p", "wrong", "snapshots"]).ends(12);
    without(&["snapshots", "--password-command", "head -n1 right"]).ends(0);
    without(&["snapshots", "--password-command", "exit 3"]).ends(12);
    without(&["snapshots", "--insecure-no-password"]).ends(12);
    // A password file that is named beats the environment.
    rig.run(["snapshots", "-p", "wrong"]).ends(12);
    rig.run(["snapshots", "-p", "missing"]).ends(12);
}

#[test]
fn tags_change_and_ids_with_them() {
    let rig = Rig::open();
    rig.write("a/f", b"x");
    let id = rig.backup("a");
    let changed = rig
        .run(["tag", "--add", "x,y", "--json", &id])
        .ends(0)
        .lines();
    assert_eq!(changed[0]["old_snapshot_id"], id.as_str());
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(list[0]["tags"], serde_json::json!(["x", "y"]));
    assert_eq!(list[0]["original"], id.as_str());
    rig.run(["tag", "--remove", "x", "latest"]).ends(0);
    rig.run(["tag", "--set", "z"]).ends(0);
    assert_eq!(
        rig.run(["snapshots", "--json"]).ends(0).last()[0]["tags"],
        serde_json::json!(["z"])
    );
    rig.run(["tag", "latest"]).ends(2);
    rig.run(["tag", "--set", "a", "--add", "b"]).ends(2);
}

#[test]
fn streams_become_files() {
    use std::io::Write;
    let rig = Rig::open();
    let mut child = rig.command(["backup", "--stdin", "--stdin-filename", "db.sql", "--json"]);
    let mut child = child
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&[b'x'; 100_000])
        .expect("written");
    id_of(&crate::rig::Ran::from(child.wait_with_output().expect("ends")).ends(0));
    assert_eq!(
        rig.run(["dump", "latest", "db.sql"]).ends(0).out.len(),
        100_000
    );
    rig.run(["backup", "--stdin-from-command", "--", "echo", "hello"])
        .ends(0);
    assert_eq!(rig.run(["dump", "latest", "stdin"]).ends(0).out, "hello\n");
    rig.run([
        "backup",
        "--stdin-from-command",
        "--",
        "sh",
        "-c",
        "echo half; exit 7",
    ])
    .ends(1);
    assert_eq!(rig.snapshots().len(), 2, "half an output is no backup");
}

#[test]
fn the_repository_is_not_backed_up_into_itself() {
    let rig = Rig::open();
    rig.write("f", b"x");
    let ran = rig.run(["backup", "."]).ends(0);
    assert!(
        ran.out.contains("the repository itself is left out"),
        "{}",
        ran.out
    );
    assert!(
        !rig.run(["ls", "latest"])
            .ends(0)
            .out
            .contains("/repo/config")
    );
}

#[test]
fn excludes_leave_out_what_they_say() {
    let rig = Rig::open();
    for name in [
        "s/keep.txt",
        "s/a.o",
        "s/sub/b.o",
        "s/sub/keep.o.txt",
        "s/cache/x",
        "s/.skip/y",
        "s/big",
    ] {
        rig.write(name, b"0123456789");
    }
    rig.write(
        "s/cache/CACHEDIR.TAG",
        b"Signature: 8a477f597d28d172789f06886806bc55\n",
    );
    rig.write("s/.skip/.nobackup", b"");
    rig.write("s/big", &[1; 5000]);
    rig.write("list", b"# comment\nsub/keep*\n");
    rig.run([
        "backup",
        "s",
        "-e",
        "*.O",
        "--iexclude",
        "*.O",
        "--exclude-file",
        "list",
        "--exclude-caches",
        "--exclude-if-present",
        ".nobackup",
        "--exclude-larger-than",
        "4K",
    ])
    .ends(0);
    let listed = rig.run(["ls", "latest", "-q"]).ends(0).out;
    for (name, kept) in [
        ("keep.txt", true),
        ("a.o", false),
        ("b.o", false),
        ("keep.o.txt", false),
        ("cache/x", false),
        (".skip/y", false),
        ("s/big", false),
    ] {
        assert_eq!(
            listed.lines().any(|line| line.ends_with(name)),
            kept,
            "{name}\n{listed}"
        );
    }
}

#[test]
fn restore_goes_where_it_is_told() {
    let rig = Rig::open();
    rig.write("s/a", b"new");
    rig.write("s/sub/b", b"b");
    rig.backup("s");
    let spec = format!("latest:{}", rig.path("s").display());
    rig.write("t/a", b"old, and longer");
    rig.write("t/extra", b"e");
    rig.run(["restore", &spec, "--target", "t", "--overwrite", "never"])
        .ends(0);
    assert_eq!(
        std::fs::read(rig.path("t/a")).expect("a file"),
        b"old, and longer"
    );
    rig.run(["restore", &spec, "--target", "dry", "--dry-run"])
        .ends(0);
    assert!(!rig.path("dry").exists());
    rig.run(["restore", &spec, "--target", "t"]).ends(0);
    assert_eq!(std::fs::read(rig.path("t/a")).expect("a file"), b"new");
    assert!(rig.path("t/extra").exists());
    rig.run(["restore", &spec, "--target", "t", "--delete"])
        .ends(0);
    assert_eq!(files(&rig.path("t")), files(&rig.path("s")));
    rig.run(["restore", &spec, "--target", "only", "--include", "b"])
        .ends(0);
    assert_eq!(files(&rig.path("only")).len(), 1);
    rig.run(["restore", "latest:/no/such", "--target", "u"])
        .ends(1);
}

#[test]
fn completions_and_pages_are_written() {
    let rig = Rig::empty();
    for shell in ["bash", "zsh", "fish"] {
        let text = rig.run(["completions", shell]).ends(0).out;
        for word in [
            "onefold",
            "exclude-caches",
            "keep-within",
            "passwd",
            "if-newer",
        ] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        // Flags without effect are not proposed.
        for word in ["tls-client-cert", "no-extra-verify"] {
            assert!(!text.contains(word), "{shell}: {word}");
        }
        // In zsh's words: behind a path, options are proposed no more.
        assert!(!text.contains("\n'*::"), "{shell}");
    }
    rig.run(["man", "pages"]).ends(0);
    assert!(rig.path("pages/onefold.1").exists());
    let page = std::fs::read_to_string(rig.path("pages/onefold-restore.1")).expect("a page");
    let usage = "\\fBonefold restore\\fR [OPTIONS] \\-\\-target <FOLDER> <SNAPSHOT[:PATH]>";
    assert!(page.contains(usage), "{page}");
}

#[test]
fn a_dry_run_says_what_would_be_stored_and_stores_nothing() {
    let rig = Rig::open();
    rig.write("s/a", &crate::rig::Random(3).bytes(3_000_000));
    rig.write("s/same", &std::fs::read(rig.path("s/a")).expect("a file"));
    let before = files(&rig.repo());
    let dry = rig
        .run(["backup", "s", "--dry-run", "--json"])
        .ends(0)
        .last();
    let text = rig.run(["backup", "s", "-n"]).ends(0).out;
    assert!(text.contains("nothing was stored"), "{text}");
    let left = |files: crate::rig::Files| -> Vec<_> {
        let is_kept = |name: &std::path::PathBuf| !name.starts_with("index");
        files
            .into_iter()
            .filter(|(name, _)| is_kept(name))
            .collect()
    };
    assert_eq!(left(files(&rig.repo())), left(before));
    assert!(rig.snapshots().is_empty());
    let real = rig.run(["backup", "s", "--json"]).ends(0).last();
    assert_eq!(dry["dry_run"], true);
    assert!(dry["snapshot_id"].is_null() && real["dry_run"].is_null());
    for field in ["files_new", "data_blobs", "total_bytes_processed"] {
        assert_eq!(dry[field], real[field], "{field}");
    }
    // A folder above, such as /tmp, may have got another time in between, which takes some bytes more or less.
    for (field, most) in [("data_added", 16), ("data_added_packed", 100)] {
        let [dry, real] = [&dry, &real].map(|one| one[field].as_u64().expect("a number"));
        assert!(dry.abs_diff(real) < most, "{field}: {dry}, {real}");
    }
    // Afterwards nothing is new.
    let again = rig
        .run(["backup", "s", "-n", "-f", "--json"])
        .ends(0)
        .last();
    assert_eq!(again["data_blobs"], 0);
    Rig::empty().run(["backup", ".", "--init", "-n"]).ends(10);
}

#[test]
fn a_command_that_fails_makes_no_snapshot_at_any_moment() {
    let rig = Rig::open();
    let ran = rig
        .run([
            "backup",
            "--stdin-from-command",
            "--",
            "sh",
            "-c",
            "echo half; exit 7",
        ])
        .ends(1);
    assert!(ran.err.contains("exit status: 7"), "{}", ran.err);
    rig.run(["backup", "--stdin-from-command", "--", "no-such-program"])
        .ends(1);
    rig.run(["backup", "--stdin-from-command"]).ends(2);
    rig.run([
        "backup",
        "--stdin-from-command",
        "--",
        "sh",
        "-c",
        "kill -9 $$",
    ])
    .ends(1);
    assert!(rig.snapshots().is_empty());
    // A long output of a command that ends well.
    rig.run([
        "backup",
        "--stdin-from-command",
        "--stdin-filename",
        "zeros",
        "--",
        "head",
        "-c",
        "5000000",
        "/dev/zero",
    ])
    .ends(0);
    assert_eq!(
        rig.run(["dump", "latest", "zeros"]).ends(0).out.len(),
        5_000_000
    );
}
