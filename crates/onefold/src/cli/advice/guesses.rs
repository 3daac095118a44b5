//! Advice in place of clap's guesses: clap does not know which words are a command's, which options are hidden, and
//! that options name the repository and the target.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// Returns the error without guesses that mislead.
pub fn without_guesses(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    match error.kind() {
        ErrorKind::UnknownArgument => {}
        ErrorKind::ArgumentConflict => return between_typed(error, arguments),
        _ => return error,
    }
    // clap proposes to pass the flag as a path: that is of use only where such a file exists.
    let is_path = unknown(&error).is_some_and(|word| Path::new(word).symlink_metadata().is_ok());
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| is_path || !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let is_hidden = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => is_hidden(flag),
        _ => false,
    };
    if is_hidden {
        error.remove(ContextKind::SuggestedArg);
        // The usage line shows how to use the guess.
        error.remove(ContextKind::Usage);
    }
    error
}

/// Returns the conflict as one between typed options: clap names all options of a group.
fn between_typed(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::Strings(mut others)) = error.get(ContextKind::PriorArg).cloned() else {
        return error;
    };
    let all = Cli::command();
    others.retain(|other| {
        let flag = other.split_whitespace().next().unwrap_or_default();
        arguments.iter().any(|typed| is_flag(&all, typed, flag))
    });
    let others = match &mut others[..] {
        [] => return error,
        [one] => ContextValue::String(std::mem::take(one)),
        _ => ContextValue::Strings(others),
    };
    error.insert(ContextKind::PriorArg, others);
    error
}

/// Whether the typed word is the option `--flag`, or some verb's short name of it.
fn is_flag(all: &Command, typed: &OsString, flag: &str) -> bool {
    let typed = typed.to_string_lossy();
    let mut commands = std::iter::once(all).chain(all.get_subcommands());
    let is_short =
        |short: char| !typed.starts_with("--") && typed.starts_with(&format!("-{short}"));
    typed.split('=').next() == Some(flag)
        || commands.any(|command| {
            let mut arguments = command.get_arguments();
            arguments.any(|arg| {
                let is_it = arg.get_long().is_some() && arg.get_long() == flag.strip_prefix("--");
                is_it && arg.get_short().is_some_and(is_short)
            })
        })
}

/// Returns a message in place of clap's, where there is one.
pub fn explain(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let all = Cli::command();
    let mut verbs = arguments.iter();
    let verb = verbs.find_map(|argument| all.find_subcommand(argument));
    match error.kind() {
        ErrorKind::InvalidSubcommand => no_verb(error, verb.unwrap_or(&all)),
        ErrorKind::UnknownArgument => needless(unknown(error)?, verb?, arguments),
        _ => None,
    }
}

/// Returns a message that lists the verbs, where none resembles the typed word.
fn no_verb(error: &clap::Error, above: &Command) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let is_like_one = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(like)) => !like.is_empty(),
        Some(_) => true,
        None => false,
    };
    let verbs = above.get_subcommands().filter(|verb| !verb.is_hide_set());
    let names: Vec<_> = verbs.map(Command::get_name).collect();
    let is_told = !is_like_one && !names.is_empty();
    is_told.then(|| format!("there is no `{word}`; there are {}", names.join(", ")))
}

/// Returns a message about an option or a word that the verb does not take.
fn needless(word: &str, verb: &Command, arguments: &[String]) -> Option<String> {
    let name = verb.get_name();
    if word.starts_with('-') {
        let mut words = arguments.iter();
        let is_of_command = name == "backup"
            && words.any(|argument| argument == "--stdin-from-command")
            && words.any(|argument| argument.starts_with(word));
        return is_of_command.then(|| {
            format!("`{word}` is no option of `onefold backup`. If it is one of the command, write -- in front of that: onefold backup --stdin-from-command -- COMMAND {word} …")
        });
    }
    match name {
        "restore" => Some(format!(
            "`{word}` is one word too many: the folder to restore into is named by --target, and what to restore of the snapshot by SNAPSHOT:PATH or --include"
        )),
        _ if takes_no_words(verb) => Some(format!(
            "`{word}` is one word too many: `onefold {name}` takes options alone, and the repository is named by --repo FOLDER"
        )),
        _ => None,
    }
}

/// Returns the word that is not understood.
fn unknown(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

fn takes_no_words(verb: &Command) -> bool {
    verb.get_positionals().next().is_none() && !verb.has_subcommands()
}

fn is_hidden(flag: &str) -> bool {
    let all = Cli::command();
    let mut commands = std::iter::once(&all).chain(all.get_subcommands());
    commands.any(|command| {
        let mut hidden = command.get_arguments().filter(|arg| arg.is_hide_set());
        hidden.any(|arg| arg.get_long() == flag.strip_prefix("--"))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn typed(line: &str) -> (clap::Error, Vec<OsString>) {
        let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("not understood");
        (error, arguments)
    }

    #[test]
    fn guesses_that_mislead_are_left_out() {
        for (line, guess) in [
            ("onefold stats -x", "-- -x"),
            ("onefold backup --key-hin db", "--key-hint"),
            ("onefold snapshots --pack-siz", "--pack-size"),
        ] {
            let (error, arguments) = typed(line);
            assert!(error.to_string().contains(guess), "{error}");
            let text = without_guesses(error, &arguments).to_string();
            assert!(!text.contains(guess) && !text.contains("tip:"), "{text}");
        }
        let (error, arguments) = typed("onefold snapshots --hots x");
        let text = without_guesses(error, &arguments).to_string();
        assert!(
            text.contains("'--host'") && text.contains("Usage:"),
            "{text}"
        );
    }

    #[test]
    fn a_conflict_is_between_what_is_typed() {
        for (line, told, untold) in [
            (
                "onefold forget latest --keep-last 3",
                "--keep-last",
                "--keep-daily",
            ),
            (
                "onefold forget latest -d 3 --keep-tag=x",
                "--keep-daily",
                "--keep-last",
            ),
            ("onefold find x --oldest now --blob", "--blob", "--pack"),
        ] {
            let (error, arguments) = typed(line);
            let text = without_guesses(error, &arguments).to_string();
            assert!(text.contains(told) && !text.contains(untold), "{text}");
        }
    }
}
