//! Flags written with a value, `--json=true` or `--json=false`, as restic's manual writes them.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{ArgAction, Command, CommandFactory};

use super::Cli;

/// Returns the arguments with such flags as they are typed here: alone, or not at all.
pub fn as_typed(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_flag = BTreeMap::new();
    note(&Cli::command(), &mut is_flag);
    let mut are_options = true;
    let as_typed = |argument: OsString| {
        are_options &= argument != "--";
        let text = argument
            .to_str()
            .filter(|_| are_options)
            .unwrap_or_default();
        let Some((flag, value)) = text
            .strip_prefix("--")
            .and_then(|text| text.split_once('='))
        else {
            return Some(argument);
        };
        match value {
            "true" if is_flag.get(flag) == Some(&true) => Some(format!("--{flag}").into()),
            "false" if is_flag.get(flag) == Some(&true) => None,
            _ => Some(argument),
        }
    };
    arguments.filter_map(as_typed).collect()
}

/// Notes which options take no value, over all verbs.
fn note(command: &Command, is_flag: &mut BTreeMap<String, bool>) {
    for arg in command.get_arguments() {
        let takes_none = matches!(arg.get_action(), ArgAction::SetTrue);
        if let Some(long) = arg.get_long() {
            *is_flag.entry(long.to_owned()).or_insert(true) &= takes_none;
        }
    }
    command
        .get_subcommands()
        .for_each(|verb| note(verb, is_flag));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_taken_with_their_value() {
        let typed = [
            "onefold",
            "backup",
            "--json=true",
            "--one-file-system=false",
            "--tag=true",
            "-v",
            "--",
            "--json=true",
        ];
        let as_typed = as_typed(typed.map(OsString::from).into_iter());
        assert_eq!(
            as_typed,
            [
                "onefold",
                "backup",
                "--json",
                "--tag=true",
                "-v",
                "--",
                "--json=true"
            ]
        );
    }
}
