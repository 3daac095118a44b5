//! `onefold man`: writes the manual pages.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::error::{Error, Result};
use crate::exit::Exit;

/// Write manual pages into a folder
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder; made where it is missing
    pub folder: PathBuf,
}

pub fn run(args: &Args) -> Result<Exit> {
    let what = || format!("write manual pages into {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).map_err(|e| Error::io(what(), e))?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|e| Error::io(what(), e))?;
    Ok(Exit::Ok)
}
