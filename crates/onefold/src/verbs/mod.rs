//! The verbs: each file holds one verb's flags and its work.

pub mod backup;
pub mod cache;
pub mod cat;
pub mod check;
pub mod completions;
pub mod copy;
pub mod diff;
pub mod doctor;
pub mod dump;
pub mod estimate;
pub mod find;
pub mod forget;
pub mod init;
pub mod key;
pub mod list;
pub mod ls;
pub mod man;
pub mod mount;
pub mod prune;
pub mod repair;
pub mod restore;
pub mod snapshots;
pub mod stats;
pub mod sync;
pub mod tag;
pub mod unlock;
pub mod version;
pub mod volume;
pub mod with_lock;

use crate::cli::{Cli, Verb};
use crate::error::Result;
use crate::exit::Exit;
use crate::out::Out;

/// Runs the verb of the command line.
pub fn run(cli: &Cli, out: &Out) -> Result<Exit> {
    let global = &cli.global;
    volume::take_passwords_from(&global.password);
    match &cli.verb {
        Verb::Init(args) => init::run(args, global, out),
        Verb::Backup(args) => backup::run(args, global, out),
        Verb::Snapshots(args) => snapshots::run(args, global, out),
        Verb::Ls(args) => ls::run(args, global, out),
        Verb::Find(args) => find::run(args, global, out),
        Verb::Copy(args) => copy::run(args, global, out),
        Verb::Sync(args) => sync::run(args, global, out),
        Verb::Diff(args) => diff::run(args, global, out),
        Verb::Doctor(args) => doctor::run(args, global, out),
        Verb::Dump(args) => dump::run(args, global, out),
        Verb::Estimate(args) => estimate::run(args, global, out),
        Verb::Restore(args) => restore::run(args, global, out),
        Verb::Forget(args) => forget::run(args, global, out),
        Verb::Prune(args) => prune::run(args, global, out),
        Verb::Check(args) => check::run(args, global, out),
        Verb::Repair(args) => repair::run(args, global, out),
        Verb::Stats(args) => stats::run(args, global, out),
        Verb::Key(args) => key::run(args, global, out),
        Verb::List(args) => list::run(args, global, out),
        Verb::Mount(args) => mount::run(args, global, out),
        Verb::Cache(args) => cache::run(args, global, out),
        Verb::Cat(args) => cat::run(args, global, out),
        Verb::Unlock(args) => unlock::run(args, global, out),
        Verb::WithLock(args) => with_lock::run(args, global, out),
        Verb::Version(_) => version::run(out),
        Verb::Volume(args) => volume::run(args, global, out),
        Verb::Tag(args) => tag::run(args, global, out),
        Verb::Completions(args) => completions::run(args, out),
        Verb::Man(args) => man::run(args),
    }
}
