//! Where options come from: what is typed beats what the environment says, and a variable that is set to nothing says nothing.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::error::{Error, Result};

/// The options that stand on the command line, by their ids. Flattened before what it tells of: reading an option forgets where it came from.
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

    /// What the command line says, else what the environment does.
    ///
    /// # Errors
    /// [`Error::Usage`] where one of them says it in two ways.
    pub fn one_of<T>(&self, ways: impl IntoIterator<Item = Way<T>>) -> Result<Option<T>> {
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
                "{first} and {second} are given, and say the same thing: leave one out"
            )));
        }
        Ok(left.pop().map(|(.., value)| value))
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

/// An option without its variable, where that is set to nothing.
pub fn unless_empty(arg: Arg) -> Arg {
    let value = arg.get_env().and_then(std::env::var_os);
    match value.is_some_and(|value| value.is_empty()) {
        true => arg.env(Resettable::Reset),
        false => arg,
    }
}

/// The same of all of a verb's options.
pub fn verb_unless_empty(verb: Command) -> Command {
    verb.mut_args(unless_empty)
        .mut_subcommands(verb_unless_empty)
}
