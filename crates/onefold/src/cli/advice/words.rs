//! Words of restic, borg, bupstash and rsync on the command line that Onefold lacks or calls otherwise. Without this,
//! clap would propose the nearest spelling: `restore` for `rewrite`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A word that is not there.
struct Missing {
    /// The verb that stands before the word; empty where any may.
    verb: &'static str,
    word: &'static str,
    instead: &'static str,
}

const fn missing(verb: &'static str, word: &'static str, instead: &'static str) -> Missing {
    Missing {
        verb,
        word,
        instead,
    }
}

const INDEX: &str = "`onefold stats --mode raw-data` says what the index takes, `onefold list chunks` names what it \
    knows";
const ALL_CHECKED: &str = "all snapshots are checked: what hurts one hurts others";
const DOTS: &str = "names that begin with a dot are listed as they are";
const METADATA: &str = "containers of metadata are rewritten as others are";
const UNCOMPRESSED: &str = "what is stored uncompressed cannot be told from what does not compress";
const ONE_VERSION: &str = "there is one version of the format so far";
const TARGET: &str = "it is `--target` here";

#[rustfmt::skip]
const MISSING: &[Missing] = &[
    missing("", "create", "it is `onefold backup` here"),
    missing("", "put", "it is `onefold backup` here"),
    missing("", "extract", "it is `onefold restore` here"),
    missing("", "get", "it is `onefold restore` or `onefold dump` here"),
    missing("", "delete", "it is `onefold forget` here"),
    missing("", "rm", "it is `onefold forget` here"),
    missing("", "remove", "it is `onefold forget` here"),
    missing("", "compact", "it is `onefold prune` here"),
    missing("", "gc", "it is `onefold prune` here"),
    missing("", "info", "it is `onefold stats` here"),
    missing("", "list-contents", "it is `onefold ls` here"),
    missing("", "break-lock", "it is `onefold unlock` here"),
    missing("", "rebuild-index", "it is `onefold repair index` here"),
    missing("", "features", "there are no feature flags"),
    missing("", "generate", "`completions` prints shell completions, `man FOLDER` writes manual pages"),
    missing("", "migrate", ONE_VERSION),
    missing("", "options", "there are no extended options"),
    missing("", "recover", "not yet; an interrupted backup goes on from what is stored when it is run again"),
    missing("", "rewrite", "not yet; `onefold backup --exclude` leaves out of new snapshots, `onefold forget` drops \
        old ones"),
    missing("", "self-update", "what installed the program updates it"),
    missing("", "--progress", "progress is shown on a terminal as it is, and elsewhere if ONEFOLD_PROGRESS_FPS says \
        how often"),
    missing("", "--exclude-from", "it is `--exclude-file` here"),
    missing("", "--repository", "it is `--repo` here"),
    missing("", "--password", "who looks at running programs would see it; give it with --password-file, \
        --password-command or ONEFOLD_PASSWORD, or be asked"),
    missing("backup", "--stats", "what was done is printed at the end as it is"),
    missing("backup", "--list", "`-v` names every path"),
    missing("backup", "--use-fs-snapshot", "it is for Windows"),
    missing("cat", "index", INDEX),
    missing("cat", "masterkey", "it is printed nowhere; `onefold key list` names the keys that lead to it"),
    missing("cat", "key", "`onefold key list` shows what each key says of itself"),
    missing("cat", "lock", "`onefold list sessions` says who is at work"),
    missing("cat", "pack", "`onefold list chunks` names what containers hold, `onefold find --pack ID` the files that \
        are in one"),
    missing("cat", "blob", "`onefold find --blob ID` names the files that have it, and `onefold dump` prints them"),
    missing("cat", "tree", "`onefold ls SNAPSHOT:PATH --json` prints what is in a folder"),
    missing("check", "--host", ALL_CHECKED),
    missing("check", "--path", ALL_CHECKED),
    missing("check", "--tag", ALL_CHECKED),
    missing("forget", "--keep", "`--keep-last N` keeps the last N snapshots"),
    missing("forget", "--repack-cacheable-only", METADATA),
    missing("forget", "--repack-uncompressed", UNCOMPRESSED),
    missing("init", "--copy-chunker-params", "`--like FOLDER` takes the other's chunker, and its keys besides"),
    missing("init", "--from-repo", "it is `--like FOLDER` here"),
    missing("init", "--from-repository-file", "it is `--like FOLDER` here"),
    missing("init", "--repository-version", ONE_VERSION),
    missing("list", "index", INDEX),
    missing("ls", "-R", "`--recursive` lists all that is below the paths given; without paths, all is listed as it is"),
    missing("ls", "-a", DOTS),
    missing("ls", "--all", DOTS),
    missing("mount", "--owner-root", "files have the owners that they had; who mounts owns the folders above"),
    missing("mount", "--path-template", "the folders are `latest`, `snapshots/TIME`, `hosts/HOST/TIME`, \
        `tags/TAG/TIME` and `ids/ID`"),
    missing("mount", "--time-template", "times are as `2026-02-03_04-05-06`, in the local time zone"),
    missing("prune", "--repack-cacheable-only", METADATA),
    missing("prune", "--repack-uncompressed", UNCOMPRESSED),
    missing("prune", "--unsafe-recover-no-free-space", "it is not needed: on a full disk the index makes room, whole \
        containers go, and others are rewritten a little at a time"),
    missing("restore", "--strip-components", "what is below PATH of SNAPSHOT:PATH goes right into the target"),
    missing("restore", "--output", TARGET),
    missing("restore", "--destination", TARGET),
];

/// Returns a message in place of clap's, if the unknown word is another program's.
pub fn explain(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let unknown = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue => ContextKind::InvalidValue,
        _ => return None,
    };
    let Some(ContextValue::String(unknown)) = error.get(unknown) else {
        return None;
    };
    let word = unknown.split('=').next()?;
    let before = || arguments.iter().take_while(|argument| *argument != word);
    // The word below `key` or `cat` is none of the program's own verbs.
    let is_below = before().any(|argument| argument == "key" || argument == "cat");
    let stands = |verb: &str| {
        if word.starts_with('-') {
            arguments.iter().any(|argument| argument == verb)
        } else {
            before().any(|argument| argument == verb)
        }
    };
    let fits = |one: &&Missing| match (one.verb, word.starts_with('-')) {
        ("", false) => error.kind() == ErrorKind::InvalidSubcommand && !is_below,
        ("", true) => true,
        (verb, _) => stands(verb),
    };
    let mut all = MISSING.iter().filter(|one| one.word == word);
    let Missing { verb, instead, .. } = all.find(fits)?;
    let named = if verb.is_empty() || word.starts_with('-') {
        word.to_owned()
    } else {
        format!("{verb} {word}")
    };
    Some(format!("there is no `{named}`: {instead}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    const PAGE: &str = include_str!("../../../../../docs/restic.md");

    #[test]
    fn every_word_of_restic_that_is_missing_has_advice() {
        let mut heading = "";
        for line in PAGE.lines() {
            heading = line.strip_prefix("## ").unwrap_or(heading);
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let ["", name, "–", why, ..] = cells[..] else {
                continue;
            };
            assert!(!why.is_empty(), "{name}");
            let word = name.trim_matches('`');
            let mut missing = MISSING.iter();
            let is_there =
                missing.any(|one| one.word == word && (one.verb == heading || one.verb.is_empty()));
            assert!(is_there || heading == "Environment", "{heading}: {word}");
        }
    }

    #[test]
    fn what_is_said_to_be_missing_is_missing() {
        let all = Cli::command();
        for Missing { verb, word, .. } in MISSING {
            let Some(flag) = word.strip_prefix("--") else {
                assert!(
                    !verb.is_empty() || all.find_subcommand(word).is_none(),
                    "{word}"
                );
                continue;
            };
            let verbs = all.get_subcommands();
            for command in verbs.filter(|one| verb.is_empty() || one.get_name() == *verb) {
                let mut arguments = command.get_arguments();
                let is_there = arguments.any(|argument| argument.get_long() == Some(flag));
                assert!(!is_there, "{verb} {word}");
            }
        }
    }

    #[test]
    fn what_it_is_called_here_is_there() {
        let all = Cli::command();
        for Missing { instead, .. } in MISSING {
            for named in instead.split("`onefold ").skip(1) {
                let verb = named.split([' ', '`']).next().expect("a word");
                assert!(all.find_subcommand(verb).is_some(), "{instead}");
            }
        }
    }
}
