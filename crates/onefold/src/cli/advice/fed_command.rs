//! The command of `backup --stdin-from-command`. An option behind its first word may be the command's or Onefold's:
//! taken for ours, `pg_dump -h host` would print our help, and `mysqldump -n` make no backup, both as if all were well.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

use crate::error::{Error, Result};

const FEED: &str = "--stdin-from-command";

/// Refuses an option behind the command's first word. Errors: [`Error::Usage`].
pub fn refuse_doubtful(backup: &ArgMatches, arguments: &[OsString]) -> Result<()> {
    let mut command = backup.get_raw("paths").into_iter().flatten();
    let Some(first) = command.next().filter(|_| is_any_behind(backup)) else {
        return Ok(());
    };
    let mut words = words_behind(arguments).skip_while(|word| *word != first);
    match words.find(|word| is_option(word)) {
        Some(option) => Err(Error::Usage(told(&option.to_string_lossy()))),
        None => Ok(()),
    }
}

/// Whether an option stands behind the first word that is not an option: one of its values may be the same word.
fn is_any_behind(backup: &ArgMatches) -> bool {
    let places = |id| backup.indices_of(id).into_iter().flatten();
    let first = places("paths").min();
    let ids = backup.ids().map(clap::Id::as_str);
    let mut typed = ids
        .filter(|id| backup.value_source(id) == Some(ValueSource::CommandLine) && *id != "paths");
    typed.any(|id| places(id).max() > first)
}

/// Returns a message in place of our help or version, where the command may have been asked for its own.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if !matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return None;
    }
    let mut words = words_behind(arguments);
    words.next().filter(|word| !is_option(word))?;
    let option = words.find(|word| is_option(word))?;
    Some(told(&option.to_string_lossy()))
}

/// Gives the words behind the flag; none where a `--` separates the command from our options.
fn words_behind(arguments: &[OsString]) -> impl Iterator<Item = &OsString> {
    let at = arguments.iter().position(|word| word == FEED);
    let words = at.map_or(&[][..], |at| &arguments[at + 1..]);
    let is_clear = words.iter().any(|word| word == "--");
    words.iter().filter(move |_| !is_clear)
}

fn is_option(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-") && word != "-"
}

fn told(option: &str) -> String {
    format!(
        "{option} stands behind the first word of the command: if it is the command's, write -- in front of that, as in {FEED} -- COMMAND {option} …; if it is onefold's, write it in front of {FEED}"
    )
}
