//! The command of `backup --stdin-from-command`. Behind its first word, an option may be its own or Onefold's: taken for
//! ours, `pg_dump -h host` would print our help, and `mysqldump -n` make no backup, both as if all were well.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::ErrorKind;

use crate::error::{Error, Result};

const FEED: &str = "--stdin-from-command";

/// Errors: [`Error::Usage`] where an option stands behind the command's first word, and no `--` in front of that.
pub fn refuse_doubtful(backup: &ArgMatches, arguments: &[OsString]) -> Result<()> {
    let mut command = backup.get_raw("paths").into_iter().flatten();
    let Some(first) = command
        .next()
        .filter(|_| backup.get_flag("stdin_from_command"))
    else {
        return Ok(());
    };
    let mut words = arguments.iter().take_while(|word| *word != "--");
    if !words.any(|word| word == first) {
        return Ok(());
    }
    match words.find(|word| is_option(word)) {
        Some(option) => Err(Error::Usage(told(&option.to_string_lossy()))),
        None => Ok(()),
    }
}

/// What to say in place of our help or version, where the command may have been asked for its own.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if !matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return None;
    }
    let words = arguments.iter().skip_while(|word| *word != FEED).skip(1);
    let mut words = words.take_while(|word| *word != "--");
    words.next().filter(|word| !is_option(word))?;
    let mut options = words.filter(|word| is_option(word));
    options.next().map(|option| told(&option.to_string_lossy()))
}

fn is_option(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-") && word != "-"
}

fn told(option: &str) -> String {
    format!(
        "{option} stands behind the first word of the command: if it is the command's, write -- in front of that, as in {FEED} -- COMMAND {option} …; if it is onefold's, write it in front of {FEED}"
    )
}
