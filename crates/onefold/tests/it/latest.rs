//! `latest` beside a snapshot that cannot be read: an older one must not pass for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::rig::{Ran, Rig};

/// Whom every Linux has, and who owns nothing.
const NOBODY: u32 = 65_534;

fn root(rig: &Rig, id: &str) -> PathBuf {
    rig.repo().join("snapshots").join(id)
}

#[test]
fn a_damaged_snapshot_could_be_the_latest() {
    let rig = Rig::open();
    rig.write("s/a", b"one");
    let first = rig.backup("s");
    rig.write("s/a", b"two");
    let second = rig.backup("s");
    let mut bytes = fs::read(root(&rig, &second)).expect("a root");
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(root(&rig, &second), bytes).expect("ours");
    for args in [
        &["restore", "latest", "--target", "back"][..],
        &["ls", "latest"],
        &["ls", "latest", "--host", "another"],
        &["cat", "snapshot", "latest"],
    ] {
        let ran = rig.run(args).ends(13);
        assert!(ran.err.contains(&second), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("in place of \"latest\""), "{}", ran.err);
    }
    assert!(!rig.path("back").exists());
    rig.run(["restore", &first, "--target", "back"]).ends(0);
    let listed = rig.run(["snapshots"]).ends(13);
    assert!(listed.out.contains(&first[..8]), "{}", listed.out);
    assert!(listed.err.contains(&second[..8]), "{}", listed.err);
    let listed = rig.run(["snapshots", "--json"]).ends(13);
    assert_eq!(listed.last()[0]["id"], first.as_str());
    rig.run(["snapshots", &first]).ends(0);
    // A parent that cannot be read is none.
    let third = rig.run(["backup", "s", "--json"]).ends(0);
    assert_eq!(third.last()["total_files_processed"], 1);
}

/// root may read everything, so root runs the program as somebody else.
#[test]
fn a_snapshot_of_somebody_else_could_be_the_latest() {
    let rig = Rig::empty();
    rig.write("s/a", b"one");
    fs::set_permissions(rig.dir.path(), fs::Permissions::from_mode(0o777)).expect("set a mode");
    let as_nobody = |args: &[&str]| -> Ran {
        let mut command = rig.command(args);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().expect("runs").into()
    };
    as_nobody(&["backup", "--init", "--encryption", "none", "s"]).ends(0);
    let ran = as_nobody(&["backup", "s", "--json"]).ends(0);
    let second = crate::rig::id_of(&ran);
    let mode = fs::Permissions::from_mode(0o000);
    fs::set_permissions(root(&rig, &second), mode).expect("set a mode");
    let ran = as_nobody(&["ls", "latest"]).ends(1);
    assert!(ran.err.contains("Permission denied"), "{}", ran.err);
    let ran = as_nobody(&["snapshots"]).ends(1);
    assert!(ran.out.contains("1 snapshot"), "{}", ran.out);
    as_nobody(&["backup", "s"]).ends(0);
}

#[test]
fn a_list_that_filters_leave_empty_names_them() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for host in ["a", "b"] {
        rig.run(["backup", "s", "--host", host, "--tag", "t"])
            .ends(0);
    }
    let list = |variable: &str, args: &[&str]| {
        let mut command = rig.command([&["snapshots"], args].concat());
        let output = command.env("ONEFOLD_HOST", variable).output();
        crate::rig::Ran::from(output.expect("runs")).ends(0).out
    };
    for (variable, args, last) in [
        (
            "",
            &["--host", "typo"][..],
            "0 snapshots of 2: none has host typo\n",
        ),
        (
            "c",
            &[],
            "0 snapshots of 2: none has host c (of ONEFOLD_HOST)\n",
        ),
        (
            "c",
            &["-H", "a", "--tag", "u,v", "--path", "/p"],
            "0 snapshots of 2: none has host a with tag u,v with path /p\n",
        ),
        (
            "",
            &["--host", "a", "--tag", ""],
            "0 snapshots of 2: none has host a with tag ''\n",
        ),
        ("", &["--host", "a"], "\n1 snapshot\n"),
    ] {
        let said = list(variable, args);
        assert!(said.ends_with(last), "{args:?}: {said}");
    }
    // Other verbs that take many say it beside their results.
    for verb in [
        &["forget", "--keep-last", "1"][..],
        &["tag", "--add", "new"],
        &["stats"],
        &["find", "a"],
    ] {
        let ran = rig.run([verb, &["--host", "typo"]].concat()).ends(0);
        let told = "0 snapshots of 2: none has host typo";
        assert!(ran.err.contains(told), "{verb:?}: {}", ran.err);
    }
}
