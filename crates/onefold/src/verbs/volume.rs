//! `onefold volume`: block devices. One file a verb in `volume/`.

mod attach;
mod daemon;
mod detach;
mod list;
mod places;
mod serve;

use clap::Subcommand;

use crate::cli::Global;
use crate::error::Result;
use crate::exit::Exit;
use crate::out::Out;

/// Block devices: serve them, attach them to this host
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

/// What to do with volumes.
#[derive(Subcommand, Debug)]
pub enum What {
    Attach(attach::Args),
    Detach(detach::Args),
    Serve(serve::Args),
    List,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let _ = global;
    match &args.what {
        What::Attach(args) => attach::run(args, out),
        What::Detach(args) => detach::run(args, out),
        What::Serve(args) => serve::run(args, out),
        What::List => list::run(out),
    }
}
