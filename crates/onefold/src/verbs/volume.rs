//! `onefold volume`: block devices. Each verb has a file in `volume/`.

mod ask;
mod attach;
pub mod backed_up;
mod changes;
mod check;
mod copying;
mod cp;
mod create;
mod daemon;
mod dd;
mod default_hints;
mod delete;
mod detach;
mod device_places;
mod dump;
mod filling;
mod grow;
mod head_name;
mod heads;
mod hint;
mod hint_requests;
mod hinted_file;
mod hinter;
mod hints_file;
mod key;
mod lasting_name;
mod list;
mod own_path;
mod places;
mod requested_head;
mod requests;
mod serve;
mod snapshot;
mod source;
mod unlocking;

use clap::Subcommand;

pub use head_name::HeadName;
pub use heads::now;
pub use source::open_depot;
pub use unlocking::begin as take_passwords_from;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 10 no depot, 11 in use (attached, served or mounted), \
12 wrong password, 13 damaged, 14 no space, 16 the host lacks something (/dev/fuse, loop devices, rights of root), 130 interrupted";

/// Block devices that store every byte once: make them, attach them to this host, serve them
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub what: VolumeAction,
}

/// Action on volumes.
#[derive(Subcommand, Debug)]
pub enum VolumeAction {
    Create(create::Args),
    Attach(attach::Args),
    Detach(detach::Args),
    Serve(serve::Args),
    List(list::Args),
    Snapshot(snapshot::SnapshotArgs),
    Clone(snapshot::CloneArgs),
    Grow(grow::Args),
    Stats(ask::StatsArgs),
    Hint(hint::HintArgs),
    Unhint(hint::UnhintArgs),
    Dd(dd::Args),
    Cp(cp::Args),
    Check(check::Args),
    Key(key::Args),
    /// Collect garbage: blocks that no volume needs any more
    Collect(ask::DepotArgs),
    /// Save metadata that is in RAM alone (backends inram and dtb)
    Save(ask::DepotArgs),
    Dump(dump::Args),
    Delete(delete::Args),
}

impl VolumeAction {
    /// Whether all that it does is to look.
    pub fn changes_nothing(&self) -> bool {
        matches!(
            self,
            Self::List(_) | Self::Stats(_) | Self::Check(_) | Self::Dump(_)
        )
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    unlocking::expect(global)?;
    match &args.what {
        VolumeAction::Create(args) => create::run(args, global, out),
        VolumeAction::Attach(args) if args.serves_itself() => daemon::run(args, out),
        VolumeAction::Attach(args) => attach::run(args, out),
        VolumeAction::Detach(args) => detach::run(args, out),
        VolumeAction::Serve(args) => serve::run(args, out),
        VolumeAction::List(args) => list::run(args, out),
        VolumeAction::Snapshot(args) => snapshot::snapshot(args, out),
        VolumeAction::Clone(args) => snapshot::clone(args, out),
        VolumeAction::Grow(args) => grow::run(args, out),
        VolumeAction::Stats(args) => ask::stats(args, out),
        VolumeAction::Hint(args) => hint::hint(args, out),
        VolumeAction::Unhint(args) => hint::unhint(args, out),
        VolumeAction::Dd(args) => dd::run(args, out),
        VolumeAction::Cp(args) => cp::run(args, out),
        VolumeAction::Collect(args) => ask::collect(args, out),
        VolumeAction::Check(args) => check::run(args, out),
        VolumeAction::Key(args) => key::run(args, out),
        VolumeAction::Save(args) => ask::save(args, out),
        VolumeAction::Dump(args) => dump::run(args, out),
        VolumeAction::Delete(args) => delete::run(args, out),
    }
}
