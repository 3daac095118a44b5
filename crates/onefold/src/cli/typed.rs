//! Where options come from: what is typed beats what the environment says, and a variable that is set to nothing says
//! nothing.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches};

use super::Cli;
use crate::error::{Error, Result};

/// The options that stand on the command line, by their ids. Flattened before what it tells of: reading an option
/// forgets where it came from.
#[derive(Clone, Default, Debug)]
pub struct Typed(Vec<String>);

/// One of several options for the same thing.
pub struct Way<T> {
    /// The option's id; empty where there is a variable only.
    pub id: &'static str,
    /// The variable that gives it too.
    pub variable: &'static str,
    /// What it says, if it is given.
    pub value: Option<T>,
}

impl Typed {
    /// Whether the option stands on the command line.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|typed| typed == id)
    }

    /// What the command line says, else what the environment does, with what the user calls that. `does` is what both
    /// of two would do: "give a password".
    ///
    /// # Errors
    /// [`Error::Usage`] where one of them says it in two ways.
    pub fn one_of<T>(
        &self,
        does: &str,
        ways: impl IntoIterator<Item = Way<T>>,
    ) -> Result<Option<(String, T)>> {
        let given = ways.into_iter().filter_map(|way| {
            let is_typed = self.has(way.id);
            let name = match is_typed {
                true => format!("--{}", way.id.replace('_', "-")),
                false => way.variable.to_owned(),
            };
            Some((is_typed, name, way.value?))
        });
        let (typed, others): (Vec<_>, Vec<_>) = given.partition(|(is_typed, ..)| *is_typed);
        let mut left = if typed.is_empty() { others } else { typed };
        if let [(_, first, _), (_, second, _), ..] = &left[..] {
            return Err(Error::Usage(format!(
                "{first} and {second} both {does}: leave one out"
            )));
        }
        Ok(left.pop().map(|(_, name, value)| (name, value)))
    }
}

impl FromArgMatches for Typed {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids = matches.ids().map(clap::Id::as_str);
        Ok(Self(
            ids.filter(|id| typed(id)).map(str::to_owned).collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Typed {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// The error as it is where no variable is set: a usage line would call what they give required. One that they are the
/// reason for stays.
pub fn without_variables(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let command = Cli::command().mut_args(unset).mut_subcommands(verb_unset);
    let is_same = |other: &clap::Error| {
        let argument = |error: &clap::Error| error.get(ContextKind::InvalidArg).cloned();
        let is_about_the_same = other.kind() == error.kind() && argument(other) == argument(&error);
        // Who types the program's name alone wants to know what there is.
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

/// That a value which makes no sense comes from a variable: nobody has typed the option.
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

/// An option that takes what begins with a minus as its value, so that its own words say what is wrong with that; and
/// without its variable, where that is set to nothing.
pub fn as_meant(arg: Arg) -> Arg {
    let takes_one =
        arg.get_long().is_some() && arg.get_action().takes_values() && !arg.is_require_equals_set();
    let arg = match takes_one {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    unless_empty(arg)
}

fn unless_empty(arg: Arg) -> Arg {
    let value = arg.get_env().and_then(std::env::var_os);
    match value.is_some_and(|value| value.is_empty()) {
        true => arg.env(Resettable::Reset),
        false => arg,
    }
}

/// The same of all of a verb's options.
pub fn verb_as_meant(verb: Command) -> Command {
    verb.mut_args(as_meant).mut_subcommands(verb_as_meant)
}
