//! Advice on values from the environment: the user has typed none of the options that variables stand for.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;

/// Returns the error as it would be if no variable were set: a usage line would call options with variables required.
/// An error that a variable causes stays.
pub fn without_variables(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let command = Cli::command().mut_args(unset).mut_subcommands(verb_unset);
    let is_same = |other: &clap::Error| {
        let argument = |error: &clap::Error| error.get(ContextKind::InvalidArg).cloned();
        let is_about_the_same = other.kind() == error.kind() && argument(other) == argument(&error);
        // A user who types the program's name alone wants to know what there is.
        is_about_the_same
            || other.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                && error.kind() == ErrorKind::MissingSubcommand
    };
    match command.try_get_matches_from(arguments) {
        Err(other) if is_same(&other) => other,
        _ => error,
    }
}

fn unset(arg: Arg) -> Arg {
    arg.env(Resettable::Reset)
}

fn verb_unset(verb: Command) -> Command {
    verb.mut_args(unset).mut_subcommands(verb_unset)
}

/// Returns a message that a value which makes no sense comes from a variable, since the user has not typed the option.
pub fn explain(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = arg.split_whitespace().next()?;
    let all = Cli::command();
    let mut commands = std::iter::once(&all).chain(all.get_subcommands());
    let arg = commands.find_map(|command| {
        let mut args = command.get_arguments();
        args.find(|arg| {
            arg.get_long()
                .is_some_and(|long| flag.strip_prefix("--") == Some(long))
        })
    })?;
    let short = arg.get_short().map(|short| format!("-{short}"));
    let is_typed = arguments.iter().any(|typed| {
        let is_short = |short: &String| typed.starts_with(&short[..]);
        typed.split('=').next() == Some(flag) || short.as_ref().is_some_and(is_short)
    });
    let variable = arg
        .get_env()
        .filter(|variable| !is_typed && std::env::var_os(variable).is_some())?;
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or(&text).trim();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    Some(format!(
        "the variable {} is wrong: {what}",
        variable.to_string_lossy()
    ))
}
