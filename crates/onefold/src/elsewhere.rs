//! Words of other programs on the command line that are none here: what restic has and Onefold lacks, with
//! docs/restic.md's reason, and what borg and bupstash call otherwise. Without this, the nearest spelling would be
//! proposed: `restore` to whoever asks for `rewrite`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The page that goes through all of restic's words; a row that says `–` is of one that is missing, and gives the
/// reason.
const PAGE: &str = include_str!("../../../docs/restic.md");

/// Verbs of borg and bupstash, and of restic long ago, by what they are here.
const VERBS: [(&str, &str); 13] = [
    ("create", "backup"),
    ("put", "backup"),
    ("extract", "restore"),
    ("get", "restore` or `onefold dump"),
    ("delete", "forget"),
    ("rm", "forget"),
    ("remove", "forget"),
    ("compact", "prune"),
    ("gc", "prune"),
    ("info", "stats"),
    ("list-contents", "ls"),
    ("break-lock", "unlock"),
    ("rebuild-index", "repair index"),
];

/// What to say instead of clap's message, if the word that it does not know is another program's.
pub fn explain(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let word = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(word) else {
        return None;
    };
    let word = word.split('=').next()?;
    match error.kind() {
        ErrorKind::InvalidSubcommand => verb(word, arguments),
        _ => flag(word, arguments),
    }
}

fn verb(word: &str, arguments: &[String]) -> Option<String> {
    let before = arguments.iter().take_while(|argument| *argument != word);
    if before.into_iter().any(|a| a == "key" || a == "cat") {
        return None;
    }
    if let Some((_, here)) = VERBS.iter().find(|(name, _)| *name == word) {
        return Some(format!("there is no `{word}`: it is `onefold {here}` here"));
    }
    reason("Verbs", word).map(|why| format!("there is no `{word}`, which restic has: {why}"))
}

fn flag(word: &str, arguments: &[String]) -> Option<String> {
    let headings = arguments.iter().map(String::as_str);
    let mut headings = headings.chain(["Flags of all verbs"]);
    let why = headings.find_map(|heading| reason(heading, word))?;
    Some(format!("there is no `{word}`, which restic has: {why}"))
}

/// Why restic's word is missing, as the page says under the heading.
fn reason(heading: &str, word: &str) -> Option<&'static str> {
    let mut lines = PAGE.lines();
    lines.find(|line| line.strip_prefix("## ") == Some(heading))?;
    let rows = lines.take_while(|line| !line.starts_with("## "));
    rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .find_map(|cells| match cells[..] {
            ["", name, "–", why, ..] if name.trim_matches('`') == word => Some(why),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn said(line: &str) -> Option<String> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("not understood");
        explain(&error, &arguments)
    }

    #[test]
    fn words_of_others_are_explained_and_typing_errors_are_left_to_clap() {
        for (line, part) in [
            ("onefold rewrite --exclude x", "restic has: not yet"),
            ("onefold -r x recover", "restic has: not yet"),
            ("onefold help mount", "onefold dump"),
            ("onefold cache --cleanup", "no cache"),
            ("onefold self-update", "installed"),
            ("onefold generate --man x", "completions"),
            ("onefold create x", "`onefold backup`"),
            ("onefold gc", "`onefold prune`"),
            ("onefold rebuild-index", "`onefold repair index`"),
            ("onefold prune --repack-uncompressed", "cannot be told"),
            (
                "onefold forget --keep-last 1 --repack-cacheable-only",
                "no cache",
            ),
            ("onefold snapshots --limit-download=5", "not yet"),
            ("onefold --limit-upload 5 backup x", "not yet"),
            ("onefold check --host x", "all snapshots are checked"),
            ("onefold init --from-repo x", "--chunker"),
        ] {
            let text = said(line).unwrap_or_else(|| panic!("{line}"));
            assert!(text.contains(part), "{line}: {text}");
        }
        for line in [
            "onefold snapshot",
            "onefold key delete",
            "onefold ls --hots x",
            "onefold cat create",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn every_missing_word_has_a_reason() {
        for line in PAGE.lines() {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            if let ["", name, "–", why, ..] = cells[..] {
                assert!(!why.is_empty(), "{name}");
            }
        }
        let all = Cli::command();
        for (name, here) in VERBS {
            let here = here.split([' ', '`']).next().expect("a word");
            assert!(all.find_subcommand(name).is_none(), "{name}");
            assert!(all.find_subcommand(here).is_some(), "{here}");
        }
    }
}
