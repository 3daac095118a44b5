//! Advice on command lines that are not understood, or that nobody means, where clap's own message would mislead.

mod fed_command;
mod guesses;
mod tilde;
mod variables;
mod words;

use std::ffi::OsString;

use clap::CommandFactory;

use super::Cli;
use crate::error::Result;

pub use guesses::without_guesses;
pub use variables::without_variables;

/// Returns a message in place of clap's, where there is a better one.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let of_command = fed_command::explain(error, arguments);
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let arguments: Vec<_> = arguments.map(|argument| argument.into_owned()).collect();
    of_command
        .or_else(|| words::explain(error, &arguments))
        .or_else(|| guesses::explain(error, &arguments))
        .or_else(|| variables::explain(error, &arguments))
}

/// Refuses command lines that clap accepts and that nobody means.
///
/// # Errors
/// [`Error::Usage`](crate::error::Error::Usage).
pub fn confirm_meant(arguments: &[OsString]) -> Result<()> {
    let mut command = Cli::command();
    // Whether the arguments make sense was checked before.
    let Ok(matches) = command.try_get_matches_from_mut(arguments) else {
        return Ok(());
    };
    if let Some(("backup", backup)) = matches.subcommand() {
        fed_command::refuse_doubtful(backup, arguments)?;
    }
    tilde::refuse_unreplaced(&command, &matches)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn advice(line: &str) -> Option<String> {
        let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("not understood");
        explain(&error, &arguments)
    }

    #[test]
    #[rustfmt::skip]
    fn what_clap_cannot_know_is_explained() {
        for (line, part) in [
            ("onefold rewrite --exclude x", "not yet"),
            ("onefold -r x recover", "not yet"),
            ("onefold self-update", "installed"),
            ("onefold generate --man x", "completions"),
            ("onefold create x", "`onefold backup`"),
            ("onefold gc", "`onefold prune`"),
            ("onefold rebuild-index", "`onefold repair index`"),
            ("onefold prune --repack-uncompressed", "cannot be told"),
            ("onefold forget --keep-last 1 --repack-cacheable-only", "rewritten as others are"),
            ("onefold check --host x", "all snapshots are checked"),
            ("onefold init --from-repo x", "--like"),
            ("onefold list index", "stats --mode raw-data"),
            ("onefold cat masterkey", "onefold key list"),
            ("onefold -r x cat tree latest", "onefold ls SNAPSHOT"),
            ("onefold cat blob 00", "onefold find --blob"),
            ("onefold ls -R", "`--recursive`"),
            ("onefold ls latest -Rl", "`--recursive`"),
            ("onefold backup --progress x", "on a terminal"),
            ("onefold restore latest --strip-components 1", "SNAPSHOT:PATH"),
            ("onefold backup x --use-fs-snapshot", "Windows"),
            ("onefold forget --keep=3", "`--keep-last N`"),
            ("onefold snapshots --password x", "--password-file"),
            ("onefold backup --stdin-from-command tar -c", "-- COMMAND -c"),
            ("onefold backup --stdin-from-command pg_dump --clean db", "-- COMMAND --clean"),
            ("onefold backup --stdin-from-command tar -cf - x", "-- COMMAND -c"),
            ("onefold init /srv/repo", "--repo FOLDER"),
            ("onefold check repo", "--repo FOLDER"),
            ("onefold prune repo", "--repo FOLDER"),
            ("onefold restore latest out", "--target"),
            ("onefold cat foo", "there are config, snapshot"),
            ("onefold frobnicate", "there are init, doctor, backup, "),
        ] {
            let text = advice(line).unwrap_or_else(|| panic!("{line}"));
            assert!(text.contains(part), "{line}: {text}");
        }
    }

    #[test]
    fn typing_errors_are_left_to_clap() {
        for line in [
            "onefold snapshot",
            "onefold backup --nonsense --stdin-from-command tar",
            "onefold backup --nonsense x",
            "onefold key list x",
        ] {
            assert_eq!(advice(line), None, "{line}");
        }
    }

    #[test]
    fn words_that_resemble_those_of_others_are_not_taken_for_them() {
        for line in [
            "onefold key delete",
            "onefold ls --hots x",
            "onefold cat create",
            "onefold list cat",
            "onefold find -a",
        ] {
            let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let error = Cli::try_parse_from(&arguments).expect_err("not understood");
            assert_eq!(words::explain(&error, &arguments), None, "{line}");
        }
    }
}
