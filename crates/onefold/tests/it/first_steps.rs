//! Mistakes of somebody's first hour: each is reported before it makes files that have to be found and removed later.

use std::fs;

use crate::rig::{Ran, Rig};

#[test]
fn no_repository_is_made_inside_of_another() {
    let rig = Rig::open();
    std::os::unix::fs::symlink("repo/containers", rig.path("link")).expect("link");
    rig.write("s/f", b"x");
    for place in ["repo/second", "repo/a/b", "link/second", "./repo/../repo/x"] {
        for verb in [&["init"][..], &["backup", "s", "--init"]] {
            let args = [verb, &["-r", place, "--encryption", "none"]].concat();
            let ran = rig.run(&args).ends(1);
            assert!(
                ran.err.contains("is inside of the repository"),
                "{}",
                ran.err
            );
        }
    }
    assert!(!rig.path("repo/second").exists() && !rig.path("repo/a").exists());
    // Beside it there is room.
    rig.run(["init", "-r", "second/a", "--encryption", "none"])
        .ends(0);
}

#[test]
fn a_tilde_behind_an_option_makes_no_folder_of_that_name() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    rig.backup("s");
    for args in [
        &["restore", "latest", "--target=~/back"][..],
        &["restore", "latest", "-t", "~"],
        &["dump", "latest", "--target=~/back.tar"],
        &["estimate", "s", "--sizes", "4k", "--csv=~/figures"],
        &["backup", "s", "--exclude-file=~/ex"],
        &["snapshots", "--password-file=~/pw"],
        &["key", "add", "--new-password-file=~/pw"],
    ] {
        let ran = rig.run(args).ends(2);
        assert!(ran.err.contains("$HOME"), "{args:?}: {}", ran.err);
        assert!(
            ran.err.contains("is not in your home folder"),
            "{args:?}: {}",
            ran.err
        );
    }
    assert!(!rig.path("~").exists());
    rig.run(["restore", "latest", "--target=./~/back"]).ends(0);
    assert!(rig.path("~/back").exists());
}

/// Else its owner would believe that the backup is on another machine.
#[test]
fn a_remote_address_makes_no_local_folder_whatever_names_the_repository() {
    let rig = Rig::empty();
    rig.write("s/f", b"x");
    let before = || fs::read_dir(rig.path(".")).expect("a folder").count();
    let there = before();
    for place in [
        "user@nas:/srv/repo",
        "ssh://nas/repo",
        "nas:repo",
        "file:///srv/repo",
        "smb://nas/share",
        "sftp:user@nas:/srv",
    ] {
        for args in [&["init"][..], &["backup", "s", "--init"], &["snapshots"]] {
            let ran = rig.run([args, &["-r", place]].concat()).ends(2);
            let instead = format!("./{place}");
            assert!(ran.err.contains(&instead), "{args:?}: {}", ran.err);
            let ran = rig.command(args).env("ONEFOLD_REPOSITORY", place).output();
            Ran::from(ran.expect("runs")).ends(2);
        }
        assert_eq!(before(), there, "{place}");
    }
    fs::write(rig.path("where"), "nas:repo\n").expect("write");
    rig.run(["init", "--repository-file", "where"]).ends(2);
    let mut by_variable = rig.command(["init"]);
    by_variable.env_remove("ONEFOLD_REPOSITORY");
    by_variable.env("ONEFOLD_REPOSITORY_FILE", "where");
    Ran::from(by_variable.output().expect("runs")).ends(2);
    assert_eq!(before(), there + 1);
    // A folder of such a name can be had.
    rig.run(["init", "-r", "./nas:repo", "--encryption", "none"])
        .ends(0);
    assert!(rig.path("nas:repo/config").exists());
}

#[test]
fn what_is_found_nowhere_is_said_to_be_so() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    rig.backup("s");
    rig.backup("s");
    let ran = rig.run(["find", "nope"]).ends(0);
    assert_eq!(
        (&*ran.out, &*ran.err),
        ("", "nothing is found in 2 snapshots\n")
    );
    let ran = rig.run(["find", "nope", "--json"]).ends(0);
    assert_eq!((ran.out.trim(), &*ran.err), ("[]", ""));
    for args in [&["find", "nope", "-q"][..], &["find", "f"]] {
        assert_eq!(rig.run(args).ends(0).err, "", "{args:?}");
    }
}

#[test]
fn a_target_that_is_a_file_is_said_to_be_one() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    rig.backup("s");
    let ran = rig.run(["restore", "latest", "--target", "s/f"]).ends(1);
    let told = "s/f: it is there, and is no folder";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert_eq!(fs::read(rig.path("s/f")).expect("there"), b"x");
}

#[test]
fn a_wrong_password_is_told_with_where_it_may_come_from() {
    let rig = Rig::new();
    let mut command = rig.command(["snapshots"]);
    let ran: Ran = command
        .env("ONEFOLD_PASSWORD", "wrong")
        .output()
        .expect("runs")
        .into();
    let ran = ran.ends(12);
    for told in [
        "the only key slot does not open",
        "ONEFOLD_PASSWORD",
        "--password-file",
    ] {
        assert!(ran.err.contains(told), "{}", ran.err);
    }
}

#[test]
fn a_source_at_home_that_no_shell_has_written_out_is_told() {
    let rig = Rig::open();
    rig.write("list", b"~/docs\n$HOME/docs\n");
    rig.write("s/f", b"x");
    rig.write("~/real/f", b"x");
    let run = |args: &[&str], code| {
        let mut command = rig.command(args);
        let ran = command.env("HOME", "/h/ann").output().expect("runs");
        Ran::from(ran).ends(code).err
    };
    for (args, code) in [
        (&["backup", "~/docs"][..], 1),
        (&["backup", "s", "--files-from", "list"], 0),
        (&["backup", "s", "--files-from-verbatim", "list"], 3),
    ] {
        let said = run(args, code);
        let told = "in place of the ~: write /h/ann/docs";
        assert!(said.contains(told), "{args:?}: {said}");
        let is_list = args.len() > 2;
        assert_eq!(
            said.contains("the $HOME: write /h/ann/docs"),
            is_list,
            "{said}"
        );
    }
    assert_eq!(run(&["backup", "~/real"], 0), "");
}

#[test]
fn what_a_variable_asks_for_is_not_said_to_be_an_option() {
    let rig = Rig::new();
    let mut command = rig.command(["snapshots"]);
    command.env("ONEFOLD_ENCRYPTION", "none");
    let ran: Ran = command.output().expect("runs").into();
    let said = ran.ends(2).err;
    assert!(
        said.contains("ONEFOLD_ENCRYPTION=none is asked for"),
        "{said}"
    );
    let said = rig.run(["snapshots", "--encryption", "none"]).ends(2).err;
    assert!(said.contains("--encryption none is asked for"), "{said}");
}

#[test]
fn a_conflict_names_what_is_typed() {
    let rig = Rig::open();
    let said = rig
        .run(["forget", "latest", "--keep-last", "3"])
        .ends(2)
        .err;
    assert!(
        said.contains("--keep-last") && !said.contains("--keep-daily"),
        "{said}"
    );
}

/// Taken for ours, they would print our help, make a dry run, or name a file of passwords.
#[test]
fn options_of_a_command_are_not_taken_for_options_of_the_backup() {
    let rig = Rig::open();
    for option in ["-h", "--version", "-n", "-v", "--host=x", "-px"] {
        for json in [&[][..], &["--json"]] {
            let args = ["backup", "--stdin-from-command", "echo", option, "db"];
            let ran = rig.run([json, &args].concat()).ends(2);
            let told = format!("--stdin-from-command -- COMMAND {option} …");
            assert!(ran.err.contains(&told), "{option}: {}", ran.err);
            assert_eq!(ran.out, "", "{option}");
        }
    }
    assert_eq!(rig.snapshots(), [""; 0]);
    for args in [
        &["--", "echo", "-n", "db"][..],
        &["--tag", "x", "--", "echo", "--tag", "x"],
        &["--stdin-filename", "db", "echo", "db"],
        &["cat", "/etc/hostname"],
        // A word that stands in front, too.
        &["--tag", "echo", "--", "echo", "-v", "backup"],
        &["--tag", "echo", "--host", "h", "echo", "db"],
    ] {
        let begin = ["-v", "--ram", "64M", "backup", "--stdin-from-command"];
        rig.run([&begin[..], args].concat()).ends(0);
    }
    let help = rig
        .run(["backup", "--stdin-from-command", "--help"])
        .ends(0);
    assert!(help.out.contains("Usage: onefold backup"), "{}", help.out);
}

#[test]
fn the_programs_name_alone_prints_what_there_is() {
    let rig = Rig::open();
    for args in [&[][..], &["key"], &["cat"]] {
        // Whatever variables say.
        let ran = rig.run(args).ends(2);
        assert!(ran.err.contains("Commands:"), "{args:?}: {}", ran.err);
    }
}
