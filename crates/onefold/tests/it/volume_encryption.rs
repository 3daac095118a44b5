//! Encrypted depots: from where their password comes, and what a wrong one does.

use std::process::Command;

use crate::devices::{AttachedDepot, can_attach};
use crate::rig::{PASSWORD, Random, Rig};
use crate::untested::has;
use crate::volume::{Serving, succeeds};
use crate::volume_care::copy_in;

/// A depot that is encrypted with the password in `ONEFOLD_PASSWORD`.
fn create(rig: &Rig) {
    let args = ["-q", "volume", "create", "depot", "--size", "64M"];
    let encrypted = ["--encryption", "aes256gcm", "--capacity", "80M"];
    rig.run(args.iter().chain(&encrypted)).ends(0);
}

/// Runs the program with these variables about the password, and no other.
fn run_with(rig: &Rig, variables: &[(&str, &str)], args: &[&str]) -> crate::rig::Ran {
    let mut command = rig.command(args);
    command.env_remove("ONEFOLD_PASSWORD");
    command.envs(variables.iter().copied());
    command.output().expect("it starts").into()
}

#[test]
fn a_depot_opens_with_its_password_from_any_source_and_with_no_other() {
    let rig = Rig::empty();
    create(&rig);
    std::fs::write(rig.path("right"), format!("{PASSWORD}\n")).expect("write");
    std::fs::write(rig.path("wrong"), "sesame\n").expect("write");
    let stats = ["volume", "stats", "depot"];
    run_with(&rig, &[("ONEFOLD_PASSWORD", PASSWORD)], &stats).ends(0);
    run_with(&rig, &[("ONEFOLD_PASSWORD_FILE", "right")], &stats).ends(0);
    let command = format!("echo '{PASSWORD}'");
    run_with(&rig, &[("ONEFOLD_PASSWORD_COMMAND", &command)], &stats).ends(0);
    let by_option = ["--password-file", "right", "volume", "collect", "depot"];
    run_with(&rig, &[], &by_option).ends(0);

    let before = files(&rig);
    for args in [
        &["volume", "stats", "depot"][..],
        &["volume", "check", "depot", "--read-data"],
        &["volume", "collect", "depot"],
        &["volume", "snapshot", "depot@one"],
        &["volume", "list", "depot"],
        &["volume", "grow", "depot", "--size", "80M"],
        &["volume", "create", "depot:two", "--size", "8M"],
        &["volume", "serve", "depot", "--unix", "socket"],
        &["volume", "dump", "depot"],
        &["volume", "dump", "depot", "zones"],
    ] {
        let wrong = run_with(&rig, &[("ONEFOLD_PASSWORD_FILE", "wrong")], args).ends(12);
        assert!(
            wrong.err.contains("depot: the password opens no key"),
            "{}",
            wrong.err
        );
        let missing = run_with(&rig, &[], args).ends(12);
        assert!(
            missing.err.contains("the depot at depot is encrypted"),
            "{}",
            missing.err
        );
        assert!(missing.err.contains("--password-file"), "{}", missing.err);
    }
    assert!(files(&rig) == before, "a wrong password changes nothing");
    // Nobody needs a password for these.
    let config = run_with(&rig, &[], &["volume", "dump", "depot", "config"]).ends(0);
    assert!(
        config.out.contains("encryption: aes256gcm"),
        "{}",
        config.out
    );
    run_with(&rig, &[], &["volume", "delete", "depot", "--yes"]).ends(0);
}

#[test]
fn passwords_of_a_depot_change() {
    let rig = Rig::empty();
    create(&rig);
    std::fs::write(rig.path("new"), "open barley\n").expect("write");
    let by_new = ["--password-file", "new"];
    let key = |what: &[&str]| {
        let args: Vec<&str> = [&["volume", "key"], what].concat();
        rig.run(&args)
    };
    key(&["passwd", "depot"]).ends(12);
    let added = key(&[
        "add",
        "depot",
        "--new-password-file",
        "new",
        "--user",
        "ada",
    ])
    .ends(0);
    assert!(added.out.starts_with("added key "), "{}", added.out);
    let list = key(&["list", "depot"]).ends(0).out;
    let rows: Vec<_> = list.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{list}");
    assert!(
        rows[0].starts_with('*') && rows[1].contains("ada@"),
        "{list}"
    );
    let old = rows[0]
        .trim_start_matches('*')
        .split(' ')
        .next()
        .expect("an id");
    let refused = key(&["remove", "depot", old]).ends(2);
    assert!(refused.err.contains("key in use"), "{}", refused.err);
    let args = ["volume", "key", "remove", "depot", old];
    run_with(&rig, &[], &[&by_new[..], &args].concat()).ends(0);
    rig.run(["volume", "stats", "depot"]).ends(12);
    let args = ["--json", "volume", "key", "list", "depot"];
    let json = run_with(&rig, &[], &[&by_new[..], &args].concat())
        .ends(0)
        .out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (json.as_array().map(Vec::len), &json[0]["userName"]),
        (Some(1), &"ada".into())
    );
    // A depot that is not encrypted has no keys.
    rig.run(["-q", "volume", "create", "plain", "--size", "64M"])
        .ends(0);
    let refused = key(&["list", "plain"]).ends(2);
    assert!(refused.err.contains("not encrypted"), "{}", refused.err);
}

/// Names and contents of the depot's files.
fn files(rig: &Rig) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(rig.path("depot")).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.file_type().expect("a type").is_file())
        .map(|entry| {
            let bytes = std::fs::read(entry.path()).expect("read");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn what_cannot_be_encrypted_is_refused_and_no_depot_is_left() {
    let rig = Rig::empty();
    for backend in ["inram", "dtb", "cbt"] {
        let args = ["volume", "create", "depot", "--size", "64M", "--backend"];
        let refused = rig
            .run(args.iter().chain(&[backend, "--encryption", "aes256gcm"]))
            .ends(2);
        assert!(refused.err.contains("use log"), "{}", refused.err);
    }
    let args = ["volume", "create", "depot", "--size", "64M"];
    let unknown: Vec<&str> = [&args[..], &["--encryption", "aes256gcm"]].concat();
    run_with(&rig, &[], &unknown).ends(12);
    assert!(!rig.path("depot").exists());
    // A password that would protect nothing is not taken.
    std::fs::write(rig.path("given"), "sesame\n").expect("write");
    let by = ["--password-file", "given"];
    let refused = run_with(&rig, &[], &[&by[..], &args].concat()).ends(2);
    assert!(refused.err.contains("--encryption"), "{}", refused.err);
    assert!(!rig.path("depot").exists());
    create(&rig);
    let other = [
        "volume",
        "create",
        "depot:two",
        "--size",
        "8M",
        "--encryption",
        "none",
    ];
    let refused = rig.run(other).ends(2);
    assert!(refused.err.contains("all of its life"), "{}", refused.err);
    // A depot in place of an encrypted one asks for no password, and is refused all the same.
    rig.run(["-q", "volume", "create", "plain", "--size", "64M"])
        .ends(0);
    rig.run(["volume", "stats", "plain"]).ends(0);
    let expected = ["volume", "stats", "plain", "--encryption", "aes256gcm"];
    rig.run(expected).ends(2);
}

/// The process in the background has no terminal: the one that starts it reads the password and hands it over.
#[test]
fn an_attached_depot_has_its_password_from_the_process_that_started_it() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    create(&rig);
    std::fs::write(rig.path("right"), PASSWORD).expect("write");
    std::fs::write(rig.path("wrong"), "sesame").expect("write");
    let attach =
        |variables: &[(&str, &str)]| run_with(&rig, variables, &["volume", "attach", "depot"]);
    attach(&[("ONEFOLD_PASSWORD_FILE", "wrong")]).ends(12);
    attach(&[]).ends(12);
    let _guard = AttachedDepot(&rig);
    // The command runs once: what it prints goes to the process by a pipe.
    let once = "cat right && rm right";
    let device = attach(&[("ONEFOLD_PASSWORD_COMMAND", once)]).ends(0).out;
    succeeds(Command::new("mkfs.ext4").args(["-q", "-F", device.trim()]));
    succeeds(Command::new("e2fsck").args(["-fn", device.trim()]));
    run_with(&rig, &[], &["volume", "collect", "depot"]).ends(0);
    run_with(&rig, &[], &["volume", "detach", "depot"]).ends(0);
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
}

/// The process that serves has the keys: its socket asks for no password.
#[test]
fn what_was_written_is_on_the_disk_sealed_and_comes_back() {
    if !has("nbdcopy") {
        return;
    }
    let rig = Rig::empty();
    create(&rig);
    let content = Random(5).bytes(2 << 20);
    copy_in(&rig, &content);
    let data = std::fs::read(rig.path("depot/data")).expect("read");
    for chunk in content.chunks(4096) {
        let is_there = data.chunks(4096).any(|page| page == chunk);
        assert!(!is_there, "it lies there in the clear");
    }
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    succeeds(
        Command::new("nbdcopy")
            .arg(&serving.uri)
            .arg(rig.path("copy")),
    );
    run_with(&rig, &[], &["volume", "snapshot", "depot@one"]).ends(0);
    let stats = run_with(&rig, &[], &["--json", "volume", "stats", "depot"]).ends(0);
    // The volume and its snapshot.
    assert_eq!(stats.last()["mapped_bytes"], 4 << 20);
    serving.stop();
    let copy = std::fs::read(rig.path("copy")).expect("read");
    assert!(copy[..content.len()] == content);

    // A page that was changed is damage, named by its chunk.
    let zone = 64 << 10;
    let mut data = std::fs::read(rig.path("depot/data")).expect("read");
    data[zone + 20 * 4096 + 9] ^= 1;
    std::fs::write(rig.path("depot/data"), &data).expect("write");
    let args = ["--json", "volume", "check", "depot", "--read-data"];
    let found = rig.run(args).ends(13).last();
    // In the volume and in its snapshot, which share it.
    assert_eq!(found["chunks_damaged"], 2, "{found}");
    assert_eq!(found["damaged"][0]["lbn"], found["damaged"][1]["lbn"]);
}
