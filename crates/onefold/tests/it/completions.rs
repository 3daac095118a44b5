//! Proposals of a shell, and lists in the help: the names that there are, and files where a file is meant.

use std::process::Command;

use onefold_papers::KINDS;

use crate::rig::{Ran, Rig};

/// Returns the words that bash proposes behind these words, of which the last is begun.
fn proposed(rig: &Rig, words: &[&str]) -> Vec<String> {
    let script = rig.run(["completions", "bash"]).ends(0).out;
    rig.write("script", script.as_bytes());
    // The script also sets options of bash's own completing, which fails outside of that with a message.
    let run = r#"source ./script; COMP_WORDS=(onefold "$@"); COMP_CWORD=$#
        _onefold onefold "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}" 2> /dev/null
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = Command::new("bash");
    command.args(["-c", run, "bash"]).args(words);
    let ran: Ran = command
        .current_dir(rig.dir.path())
        .output()
        .expect("bash runs")
        .into();
    ran.ends(0)
        .out
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn values_of_a_set_are_proposed_and_files_where_they_are_meant() {
    let rig = Rig::empty();
    rig.write("file", b"");
    let chunkers: Vec<_> = onefold_chunk::names().to_vec();
    let mut found = proposed(&rig, &["init", "--chunker", ""]);
    found.sort();
    let mut expected = chunkers.clone();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(
        proposed(&rig, &["init", "--index", "b"]),
        ["bloomstore", "bufferhash", "btree"]
    );
    for (words, expected) in [
        (
            &["backup", "--encryption", ""][..],
            &["aes256gcm", "none"][..],
        ),
        (&["estimate", "--chunkers", "w"], &["whole-file"]),
        (&["forget", "--group-by", "t"], &["tags"]),
        (&["backup", "--exclude-file", "f"], &["file"]),
        (&["backup", "--password-file", "f"], &["file"]),
        // Nothing is a file of these.
        (&["backup", "--time", ""], &[]),
        (&["backup", "--tag", ""], &[]),
        (&["forget", "--keep-daily", ""], &[]),
        (&["restore", "--target", ""], &[]),
    ] {
        assert_eq!(proposed(&rig, words), expected, "{words:?}");
    }
    let folders = rig.run(["completions", "fish"]).ends(0).out;
    let target = folders
        .lines()
        .find(|line| line.contains("-l target") && line.contains("restore"));
    let target = target.expect("a line");
    assert!(
        target.ends_with("(__fish_complete_directories)\""),
        "{target}"
    );
}

#[test]
fn the_help_of_init_has_a_line_for_each_chunker_and_index() {
    let rig = Rig::empty();
    let help = rig.run(["init", "--help"]).ends(0).out;
    let indexes: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    for name in onefold_chunk::names().iter().chain(&indexes) {
        let line = help
            .lines()
            .find(|line| line.trim().starts_with(&format!("- {name}:")));
        let line = line.unwrap_or_else(|| panic!("{name}: {help}"));
        assert!(line.len() <= 100, "{line}");
    }
    // Elsewhere that would be a page between two flags.
    for verb in ["backup", "estimate"] {
        let help = rig.run([verb, "--help"]).ends(0).out;
        assert!(
            !help.contains("skimpystash") && !help.contains("seqcdc"),
            "{verb}"
        );
    }
}

#[test]
fn a_name_that_is_none_is_told_with_those_there_are() {
    let rig = Rig::open();
    for (args, known) in [
        (
            &["init", "-r", "new", "--chunker", "sive"][..],
            "sieve-adaptive",
        ),
        (&["estimate", "--chunkers", "sieve,x", "."], "seqcdc"),
        (&["snapshots", "--encryption", "rot13"], "aes256gcm"),
    ] {
        let ran = rig.run(args).ends(2);
        assert!(ran.err.contains(known), "{}", ran.err);
    }
    let mut command = rig.command(["snapshots", "--json"]);
    command.env("ONEFOLD_ENCRYPTION", "rot13");
    let ran: Ran = command.output().expect("runs").into();
    let error = &ran.ends(2).errors()[0];
    let message = error["message"].as_str().expect("words");
    assert!(message.contains("ONEFOLD_ENCRYPTION is wrong"), "{message}");
}
