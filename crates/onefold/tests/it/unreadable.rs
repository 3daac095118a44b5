//! A restore does not delete files that the backup could not read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::rig::{Ran, Rig, files, program};
use crate::untested::has;

/// The program without the right to read everything, which root has.
fn unprivileged(rig: &Rig, args: [&str; 2]) -> Command {
    let with = rig.command(args);
    if fs::metadata(rig.path(".")).expect("stat").uid() != 0 {
        return with;
    }
    let caps = "-dac_override,-dac_read_search";
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", caps, "--inh-caps", caps])
        .arg(program().get_program())
        .args(with.get_args())
        .current_dir(with.get_current_dir().unwrap_or(&rig.path(".")));
    for (name, value) in with.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The path of something in the source.
fn at(rig: &Rig, name: &str) -> String {
    rig.path("s").join(name).display().to_string()
}

/// A snapshot in which `s/secret` and `s/shut` could be read, and two in which not. Gives the first.
fn back_up_with_and_without(rig: &Rig) -> String {
    for name in ["s/secret", "s/shut/one", "s/changes", "s/goes"] {
        rig.write(name, name.as_bytes());
    }
    let whole = rig.backup("s");
    rig.write("s/changes", b"has changed");
    fs::remove_file(rig.path("s/goes")).expect("remove");
    mode(rig, "s/secret", 0);
    mode(rig, "s/shut", 0);
    for _ in 0..2 {
        let output = unprivileged(rig, ["backup", "s"]).output();
        Ran::from(output.expect("run")).ends(3);
    }
    mode(rig, "s/secret", 0o644);
    mode(rig, "s/shut", 0o755);
    whole
}

#[test]
fn what_could_not_be_read_is_marked_and_nowhere_taken_for_empty_or_removed() {
    let rig = Rig::open();
    if !can_test(&rig) {
        return;
    }
    let whole = back_up_with_and_without(&rig);
    is_marked_where_it_is_listed(&rig);
    is_missed_where_it_is_dumped(&rig);
    is_unknown_where_it_is_compared(&rig, &whole);
}

fn is_marked_where_it_is_listed(rig: &Rig) {
    let listed = rig.run(["ls", "latest"]).ends(0).out;
    for (name, why) in [("secret", "read"), ("shut", "listed")] {
        let line = format!("{} (could not be {why})\n", at(rig, name));
        assert!(listed.contains(&line), "{line} in:\n{listed}");
    }
    let nodes = rig.run(["ls", "latest", "--json"]).ends(0).lines();
    let flagged = |flag: &str| -> Vec<String> {
        let flagged = nodes.iter().filter(|node| node[flag] == true);
        flagged
            .map(|node| node["path"].as_str().expect("a path").to_owned())
            .collect()
    };
    assert_eq!(flagged("unreadable"), [at(rig, "secret")]);
    assert_eq!(flagged("unlisted"), [at(rig, "shut")]);
}

fn is_missed_where_it_is_dumped(rig: &Rig) {
    let dump = |path: &str, to: &str| rig.run(["dump", "latest", path, "--target", to]).ends(3);
    let err = dump(&at(rig, "secret"), "dumped").err;
    assert!(
        err.contains("could not be read when it was backed up"),
        "{err}"
    );
    assert!(!rig.path("dumped").exists());
    let json = ["dump", "latest", &at(rig, ""), "-t", "json.tar", "--json"];
    let told = rig.run(json).ends(3).errors();
    assert_eq!(told[0]["message_type"], "warning");
    assert_eq!(told[0]["item"], at(rig, "secret"));
    assert_eq!(told[0]["message"], "could not be read");
    let err = dump(&at(rig, ""), "dumped.tar").err;
    assert!(
        err.contains(&at(rig, "secret")) && err.contains(&at(rig, "shut")),
        "{err}"
    );
}

fn is_unknown_where_it_is_compared(rig: &Rig, whole: &str) {
    let changes = |from: &str, to: &str| -> Vec<(String, String)> {
        let lines = rig.run(["diff", from, to, "--json"]).ends(0).lines();
        let changes = lines
            .into_iter()
            .filter(|line| line["message_type"] == "change");
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        changes
            .map(|line| (text(&line["modifier"]), text(&line["path"])))
            .collect()
    };
    let ids = rig.snapshots();
    let expect = |marks: [&str; 4]| -> Vec<(String, String)> {
        let names = ["changes", "goes", "secret", "shut/one"];
        let marks = marks.iter().zip(names);
        marks
            .map(|(mark, name)| ((*mark).to_owned(), at(rig, name)))
            .collect()
    };
    assert_eq!(changes(whole, &ids[2]), expect(["M", "-", "?", "?"]));
    assert_eq!(changes(&ids[2], whole), expect(["M", "+", "?", "?"]));
    assert_eq!(changes(&ids[1], &ids[2]), []);
    let words = rig.run(["diff", whole, &ids[2]]).ends(0).out;
    assert!(words.contains("unknown    2 paths"), "{words}");
}

/// Whether there is a way to take root's right to read everything.
fn can_test(rig: &Rig) -> bool {
    fs::metadata(rig.path(".")).expect("stat").uid() != 0 || has("setpriv")
}

fn mode(rig: &Rig, name: &str, mode: u32) {
    fs::set_permissions(rig.path(name), Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_restore_that_deletes_leaves_what_the_backup_could_not_read() {
    let rig = Rig::new();
    if !can_test(&rig) {
        return;
    }
    for name in [
        "s/a",
        "s/secret",
        "s/shut/one",
        "s/shut/deep/two",
        "s/blind/three",
    ] {
        rig.write(name, name.as_bytes());
    }
    fs::hard_link(rig.path("s/secret"), rig.path("s/secret2")).expect("link");
    let before = files(&rig.path("s"));
    let shut = |modes: [u32; 3]| {
        mode(&rig, "s/secret", modes[0]);
        mode(&rig, "s/shut", modes[1]);
        mode(&rig, "s/blind", modes[2]);
    };
    shut([0, 0, 0o444]);
    let output = unprivileged(&rig, ["backup", "s"]).output();
    Ran::from(output.expect("run")).ends(3);
    shut([0o644, 0o755, 0o755]);
    rig.write("s/later", b"made after the backup");

    let listed = rig.run(["ls", "--long", "latest"]).ends(0).out;
    for line in [
        "s/secret (could not be read)",
        "s/secret2 (could not be read)",
        "s/shut (could not be listed)",
        "s/blind (could not be listed)",
    ] {
        assert!(listed.contains(line), "{line} in:\n{listed}");
    }
    let source = fs::canonicalize(rig.path("s")).expect("path");
    let from = format!("latest:{}", source.display());
    let ran = rig.run(["restore", &from, "--target", "s", "--delete"]);
    let ran = ran.ends(3);
    assert!(ran.err.contains("could not list"), "{}", ran.err);
    assert!(ran.err.contains("lacks 5 paths"), "{}", ran.err);
    assert!(!rig.path("s/later").exists());
    // The folders have the modes they had when they were backed up.
    shut([0o644, 0o755, 0o755]);
    assert_eq!(files(&rig.path("s")), before);

    let json = ["restore", &from, "--target", "elsewhere", "--json"];
    let ran = rig.run(json).ends(3);
    let warned: Vec<serde_json::Value> = ran
        .err
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .filter(|line: &serde_json::Value| line["message_type"] == "warning")
        .collect();
    let items: Vec<_> = warned.iter().map(|line| &line["item"]).collect();
    assert_eq!(
        items,
        ["/blind", "/secret", "/secret2", "/shut", "/blind/three"]
    );
    assert!(
        warned
            .iter()
            .all(|line| line["during"] == "restore" && line["message"].is_string())
    );
    assert_eq!(ran.last()["unread_count"], 5);
    let shut = format!("{from}/shut");
    rig.run(["restore", &shut, "--target", "empty"]).ends(3);
    let one = format!("{from}/a");
    rig.run(["restore", &one, "--target", "one"]).ends(0);
    assert!(rig.path("elsewhere/a").exists() && !rig.path("elsewhere/secret").exists());

    let snapshot = rig.backup("s");
    assert_eq!(rig.restored(&snapshot, "s"), before);
}
