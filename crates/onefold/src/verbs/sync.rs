//! `onefold sync`: an exact replica of a repository.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_io::FileDir;
use onefold_store::replica::{self, SyncObserver, SyncOptions};
use onefold_store::{Entropy, Place};
use serde_json::json;

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::{human, place, repository, signal};

/// Make or update an exact replica of a repository, without its password
///
/// Objects are copied as they are, with frames and checksums verified on the way: containers first, snapshots last. An
/// interrupted sync goes on where it was. Nothing else writes into a replica. What the source lost stays there, unless
/// --delete is said.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The repository
    #[arg(long, value_name = "FOLDER")]
    pub from: PathBuf,

    /// Where the replica is, or is to be made
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,

    /// Delete from the replica what the repository does not have
    #[arg(long)]
    pub delete: bool,
}

/// Nothing is drawn; a signal ends it.
struct Quiet;

impl SyncObserver for Quiet {
    fn progress(&self, _: u64, _: u64) -> bool {
        !signal::raised()
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let _listening = signal::listen();
    let from = repository::place_at(&place::site(args.from.as_os_str(), global)?)?;
    let to = place::site(args.to.as_os_str(), global)?;
    let to = match to.folder() {
        Some(folder) => {
            let dir = FileDir::create(folder).map_err(onefold_store::Error::from)?;
            Place::local(Arc::new(dir), &Entropy::system())
        }
        None => to.place()?,
    };
    let options = SyncOptions {
        delete: args.delete,
        info: repository::pin_info("a sync"),
    };
    let report = match replica::sync(&from, &to, &options, &Quiet) {
        Err(_) if signal::raised() => return Err(onefold_backup::Error::Cancelled.into()),
        report => report?,
    };
    match out.json {
        true => out.json(&json!({
            "message_type": "summary",
            "objects_copied": report.copied,
            "bytes_copied": report.copied_bytes,
            "objects_deleted": report.deleted,
            "snapshots": report.snapshots,
            "damaged": report.damaged,
        }))?,
        false => out.say(format_args!(
            "{} copied, {}; {} deleted; the replica has {}",
            human::many(report.copied, "object"),
            human::bytes(report.copied_bytes),
            human::count(report.deleted),
            human::many(report.snapshots, "snapshot"),
        ))?,
    }
    if report.damaged.is_empty() {
        return Ok(Exit::Ok);
    }
    for what in &report.damaged {
        out.note(format_args!("not copied: {what}"));
    }
    Err(Error::Damaged(format!(
        "{} of the source cannot be copied",
        human::many(report.damaged.len() as u64, "object")
    )))
}
