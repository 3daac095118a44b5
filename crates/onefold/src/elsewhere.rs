//! Words of other programs on the command line: those that restic has and Onefold lacks, with docs/restic.md's reason,
//! and those that borg and bupstash use for other words here. Without this, clap would propose the nearest spelling:
//! `restore` for `rewrite`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The page about all of restic's words; a row with `–` is about a missing word, and gives the reason.
const PAGE: &str = include_str!("../../../docs/restic.md");

/// Verbs of borg, bupstash and old versions of restic, with the verbs that do the same here.
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

/// Objects that restic lists and prints, and Onefold does not: verb, word, and the alternative here.
const OBJECTS: [(&str, &str, &str); 8] = [
    (
        "list",
        "index",
        "`onefold stats --mode raw-data` says what the index takes, `onefold list chunks` names what it knows",
    ),
    (
        "cat",
        "index",
        "`onefold stats --mode raw-data` says what the index takes, `onefold list chunks` names what it knows",
    ),
    (
        "cat",
        "masterkey",
        "it is printed nowhere; `onefold key list` names the keys that lead to it",
    ),
    (
        "cat",
        "key",
        "`onefold key list` shows what each key says of itself",
    ),
    ("cat", "lock", "`onefold list sessions` says who is at work"),
    (
        "cat",
        "pack",
        "`onefold list chunks` names what containers hold, `onefold find --pack ID` the files that are in one",
    ),
    (
        "cat",
        "blob",
        "`onefold find --blob ID` names the files that have it, and `onefold dump` prints them",
    ),
    (
        "cat",
        "tree",
        "`onefold ls SNAPSHOT:PATH --json` prints what is in a folder",
    ),
];

/// Flags of borg, rsync and others, where clap would guess another flag: verb (empty: any), flag, and the message.
const FLAGS: [(&str, &str, &str); 13] = [
    (
        "",
        "--progress",
        "progress is shown on a terminal as it is, and elsewhere if ONEFOLD_PROGRESS_FPS says how often",
    ),
    (
        "backup",
        "--stats",
        "what was done is printed at the end as it is",
    ),
    ("backup", "--list", "`-v` names every path"),
    ("", "--exclude-from", "it is `--exclude-file` here"),
    ("", "--repository", "it is `--repo` here"),
    (
        "",
        "--password",
        "who looks at running programs would see it; give it with --password-file, --password-command or ONEFOLD_PASSWORD, or be asked",
    ),
    (
        "ls",
        "-R",
        "`--recursive` lists all that is below the paths given; without paths, all is listed as it is",
    ),
    (
        "ls",
        "-a",
        "names that begin with a dot are listed as they are",
    ),
    (
        "ls",
        "--all",
        "names that begin with a dot are listed as they are",
    ),
    (
        "forget",
        "--keep",
        "`--keep-last N` keeps the last N snapshots",
    ),
    (
        "restore",
        "--strip-components",
        "what is below PATH of SNAPSHOT:PATH goes right into the target",
    ),
    ("restore", "--output", "it is `--target` here"),
    ("restore", "--destination", "it is `--target` here"),
];

/// Returns a message in place of clap's, if the unknown word is another program's.
pub fn explain(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let word = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue => ContextKind::InvalidValue,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(word) else {
        return None;
    };
    let word = word.split('=').next()?;
    match error.kind() {
        ErrorKind::InvalidSubcommand => object(word, arguments).or_else(|| verb(word, arguments)),
        ErrorKind::InvalidValue => object(word, arguments),
        _ => flag(word, arguments),
    }
}

fn object(word: &str, arguments: &[String]) -> Option<String> {
    let is_meant = |(verb, name, _): &&(&str, &str, &str)| {
        let mut words = arguments.iter();
        *name == word && words.any(|a| a == verb) && words.any(|a| a == word)
    };
    let (verb, _, instead) = OBJECTS.iter().find(is_meant)?;
    Some(format!(
        "there is no `{verb} {word}`, which restic has: {instead}"
    ))
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
    let is_meant = |(verb, flag, _): &&(&str, &str, &str)| {
        *flag == word && (verb.is_empty() || arguments.iter().any(|a| a == verb))
    };
    if let Some((_, _, instead)) = FLAGS.iter().find(is_meant) {
        return Some(format!("there is no `{word}`: {instead}"));
    }
    let headings = arguments.iter().map(String::as_str);
    let mut headings = headings.chain(["Flags of all verbs"]);
    let why = headings.find_map(|heading| reason(heading, word))?;
    Some(format!("there is no `{word}`, which restic has: {why}"))
}

/// Returns the reason why restic's word is missing, from the page under the heading.
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
            ("onefold self-update", "installed"),
            ("onefold generate --man x", "completions"),
            ("onefold create x", "`onefold backup`"),
            ("onefold gc", "`onefold prune`"),
            ("onefold rebuild-index", "`onefold repair index`"),
            ("onefold prune --repack-uncompressed", "cannot be told"),
            (
                "onefold forget --keep-last 1 --repack-cacheable-only",
                "rewritten as others are",
            ),
            ("onefold check --host x", "all snapshots are checked"),
            ("onefold init --from-repo x", "--like"),
            ("onefold list index", "stats --mode raw-data"),
            ("onefold cat masterkey", "onefold key list"),
            ("onefold -r x cat tree latest", "onefold ls SNAPSHOT"),
            ("onefold cat blob 00", "onefold find --blob"),
            ("onefold ls -R", "`--recursive`"),
            ("onefold ls latest -Rl", "`--recursive`"),
            ("onefold backup --progress x", "on a terminal"),
            (
                "onefold restore latest --strip-components 1",
                "SNAPSHOT:PATH",
            ),
            ("onefold backup x --use-fs-snapshot", "of Windows"),
            ("onefold forget --keep=3", "`--keep-last N`"),
            ("onefold snapshots --password x", "--password-file"),
        ] {
            let text = said(line).unwrap_or_else(|| panic!("{line}"));
            assert!(text.contains(part), "{line}: {text}");
        }
        for line in [
            "onefold snapshot",
            "onefold key delete",
            "onefold ls --hots x",
            "onefold cat create",
            "onefold list cat",
            "onefold find -a",
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
        for (verb, flag, _) in FLAGS {
            let verbs = all.get_subcommands();
            for command in verbs.filter(|one| verb.is_empty() || one.get_name() == verb) {
                let mut arguments = command.get_arguments();
                let is_there = arguments.any(|argument| {
                    argument.get_long() == flag.strip_prefix("--") && argument.get_long().is_some()
                });
                assert!(!is_there, "{verb} {flag}");
            }
        }
    }
}
