//! `onefold sync`: an exact replica of a repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_backup::Progress;
use onefold_io::FileDir;
use onefold_store::replica::{self, SyncObserver, SyncOptions};
use onefold_store::{Entropy, Place};
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;
use crate::progress::{Doing, Meter};
use crate::site::{Relation, Site};
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

/// Counts for the progress line; a signal ends it.
struct Counting<'a>(&'a Progress);

impl SyncObserver for Counting<'_> {
    fn begin(&self, objects: u64, bytes: u64) {
        self.0.files_total.store(objects, Relaxed);
        self.0.bytes_total.store(bytes, Relaxed);
        self.0.totals_known.store(true, Relaxed);
    }

    fn done(&self, bytes: u64) -> bool {
        self.0.files_done.fetch_add(1, Relaxed);
        self.0.bytes_moved.fetch_add(bytes, Relaxed);
        self.0.bytes_done.fetch_add(bytes, Relaxed);
        !self.0.is_cancelled()
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let (from_site, to_site) = (
        place::site(args.from.as_os_str(), global)?,
        place::site(args.to.as_os_str(), global)?,
    );
    refuse_own(&from_site, &to_site)?;
    let from = repository::place_at(&from_site, global)?;
    let to = match to_site.folder() {
        Some(folder) => {
            let dir = FileDir::create(folder).map_err(|error| cannot_make(folder, error))?;
            Place::local(Arc::new(dir), &Entropy::system())
        }
        None => to_site.settled(to_site.place()?, global)?,
    };
    let options = SyncOptions {
        delete: args.delete,
        info: repository::pin_info("a sync"),
    };
    let meter = Meter::new(Doing::Sync, out);
    let counting = Counting(&meter.progress);
    let report = match meter.run(|| replica::sync(&from, &to, &options, &counting)) {
        Err(_) if signal::raised() => return Err(onefold_backup::Error::Cancelled.into()),
        report => report?,
    };
    if out.json {
        out.json(&json!({
            "message_type": "summary",
            "objects_copied": report.copied,
            "bytes_copied": report.copied_bytes,
            "objects_deleted": report.deleted,
            "snapshots": report.snapshots,
            "damaged": report.damaged,
        }))?
    } else {
        out.say(format_args!(
            "{} copied, {}; {} deleted; the replica has {}",
            human::many(report.copied, "object"),
            human::bytes(report.copied_bytes),
            human::count(report.deleted),
            human::many(report.snapshots, "snapshot"),
        ))?
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

/// Refuses a replica in the place of the repository itself.
fn refuse_own(from: &Site, to: &Site) -> Result<()> {
    let (from_name, to_name) = (from.display(), to.display());
    match from.relation_to(to) {
        Relation::Apart => Ok(()),
        Relation::Same => Err(Error::Usage(format!(
            "{to_name} is the repository itself: a replica needs a place of its own"
        ))),
        Relation::Inside => Err(Error::Usage(format!(
            "{to_name} lies in the repository {from_name}: a replica needs a place of its own, outside of it"
        ))),
    }
}

fn cannot_make(folder: &Path, error: onefold_io::Error) -> Error {
    let what = format!("make the folder {}", folder.display());
    match error.source {
        Some(source) => Error::io(what, source),
        None => Error::Failed(format!("{what}: {error}")),
    }
}
