//! `onefold completions`: prints scripts by which a shell completes the command line.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgGroup, Command, Id, ValueHint};
use clap_complete::Shell;

use crate::error::Result;
use crate::exit::Exit;
use crate::out::Out;

/// Print shell completions
///
/// For bash: onefold completions bash > ~/.local/share/bash-completion/completions/onefold;
/// for fish: onefold completions fish > ~/.config/fish/completions/onefold.fish;
/// for zsh: into a file `_onefold` in a folder of fpath, before compinit
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    pub shell: Shell,
}

pub fn run(args: &Args, program: Command, out: &Out) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&program), "onefold", &mut text);
    if args.shell == Shell::Zsh {
        text = options_behind_paths(&String::from_utf8_lossy(&text)).into_bytes();
    }
    out.bytes(&text)?;
    Ok(Exit::Ok)
}

/// Lets options follow paths in zsh: `*::` before a repeated argument means that only such arguments follow, `*:` that
/// options may, too.
fn options_behind_paths(script: &str) -> String {
    script.replace("\n'*::", "\n'*:")
}

/// Returns the definition without hidden options: they change nothing, so they are accepted and not proposed.
fn shown(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
    let arguments: Vec<_> = arguments.cloned().map(proposing).collect();
    let is_shown = |id: &Id| arguments.iter().any(|one| one.get_id() == id);
    // Conflicts refer to groups, too.
    let groups = command.get_groups().map(|group| {
        ArgGroup::new(group.get_id().clone())
            .args(group.get_args().filter(|id| is_shown(id)))
            .multiple(true)
    });
    let verbs = command.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(&arguments)
        .groups(groups)
        .subcommands(verbs.map(shown))
}

/// Returns the argument with the proposals of a shell, which follow from the name of its value in the help: files,
/// folders, or nothing where files would mislead.
fn proposing(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values();
    let Some(name) = arg
        .get_value_names()
        .and_then(|names| names.first())
        .filter(|_| takes_value)
    else {
        return arg;
    };
    let hint = match name.as_str() {
        "FILE" => ValueHint::FilePath,
        "FOLDER" => ValueHint::DirPath,
        "PATH" | "PATTERN" => ValueHint::AnyPath,
        "COMMAND" => ValueHint::CommandString,
        "WORDS" => return arg.value_parser(PossibleValuesParser::new(GROUPS)),
        _ => ValueHint::Other,
    };
    arg.value_hint(hint)
}

/// Useful values of `--group-by`.
const GROUPS: [&str; 5] = ["host", "paths", "tags", "host,paths", "host,paths,tags"];
