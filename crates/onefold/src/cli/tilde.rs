//! A `~` that no shell has replaced, as in `--target=~/back`: of a file or folder that an option names, nobody means a
//! folder called so, and a restore would make one.

use std::os::unix::ffi::OsStrExt;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::error::{Error, Result};

/// Errors: [`Error::Usage`] where the value of an option of the command, or of its verb, begins so and is typed.
pub fn refuse_unreplaced(command: &Command, matches: &ArgMatches) -> Result<()> {
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let names = arg.get_value_names().unwrap_or_default();
        let is_file = names.iter().any(|name| name == "FILE" || name == "FOLDER");
        // The repository may be named by a variable as well, and is looked at there.
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
