//! Sources of options: a typed option goes before a variable of the environment, and an empty variable counts as not
//! set.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::error::{Error, Result};

/// Ids of the options that stand on the command line. Must be flattened before the options themselves: reading an
/// option forgets where it came from.
#[derive(Clone, Default, Debug)]
pub struct Typed(Vec<String>);

/// A value that was given by an option or a variable, one of several for the same purpose.
pub struct GivenValue<T> {
    /// The option's id; empty where there is a variable only.
    pub id: &'static str,
    /// Environment variable for the same value.
    pub variable: &'static str,
    /// Value, if it is given.
    pub value: Option<T>,
}

impl Typed {
    /// Whether the option stands on the command line.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|typed| typed == id)
    }

    /// Returns the value from the command line, else from the environment, and the name under which the user knows its
    /// source. `does` says what two options would both do: "give a password".
    ///
    /// # Errors
    /// [`Error::Usage`] where one of the two sources gives two values.
    pub fn one_of<T>(
        &self,
        does: &str,
        ways: impl IntoIterator<Item = GivenValue<T>>,
    ) -> Result<Option<(String, T)>> {
        let given = ways.into_iter().filter_map(|way| {
            let is_typed = self.has(way.id);
            let name = if is_typed {
                format!("--{}", way.id.replace('_', "-"))
            } else {
                way.variable.to_owned()
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

/// Lets an option take a value that begins with a minus, so that the option's own message says what is wrong with it;
/// removes its variable, where that is empty.
pub fn as_meant(arg: Arg) -> Arg {
    let takes_one =
        arg.get_long().is_some() && arg.get_action().takes_values() && !arg.is_require_equals_set();
    let arg = if takes_one {
        arg.allow_negative_numbers(true)
    } else {
        arg
    };
    unless_empty(arg)
}

fn unless_empty(arg: Arg) -> Arg {
    let value = arg.get_env().and_then(std::env::var_os);
    if value.is_some_and(|value| value.is_empty()) {
        arg.env(Resettable::Reset)
    } else {
        arg
    }
}

/// Does the same for all options of a verb.
pub fn verb_as_meant(verb: Command) -> Command {
    verb.mut_args(as_meant).mut_subcommands(verb_as_meant)
}
