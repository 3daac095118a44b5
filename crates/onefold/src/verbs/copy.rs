//! `onefold copy`: snapshots of another repository into this one.

use std::ffi::OsString;
use std::sync::atomic::Ordering::Relaxed;

use onefold_backup::copy::{Copier, CopyStats};
use onefold_backup::snapshots::Brief;
use onefold_store::Repository;
use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::from::FromArgs;
use crate::global::Global;
use crate::out::Out;
use crate::progress::{Doing, Meter};
use crate::select::{self, FilterArgs, Unread, short};
use crate::{human, repository};

/// Copy snapshots from another repository into this one
///
/// Each chunk is read, verified and stored under this repository's keys, once. Snapshots that were copied before are
/// passed over, so an interrupted copy goes on where it was. Into a repository that was made with `init --like` only
/// what is new is read.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginnings of ids, or "latest"; all snapshots without
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub filter: FilterArgs,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let to = repository::open(global, "a copy")?;
    let from = args.from.open(global, "a copy to another repository")?;
    let filter = args.filter.filter()?;
    let (chosen, mut unread) = select::many_or_not(&from, &args.snapshots, &filter, out)?;
    let meter = Meter::new(Doing::Copy, out);
    let stats = meter.run(|| copy(chosen, (&from, &to), &meter, &mut unread, out))?;
    if out.json {
        out.json(&json!({
            "message_type": "summary",
            "snapshots_copied": stats.snapshots,
            "chunks_read": stats.chunks_read,
            "bytes_read": stats.bytes_read,
            "bytes_new": stats.bytes_new,
            "bytes_stored": stats.bytes_stored,
        }))?
    } else {
        out.say(format_args!(
            "{} copied: {} read, {} stored",
            human::many(stats.snapshots, "snapshot"),
            human::bytes(stats.bytes_read),
            human::bytes(stats.bytes_stored)
        ))?
    }
    unread.end()
}

fn copy(
    chosen: Vec<Brief>,
    (from, to): (&Repository, &Repository),
    meter: &Meter<'_>,
    unread: &mut Unread,
    out: &Out,
) -> Result<CopyStats> {
    let progress = &meter.progress;
    // A copy that is damaged is made again.
    let mut copier = Copier::new(from, to, &mut |_, _| {})?;
    let bytes = chosen.iter().map(|brief| brief.bytes).sum();
    progress.files_total.store(chosen.len() as u64, Relaxed);
    progress.bytes_total.store(bytes, Relaxed);
    progress.totals_known.store(true, Relaxed);
    for brief in chosen {
        match copier.copy(brief.id, progress) {
            Ok(Some(copied)) => {
                if out.json {
                    let (from, to) = (brief.id.to_string(), copied.to_string());
                    out.json(&json!({"message_type": "copied", "from": from, "to": to}))?;
                } else {
                    let (from, to) = (short(&brief.id), short(&copied));
                    out.say(format_args!("snapshot {from} is copied as {to}"))?;
                }
            }
            Ok(None) => out.say(format_args!(
                "snapshot {} was copied before",
                short(&brief.id)
            ))?,
            Err(error) => Unread::add_lost(unread, brief.id, error, out)?,
        }
    }
    Ok(copier.stats())
}
