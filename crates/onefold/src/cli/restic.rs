//! Tests docs/restic.md against the definition of the command line, and against restic itself where it is installed, so
//! that the page stays right.

use std::collections::BTreeMap;
use std::process::Command as Process;

use clap::{Command, CommandFactory};

use super::Cli;

const PAGE: &str = include_str!("../../../../docs/restic.md");

/// Returns the page's words on each verb, flag or variable: from under its heading, by its name, in the second column.
fn page() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let mut said = BTreeMap::new();
    let mut heading = "";
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let ["", name, word, ..] = cells[..]
            && let Some(name) = name.strip_prefix('`')
        {
            let before = said.insert((heading, name.trim_end_matches('`')), word);
            assert_eq!(before, None, "{heading}: {name} twice");
        }
    }
    said
}

fn definition() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Whether the verb (or, without one, every verb) hides the flag; `None` where it does not have the flag.
fn has(verb: Option<&str>, flag: &str) -> Option<bool> {
    let all = definition();
    let command = match verb {
        Some(verb) => all.find_subcommand(verb).expect("a verb"),
        None => &all,
    };
    let mut arguments = command.get_arguments();
    let found = arguments.find(|argument| argument.get_long() == Some(flag))?;
    Some(found.is_hide_set())
}

fn variables() -> Vec<String> {
    let all = definition();
    let commands = std::iter::once(&all).chain(all.get_subcommands());
    let arguments = commands.flat_map(Command::get_arguments);
    let names = arguments.filter_map(|argument| argument.get_env()?.to_str());
    // Three variables are no options: passwords must not be seen, and few users set the rate.
    let others = [
        "ONEFOLD_PASSWORD",
        "ONEFOLD_FROM_PASSWORD",
        "ONEFOLD_PROGRESS_FPS",
    ];
    names.chain(others).map(str::to_owned).collect()
}

#[test]
fn the_page_says_what_the_command_line_has() {
    for ((heading, name), word) in page() {
        let told = format!("{heading}: {name}: {word}");
        let found = match (heading, name.strip_prefix("--")) {
            ("Verbs", _) => definition().find_subcommand(name).map(|_| false),
            ("Environment", _) => {
                let name = name.replace("RESTIC_", "ONEFOLD_");
                variables().contains(&name).then_some(false)
            }
            ("Flags of all verbs", Some(flag)) => has(None, flag),
            (verb, Some(flag)) => has(Some(verb), flag),
            _ => panic!("{told}"),
        };
        match word {
            "same" => assert_eq!(found, Some(false), "{told}"),
            "taken" => assert_eq!(found, Some(true), "{told}"),
            "–" => assert_eq!(found, None, "{told}"),
            _ => panic!("{told}"),
        }
    }
}

#[test]
fn what_is_taken_is_told_of() {
    let said = page();
    let all = definition();
    for command in all.get_subcommands() {
        for argument in command.get_arguments().filter(|a| a.is_hide_set()) {
            let Some(flag) = argument.get_long().map(|flag| format!("--{flag}")) else {
                continue;
            };
            let is_told = ["Flags of all verbs", command.get_name()]
                .iter()
                .any(|heading| said.contains_key(&(*heading, &flag[..])));
            assert!(is_told, "{} {flag}", command.get_name());
        }
    }
}

/// Returns the output of restic's help.
fn restic(args: &[&str]) -> Option<String> {
    let output = Process::new("restic").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Returns the words `--flag` and `command` in a section of restic's help.
fn listed(help: &str, section: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with(section));
    let lines = lines.skip(1).take_while(|line| line.starts_with(' '));
    let words = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        words
            .find(|word| word.starts_with("--") || !word.starts_with('-'))
            .map(str::to_owned)
    });
    words.collect()
}

#[test]
fn the_page_names_all_that_restic_has() {
    let version = restic(&["version"]).unwrap_or_default();
    if !version.starts_with("restic 0.19.") {
        println!("no restic 0.19 is installed: it is not compared");
        return;
    }
    let said = page();
    let help = restic(&["help"]).expect("help");
    let sections = ["Available", "Advanced", "Additional"].map(|section| listed(&help, section));
    for verb in sections.concat().iter().filter(|verb| *verb != "help") {
        assert!(
            said.contains_key(&("Verbs", &verb[..])),
            "{verb} is missing"
        );
        let help = restic(&["help", verb]).expect("help");
        for flag in listed(&help, "Flags:")
            .iter()
            .filter(|flag| *flag != "--help")
        {
            let is_there = said.get(&("Verbs", verb)) == Some(&"–")
                || said.contains_key(&(&verb[..], &flag[..]));
            assert!(is_there, "{verb} {flag} is missing");
        }
    }
    for flag in listed(&help, "Flags:")
        .iter()
        .filter(|flag| *flag != "--help")
    {
        assert!(
            said.contains_key(&("Flags of all verbs", &flag[..])),
            "{flag} is missing"
        );
    }
}
