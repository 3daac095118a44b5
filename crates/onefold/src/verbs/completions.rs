//! `onefold completions`: what a shell needs to complete the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::Result;
use crate::exit::Exit;
use crate::out::Out;

/// Print shell completions
///
/// For bash: onefold completions bash > ~/.local/share/bash-completion/completions/onefold
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    pub shell: Shell,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onefold", &mut text);
    out.bytes(&text)?;
    Ok(Exit::Ok)
}
