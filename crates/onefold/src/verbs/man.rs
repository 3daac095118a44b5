//! `onefold man`: writes the manual pages.

use std::path::PathBuf;

use clap::Command;

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Write manual pages into a folder
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder; made where it is missing
    pub folder: PathBuf,
}

pub fn run(args: &Args, program: Command) -> Result<Exit> {
    let what = || format!("write manual pages into {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).map_err(|e| Error::io(what(), e))?;
    let mut program = program.disable_help_subcommand(true);
    program.build();
    clap_mangen::generate_to(with_usages(program), &args.folder)
        .map_err(|e| Error::io(what(), e))?;
    Ok(Exit::Ok)
}

/// Sets usage lines as in `--help`: otherwise a page's synopsis lists all flags, without their values.
fn with_usages(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.override_usage(usage).mut_subcommands(with_usages)
}
