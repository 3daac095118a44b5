//! The environment beside the command line: what is typed counts more, what is set to nothing does not count, and
//! nothing is said in two ways.

use crate::rig::{PASSWORD, Ran, Rig};

/// A run with these variables; the rig's own, where they are not among them.
fn with(rig: &Rig, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = rig.command(args);
    command.envs(variables.iter().copied());
    command.output().expect("runs").into()
}

#[test]
fn a_typed_place_beats_the_environments() {
    let rig = Rig::open();
    rig.write("s/a", b"a");
    rig.backup("s");
    rig.run(["init", "--encryption", "none", "-r", "other"])
        .ends(0);
    rig.write("other-is-it", b"other\n");
    rig.write("repo-is-it", b"repo\n");
    let count = |ran: Ran| ran.ends(0).last().as_array().map(Vec::len);
    let file = "--repository-file";
    for args in [
        ["snapshots", "--json", file, "other-is-it"],
        [file, "other-is-it", "snapshots", "--json"],
    ] {
        assert_eq!(count(rig.run(args)), Some(0), "{args:?}");
    }
    let no_place = ("ONEFOLD_REPOSITORY", "");
    let by_file = ("ONEFOLD_REPOSITORY_FILE", "repo-is-it");
    let list = &["snapshots", "--json"];
    assert_eq!(count(with(&rig, &[no_place, by_file], list)), Some(1));
    let typed = &["snapshots", "--json", "-r", "other", "--encryption", "none"];
    assert_eq!(count(with(&rig, &[no_place, by_file], typed)), Some(0));
    for (variables, args, named) in [
        (&[by_file][..], &["snapshots"][..], "ONEFOLD_REPOSITORY"),
        (
            &[],
            &["snapshots", "-r", "repo", file, "other-is-it"],
            "--repo and --repository-file both name the repository",
        ),
        (&[no_place], &["snapshots"], "no repository is named"),
    ] {
        let ran = with(&rig, variables, args).ends(2);
        assert!(ran.err.contains(named), "{}", ran.err);
    }
}

#[test]
fn a_typed_password_beats_the_environments() {
    let rig = Rig::empty();
    rig.write("aaa", b"aaa\n");
    let (none, by_file) = (("ONEFOLD_PASSWORD", ""), ("ONEFOLD_PASSWORD_FILE", "aaa"));
    let by_command = ("ONEFOLD_PASSWORD_COMMAND", "echo aaa");
    let init = &["init", "--password-command", "echo bbb"];
    with(&rig, &[none, by_file], init).ends(0);
    with(&rig, &[("ONEFOLD_PASSWORD", "bbb")], &["snapshots"]).ends(0);
    with(&rig, &[none, by_file], &["snapshots"]).ends(12);
    with(&rig, &[none, by_command], &["snapshots"]).ends(12);
    for (variables, args) in [
        (
            &[][..],
            &["snapshots", "-p", "aaa", "--password-command", "echo bbb"][..],
        ),
        (&[none, by_file, by_command], &["snapshots"]),
        (&[("ONEFOLD_PASSWORD", "bbb"), by_file], &["snapshots"]),
    ] {
        let ran = with(&rig, variables, args).ends(2);
        let told = "both give a password: leave one out";
        assert!(ran.err.contains(told), "{}", ran.err);
    }
}

/// A repository that was to have no password must not get one, nor the other way round.
#[test]
fn no_password_and_a_password_are_not_asked_for_at_once() {
    let rig = Rig::empty();
    let init = &["init", "--insecure-no-password"];
    let ran = with(&rig, &[("ONEFOLD_PASSWORD", PASSWORD)], init).ends(2);
    assert!(ran.err.contains("ONEFOLD_PASSWORD"), "{}", ran.err);
    assert!(!rig.repo().exists());
    with(&rig, &[("ONEFOLD_PASSWORD", "")], init).ends(0);
}

/// The configuration of an unencrypted repository has no seal: somebody may have rewritten it.
#[test]
fn a_password_for_a_repository_without_encryption_is_refused_unless_that_is_meant() {
    let rig = Rig::open();
    rig.write("s/a", b"a");
    rig.write("word", b"word\n");
    let given = ("ONEFOLD_PASSWORD", PASSWORD);
    for (variables, args) in [
        (&[given][..], &["backup", "s"][..]),
        (&[given], &["repair"]),
        (&[("ONEFOLD_PASSWORD_FILE", "word")], &["snapshots"]),
        (&[], &["backup", "s", "--password-file", "word"]),
        (&[], &["check", "--password-command", "echo word"]),
    ] {
        let ran = with(&rig, variables, args).ends(12);
        assert!(ran.err.contains("--encryption none"), "{}", ran.err);
    }
    assert!(rig.snapshots().is_empty());
    let is_meant = ("ONEFOLD_ENCRYPTION", "none");
    with(&rig, &[given, is_meant], &["backup", "s"]).ends(0);
    with(&rig, &[given], &["check", "--encryption", "none"]).ends(0);
    let other = ("ONEFOLD_ENCRYPTION", "aes256gcm");
    with(&rig, &[other], &["backup", "s"]).ends(2);
}

#[test]
fn a_password_that_protects_nothing_is_told_of_when_the_repository_is_made() {
    let rig = Rig::empty();
    let (given, none) = (("ONEFOLD_PASSWORD", PASSWORD), ("ONEFOLD_PASSWORD", ""));
    rig.write("word", b"word\n");
    let of_file = ("ONEFOLD_PASSWORD_FILE", "word");
    for (variable, args, leave_out) in [
        (given, &["init", "-r", "1"][..], "unset ONEFOLD_PASSWORD, "),
        (
            of_file,
            &["init", "-r", "2"],
            "unset ONEFOLD_PASSWORD_FILE, ",
        ),
        (
            none,
            &["init", "-r", "3", "--password-file", "word"],
            "leave --password-file out ",
        ),
    ] {
        let args = [args, &["--encryption", "none"]].concat();
        let ran = with(&rig, &[none, variable], &args).ends(0);
        assert!(ran.err.contains(leave_out), "{args:?}: {}", ran.err);
    }
    let told = "not encrypted: the password that is given is not used";
    let is_meant = ("ONEFOLD_ENCRYPTION", "none");
    let ran = with(&rig, &[given, is_meant], &["init", "-r", "4"]).ends(0);
    assert_eq!(ran.err, format!("warning: {told}\n"));
    for (variable, args, is_told) in [
        (given, &["init", "-r", "a"][..], true),
        (given, &["init", "-r", "b", "--json"], true),
        (given, &["init", "-r", "c", "--quiet"], false),
        (none, &["init", "-r", "d"], false),
        (
            none,
            &["init", "-r", "e", "--password-command", "echo x"],
            true,
        ),
    ] {
        let args = [args, &["--encryption", "none"]].concat();
        let ran = with(&rig, &[variable], &args).ends(0);
        assert_eq!(ran.err.contains(told), is_told, "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_usage_line_calls_nothing_required_that_the_environment_gives() {
    let rig = Rig::empty();
    let variables = [
        ("ONEFOLD_ENCRYPTION", "none"),
        ("ONEFOLD_HOST", "h"),
        ("ONEFOLD_PASSWORD_FILE", "word"),
    ];
    for args in [
        &["restore", "latest"][..],
        &["diff", "latest"],
        &["completions"],
    ] {
        let ran = with(&rig, &variables, args).ends(2);
        assert!(ran.err.contains("Usage: onefold"), "{}", ran.err);
        for word in ["--repo", "--encryption", "--password-file", "--host"] {
            assert!(!ran.err.contains(word), "{args:?}: {}", ran.err);
        }
    }
}

/// Somebody may write to the repository while a person types, or a command runs.
#[test]
fn what_becomes_of_the_configuration_while_the_password_is_asked_for_counts_for_nothing() {
    let rig = Rig::new();
    rig.write("s/a", b"in the clear");
    rig.run(["init", "-r", "plain", "--encryption", "none"])
        .ends(0);
    let switch = "cp plain/config plain/config.copy repo/ && mv repo/keys . && mkdir repo/keys";
    for (back, more) in [
        (true, &[][..]),
        (true, &["--encryption", "aes256gcm"]),
        (false, &[]),
    ] {
        let config = std::fs::read(rig.repo().join("config")).expect("there");
        let back = if back {
            "rm -r repo/keys; mv keys repo/;"
        } else {
            ""
        };
        let command = format!("{switch}; {back} echo '{PASSWORD}'");
        let args = [&["backup", "s", "--password-command", &command], more].concat();
        let ran = with(&rig, &[], &args);
        match back {
            "" => assert_ne!(ran.code, Some(0), "{}", ran.out),
            _ => drop(ran.ends(0)),
        }
        for name in ["config", "config.copy"] {
            std::fs::write(rig.repo().join(name), &config).expect("put back");
        }
    }
    std::fs::remove_dir(rig.repo().join("keys")).expect("empty");
    std::fs::rename(rig.path("keys"), rig.repo().join("keys")).expect("put back");
    assert_eq!(rig.snapshots().len(), 2);
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn a_variable_that_is_set_to_nothing_says_nothing() {
    let rig = Rig::open();
    rig.write("s/a", b"a");
    let nothing = [
        "ONEFOLD_REPOSITORY_FILE",
        "ONEFOLD_PASSWORD",
        "ONEFOLD_PASSWORD_FILE",
        "ONEFOLD_PASSWORD_COMMAND",
        "ONEFOLD_ENCRYPTION",
        "ONEFOLD_COMPRESSION",
        "ONEFOLD_HOST",
        "ONEFOLD_READ_CONCURRENCY",
        "ONEFOLD_IGNORE_CTIME",
        "ONEFOLD_IGNORE_INODE",
        "ONEFOLD_PROGRESS_FPS",
    ]
    .map(|name| (name, ""));
    with(&rig, &nothing, &["backup", "s"]).ends(0);
    with(&rig, &nothing, &["check"]).ends(0);
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_ne!(list[0]["hostname"], "", "this host's name is the default");
}

#[test]
fn a_host_of_the_environment_is_no_filter_that_a_repair_refuses() {
    let rig = Rig::open();
    let host = [("ONEFOLD_HOST", "vm")];
    with(&rig, &host, &["repair"]).ends(0);
    with(&rig, &host, &["repair", "index"]).ends(0);
    for filter in [["--host", "vm"], ["--tag", "a"], ["--path", "/"]] {
        let args = ["repair"].into_iter().chain(filter);
        rig.run(args).ends(2);
    }
}

#[test]
fn a_variable_that_is_wrong_is_named() {
    let rig = Rig::open();
    for (name, value) in [
        ("ONEFOLD_COMPRESSION", "bad"),
        ("ONEFOLD_READ_CONCURRENCY", "x"),
    ] {
        let ran = with(&rig, &[(name, value)], &["backup", "s"]).ends(2);
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    let typed = with(
        &rig,
        &[("ONEFOLD_COMPRESSION", "off")],
        &["backup", "--compression", "bad", "s"],
    );
    assert!(!typed.ends(2).err.contains("ONEFOLD_COMPRESSION"));
}

/// They change nothing that is stored, and a default is there.
#[test]
fn a_time_zone_and_a_rate_that_are_none_are_warned_of() {
    let rig = Rig::open();
    rig.write("s/a", b"a");
    rig.backup("s");
    for (name, values, sound) in [
        (
            "TZ",
            &["Moon/Base"][..],
            &["CET-1CEST,M3.5.0,M10.5.0/3", "UTC0", ""][..],
        ),
        (
            "ONEFOLD_PROGRESS_FPS",
            &["x", "0", "-1", "nan"],
            &["0.5", "60", ""],
        ),
    ] {
        for value in values {
            let ran = with(&rig, &[(name, value)], &["snapshots"]).ends(0);
            assert!(
                ran.err
                    .starts_with(&format!("warning: {name} is {value:?}")),
                "{}",
                ran.err
            );
        }
        for value in sound {
            let ran = with(&rig, &[(name, value)], &["snapshots"]).ends(0);
            assert_eq!(ran.err, "", "{name}={value}");
        }
    }
}

/// Where no terminal is, only who says how often sees lines of progress.
#[test]
fn a_rate_of_progress_is_for_logs_too() {
    let rig = Rig::open();
    rig.write("s/a", &crate::rig::Random(1).bytes(1 << 20));
    let backup = ["backup", "--stdin-from-command", "--", "sh", "-c"];
    let sleeps = |command: &'static str| [&backup[..], &[command]].concat();
    let often = [("ONEFOLD_PROGRESS_FPS", "5")];
    let seen = with(&rig, &often, &sleeps("sleep 3; echo x")).ends(0);
    assert!(seen.err.lines().count() >= 2, "{}", seen.err);
    let seen = with(&rig, &[], &sleeps("sleep 1; echo x")).ends(0);
    assert_eq!(seen.err, "");
}
