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

use clap::{Command, Subcommand};

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Init(init::Args),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Snapshots(snapshots::Args),
    Ls(ls::Args),
    Find(find::Args),
    Diff(diff::Args),
    Dump(dump::Args),
    Restore(restore::Args),
    Mount(mount::Args),
    Forget(forget::Args),
    Prune(prune::Args),
    Check(check::Args),
    Repair(repair::Args),
    Stats(stats::Args),
    Estimate(estimate::Args),
    Tag(tag::Args),
    Copy(copy::Args),
    Sync(sync::Args),
    Key(key::Args),
    List(list::Args),
    Cat(cat::Args),
    Cache(cache::Args),
    Unlock(unlock::Args),
    WithLock(with_lock::Args),
    Volume(volume::Args),
    Version(version::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Runs a verb; `program` gives the definition of the command line.
pub fn run(verb: &Verb, global: &Global, program: fn() -> Command, out: &Out) -> Result<Exit> {
    volume::take_passwords_from(&global.password);
    match verb {
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
        Verb::Completions(args) => completions::run(args, program(), out),
        Verb::Man(args) => man::run(args, program()),
    }
}
