//! Every exit code, from the situation that it stands for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use crate::rig::{Ran, Rig, program};

/// Whom every Linux has, and who owns nothing.
const NOBODY: u32 = 65_534;

#[test]
fn usage_is_2() {
    let rig = Rig::open();
    for args in [
        &["frobnicate"][..],
        &["backup"],
        &["backup", "--no-such-flag", "."],
        &["ls"],
        &["ls", "not an id"],
        &["restore", "latest"],
        &["forget"],
        &["forget", "--keep-last", "some"],
        &["forget", "--keep-within", "7"],
        &["check", "--read-data-subset", "3/2"],
        &["backup", ".", "--time", "yesterday"],
        &["backup", ".", "--exclude", "[a"],
        &["backup", ".", "--compression", "lots"],
        &["find", ""],
        &["find", "."],
        &["find", "/"],
        &["find", "./"],
        &["find", "a", "/."],
        &["find", "--blob", "00", "--oldest", "2026-01-01"],
        &["find", "--tree", "00", "--newest", "2026-01-01"],
        &["cat", "snapshot", "latest:/nope"],
        &["init", "-r", "new", "--chunk-size", "8X"],
        &["init", "-r", "new", "--chunker", "nosuch"],
        &["init", "-r", "new", "--chunker", "ae", "--chunk-size", "1m"],
        &["init", "-r", "new", "--encryption", "rot13"],
        &["backup", ".", "-r", "new", "--init", "--time", "yesterday"],
        &["backup", ".", "-r", "new", "--init", "--parent", "no id"],
        &["-r", "s3:bucket", "snapshots"],
        &["-q", "-v", "snapshots"],
    ] {
        let ran = rig.run(args).ends(2);
        assert!(!ran.err.is_empty(), "{args:?} must say why");
    }
    assert!(!rig.path("new").exists());
    let ran: crate::rig::Ran = program().arg("snapshots").output().expect("runs").into();
    assert!(ran.ends(2).err.contains("--repo"));
}

#[test]
fn a_source_that_cannot_be_had_is_1_and_makes_no_repository() {
    let rig = Rig::open();
    let init = |source: &str| {
        let args = ["backup", source, "-r", "new", "--init", "--encryption"];
        let mut command = rig.command([&args[..], &["none"]].concat());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY);
        }
        let ran = Ran::from(command.output().expect("runs")).ends(1);
        assert!(!rig.path("new").exists());
        ran.err
    };
    assert!(init("nowhere").contains("nowhere does not exist"));
    rig.write("shut/in/file", b"x");
    fs::set_permissions(rig.path("shut"), fs::Permissions::from_mode(0o0)).expect("chmod");
    let told = init("shut/in/file");
    fs::set_permissions(rig.path("shut"), fs::Permissions::from_mode(0o700)).expect("chmod");
    assert!(told.contains("shut/in/file: Permission denied"), "{told}");
}

#[test]
fn an_empty_exclude_leaves_nothing_out() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    for empty in ["", "!", "/", ".", "./", "/.", "a/.."] {
        let ran = rig
            .run(["backup", "s", "--json", "--exclude", empty])
            .ends(0);
        assert_eq!(ran.last()["total_files_processed"], 1, "{empty:?}");
    }
    rig.run(["restore", "latest", "--target", "back", "--exclude", ""])
        .ends(0);
    assert_eq!(crate::rig::files(&rig.path("back")).len(), 1);
    rig.run(["restore", "latest", "--target", "back", "--include", ""])
        .ends(2);
}

#[test]
fn a_listener_that_leaves_does_not_hide_how_a_restore_ended() {
    let rig = Rig::open();
    rig.write("s/f", &crate::rig::Random(7).bytes(100_000));
    rig.backup("s");
    rig.write("t/f/in-the-way", b"x");
    let spec = format!("latest:{}", rig.path("s").display());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = rig.command(["restore", &spec, "--target", "t", "--overwrite", "never"]);
    let first = command.stdout(writer.try_clone().expect("a pipe")).output();
    assert_eq!(
        first.expect("runs").status.code(),
        Some(0),
        "a folder is left as it is"
    );
    for container in crate::rig::files(&rig.repo().join("containers")).keys() {
        fs::write(rig.repo().join("containers").join(container), b"").expect("ours");
    }
    let mut command = rig.command(["check"]);
    let ran = command.stdout(writer).output().expect("runs");
    assert_eq!(ran.status.code(), Some(13));
}

#[test]
fn failed_is_1() {
    let rig = Rig::open();
    rig.run(["init"]).ends(1);
    rig.run(["ls", "latest"]).ends(1);
    rig.run(["ls", "abcdef"]).ends(1);
    rig.run(["backup", "no/such/folder"]).ends(1);
    rig.write("f", b"x");
    rig.backup("f");
    rig.run(["dump", "latest", "/no/such"]).ends(1);
    rig.run(["ls", "latest", "/no/such"]).ends(1);
    rig.run(["ls", "latest:/no/such"]).ends(1);
}

#[test]
fn some_sources_unreadable_is_3() {
    let rig = Rig::open();
    rig.write("s/good", b"x");
    let ran = rig.run(["backup", "s", "missing"]).ends(3);
    assert!(ran.err.contains("missing"), "{}", ran.err);
    assert_eq!(rig.snapshots().len(), 1, "the rest is in a snapshot");
    let told = "\n1 source is not there or cannot be looked at, and is not in the snapshot\n";
    let is_right = |err: &str| err.contains(told) && !err.contains("`ls` shows");
    assert!(is_right(&ran.err), "{}", ran.err);
    let ran = rig
        .run(["backup", "s", "missing", "s/none", "repo"])
        .ends(3);
    for told in [
        "2 sources are not there or cannot be looked at, and are not in the snapshot",
        "1 source is of the repository itself, and is not in the snapshot",
    ] {
        assert!(ran.err.contains(told), "{}", ran.err);
    }
    assert!(!ran.err.contains("`ls` shows"), "{}", ran.err);
}

/// A snapshot of nothing would be the latest, and what the next backup is compared with.
#[test]
fn the_repository_alone_is_no_source_and_1() {
    let rig = Rig::open();
    rig.write("s/good", b"x");
    std::os::unix::fs::symlink("repo", rig.path("link")).expect("link");
    for args in [
        &["repo"][..],
        &["link/"],
        &["repo/containers", "repo/config", "nowhere"],
        &["repo", "--dry-run"],
    ] {
        let ran = rig.run([&["backup"], args].concat()).ends(1);
        let told = "a repository is not backed up into itself";
        assert!(ran.err.contains(told), "{args:?}: {}", ran.err);
    }
    assert_eq!(rig.snapshots(), [""; 0]);
    // A folder that shall become one, neither.
    fs::create_dir(rig.path("new")).expect("make");
    rig.run(["backup", "-r", "new", "--init", "new"]).ends(1);
    assert!(!rig.path("new/config").exists());
    // A refused source is none of the snapshot's paths: the snapshot stays of the same series.
    rig.backup("s");
    rig.run(["backup", "s", "repo"]).ends(3);
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(list[0]["paths"], list[1]["paths"]);
    assert_eq!(list[0]["id"], list[1]["parent"]);
    // Nothing is in these, but they are there.
    fs::create_dir(rig.path("empty")).expect("make");
    rig.run(["backup", "empty"]).ends(0);
    rig.run(["backup", "s", "--exclude", "*"]).ends(0);
    assert_eq!(rig.snapshots().len(), 4);
}

#[test]
fn a_missing_source_inside_another_is_3_too() {
    let rig = Rig::open();
    rig.write("s/good", b"x");
    let ran = rig.run(["backup", "s", "s/typo"]).ends(3);
    assert!(ran.err.contains("typo"), "{}", ran.err);
}

#[test]
fn a_missing_source_is_none_of_the_paths_of_a_snapshot() {
    let rig = Rig::open();
    rig.write("s/good", b"x");
    rig.backup("s");
    let ran = rig.run(["backup", "s", "typo", "--json"]).ends(3);
    assert_eq!(ran.last()["files_unmodified"], 1, "{}", ran.out);
    assert!(ran.err.contains("typo"), "{}", ran.err);
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    for snapshot in list.as_array().expect("an array") {
        let source = rig.path("s").display().to_string();
        assert_eq!(snapshot["paths"], serde_json::json!([source]));
    }
    let ran = rig.run(["backup", "s", "--json"]).ends(0);
    assert_eq!(ran.last()["files_unmodified"], 1, "the parent was found");
}

/// root may read everything, so root runs the program as somebody else.
#[test]
fn a_file_without_read_permission_is_3() {
    let rig = Rig::empty();
    rig.write("s/good", b"x");
    rig.write("s/secret", b"x");
    let set_mode = |name: &str, mode| {
        fs::set_permissions(rig.path(name), fs::Permissions::from_mode(mode)).expect("set a mode");
    };
    set_mode("s/secret", 0o000);
    set_mode("", 0o777);
    let as_nobody = |args: &[&str]| -> crate::rig::Ran {
        let mut command = rig.command(args);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().expect("runs").into()
    };
    let ran = as_nobody(&["backup", "--init", "--encryption", "none", "s"]).ends(3);
    assert!(
        ran.err.contains("secret") && ran.err.contains("Permission denied"),
        "{}",
        ran.err
    );
    let listed = as_nobody(&["ls", "--long", "latest"]).ends(0).out;
    let marked = |name: &str| {
        let line = listed.lines().find(|line| line.contains(name));
        line.is_some_and(|line| line.ends_with("(could not be read)"))
    };
    assert!(marked("s/secret") && !marked("s/good"), "{listed}");
}

#[test]
fn no_repository_is_10() {
    let rig = Rig::empty();
    for args in [
        &["snapshots"][..],
        &["backup", "."],
        &["check"],
        &["forget", "--keep-last", "1"],
        &["key", "list"],
        &["repair"],
    ] {
        let ran = rig.run(args).ends(10);
        assert!(
            ran.err.contains("no repository") && ran.err.contains("init"),
            "{}",
            ran.err
        );
    }
    fs::create_dir(rig.repo()).expect("an empty folder is none");
    rig.run(["snapshots"]).ends(10);
}

#[test]
fn locked_is_11() {
    let rig = Rig::open();
    fs::create_dir_all(rig.repo().join("locks")).expect("a folder");
    let lock = fs::File::create(rig.repo().join("locks/sweep")).expect("a lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let ran = rig.run(["prune"]).ends(11);
    assert!(ran.err.contains("locked"), "{}", ran.err);
    // A verb that writes nothing waits for nobody.
    rig.run(["prune", "--dry-run"]).ends(0);
    rig.write("s/a", b"a");
    let id = rig.backup("s");
    let ran = rig.run(["forget", &id]).ends(0);
    assert!(ran.out.contains("dropped 1 snapshot"), "{}", ran.out);
    assert!(ran.out.contains("can be reclaimed"), "{}", ran.out);
    assert!(rig.snapshots().is_empty());
    rig.run(["forget", "--keep-last", "1", "--prune"]).ends(11);
    // Said to the kernel: a program that another test is just starting has a copy of the descriptor, and closing ours
    // would not free it.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).expect("freed");
    rig.run(["prune"]).ends(0);
}

/// Its index may lie on another disk. Where that is not there, all can be read, and nothing is called damaged.
#[test]
fn an_index_that_leads_nowhere_is_no_damage() {
    let rig = Rig::open();
    rig.write("s/a", b"a");
    let id = rig.backup("s");
    fs::remove_dir_all(rig.repo().join("index")).expect("removed");
    std::os::unix::fs::symlink(rig.path("unmounted"), rig.repo().join("index")).expect("a link");
    rig.run(["check", "--read-data"]).ends(0);
    assert_eq!(rig.restored(&id, "s"), crate::rig::files(&rig.path("s")));
    let ran = rig.run(["backup", "s"]).ends(1);
    assert!(ran.err.contains("index"), "{}", ran.err);
    fs::create_dir(rig.path("unmounted")).expect("mounted again");
    rig.run(["backup", "s"]).ends(0);
}

#[test]
fn wrong_password_is_12() {
    let rig = Rig::new();
    let ran: crate::rig::Ran = rig
        .command(["snapshots"])
        .env("ONEFOLD_PASSWORD", "wrong")
        .output()
        .expect("runs")
        .into();
    assert!(ran.ends(12).err.contains("wrong password"));
    let ran: crate::rig::Ran = rig
        .command(["init", "-r", "other"])
        .env("ONEFOLD_PASSWORD", "")
        .output()
        .expect("runs")
        .into();
    ran.ends(12);
    assert!(!rig.path("other").exists());
}

#[test]
fn damage_is_13_and_names_the_files() {
    let rig = Rig::open();
    rig.write("s/hurt-me", &crate::rig::Random(1).bytes(200_000));
    rig.write("s/empty", b"");
    rig.backup("s");
    let containers: Vec<_> = walk(&rig.repo().join("containers"));
    let data = containers
        .iter()
        .max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()))
        .expect("one");
    let mut bytes = fs::read(data).expect("a container");
    bytes[100_000] ^= 1;
    fs::write(data, bytes).expect("written");
    rig.run(["check"]).ends(0);
    let ran = rig.run(["check", "--read-data"]).ends(13);
    assert!(
        ran.out.contains("hurt-me") && !ran.out.contains("/empty"),
        "{}\n{}",
        ran.out,
        ran.err
    );
    let ran = rig.run(["restore", "latest", "--target", "t"]).ends(13);
    let restored = crate::rig::files(&rig.path("t"));
    assert!(
        restored.keys().any(|name| name.ends_with("s/empty")),
        "the rest goes on"
    );
    assert!(ran.err.contains("hurt-me"), "{}", ran.err);
    let ran = rig.run(["repair"]).ends(13);
    assert!(ran.out.contains("hurt-me"), "{}", ran.out);
    // The same files backed up again heal what was lost.
    rig.run(["backup", "s", "--force"]).ends(0);
    let again = rig.restored("latest", "s");
    assert_eq!(again, crate::rig::files(&rig.path("s")));
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    crate::rig::files(folder)
        .keys()
        .map(|name| folder.join(name))
        .collect()
}

#[test]
fn help_and_version_are_0() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["backup", "--help"],
        &["help", "forget"],
        &["key", "--help"],
    ] {
        let ran: crate::rig::Ran = program().args(args).output().expect("runs").into();
        assert!(!ran.ends(0).out.is_empty());
    }
}

/// Nobody may take for encrypted what is not.
#[test]
fn an_encryption_that_the_repository_does_not_have_is_refused() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for args in [
        &["backup", "s", "--encryption", "aes256gcm"][..],
        &["backup", "s", "--init", "--encryption", "aes256gcm", "-q"],
    ] {
        let ran = rig.run(args).ends(2);
        assert!(ran.err.contains("made with none"), "{}", ran.err);
    }
    assert!(rig.snapshots().is_empty());
    rig.run(["backup", "s", "--encryption", "none"]).ends(0);
    let told = rig.run(["backup", "s", "--chunker", "fixed"]).ends(0).err;
    assert!(told.contains("--chunker fixed changes nothing"), "{told}");
    let told = rig
        .run(["backup", "s", "--chunker", "sieve-adaptive"])
        .ends(0)
        .err;
    assert!(!told.contains("changes nothing"), "{told}");
}

/// Where `data` stands beside it, it is looked at for whether it is another program's.
#[test]
fn a_pipe_in_the_place_of_the_configuration_is_not_waited_for() {
    let rig = Rig::empty();
    fs::create_dir_all(rig.repo().join("data")).expect("folders");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    for name in ["config", "pipe"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, rig.repo().join(name), mode).expect("a pipe");
    }
    let ran = rig.run(["snapshots"]);
    assert!(ran.code.is_some_and(|code| code != 0), "{}", ran.out);
    fs::remove_file(rig.repo().join("config")).expect("removed");
    std::os::unix::fs::symlink("pipe", rig.repo().join("config")).expect("a link");
    let ran = rig.run(["snapshots"]);
    assert!(ran.code.is_some_and(|code| code != 0), "{}", ran.out);
}
