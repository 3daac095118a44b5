//! A `~` that no shell has replaced, as in `--target=~/back`: an option that names a file or folder never means a
//! folder called `~`, and a restore would make one.

use std::os::unix::ffi::OsStrExt;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::error::{Error, Result};

/// Refuses a typed value of an option that begins with `~`, in the command and its verb. Errors: [`Error::Usage`].
pub fn refuse_unreplaced(command: &Command, matches: &ArgMatches) -> Result<()> {
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let names = arg.get_value_names().unwrap_or_default();
        let is_file = names.iter().any(|name| name == "FILE" || name == "FOLDER");
        // The repository may be named by a variable as well, and is checked in another place.
        if !is_file || id == "repo" || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let Some(flag) = arg.get_long() else { continue };
        for value in matches.get_raw(id).into_iter().flatten() {
            let bytes = value.as_bytes();
            if bytes == b"~" || bytes.starts_with(b"~/") {
                let value = value.to_string_lossy();
                let rest = &value[1..];
                return Err(Error::Usage(format!(
                    "--{flag} {value} is not in your home folder: a shell replaces a ~ only at the front of a word, so write --{flag} $HOME{rest}, or ./{value} for a folder of that name"
                )));
            }
        }
    }
    match matches.subcommand() {
        Some((name, below)) => match command.find_subcommand(name) {
            Some(verb) => refuse_unreplaced(verb, below),
            None => Ok(()),
        },
        None => Ok(()),
    }
}
