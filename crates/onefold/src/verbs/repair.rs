//! `onefold repair`: rebuilds what can be rebuilt, and reports exactly what cannot.

mod snapshots;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::ValueEnum;
use onefold_backup::roots::SnapshotRoots;
use onefold_store::container::object_name;
use onefold_store::{RepairReport, Repository};
use serde_json::{Value, json};

use crate::cli::typed::Typed;
use crate::error::{self, Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{self, many};
use crate::hurt::{self, Hurts};
use crate::out::Out;
use crate::patience::Patience;
use crate::select::FilterArgs;
use crate::sweeping::SweepWatch;
use crate::{paths, remedy, repository};

/// Rebuild what can be rebuilt, and list what is lost
///
/// Reads everything. Good chunks of damaged containers are saved into new ones, small objects are restored from their
/// other copies (the configuration from a key slot, if need be), and the index is rebuilt. Containers that an earlier
/// repair set aside are tried once more. What stays lost is listed
/// file by file; to get it back, back up the same files again while they are still there. `repair snapshots`, after
/// that, makes new snapshots without what is lost.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub typed: Typed,

    /// Part of the repository to repair
    #[arg(value_name = "WHAT", default_value = "all")]
    pub what: RepairPart,

    /// For `repair snapshots`: beginnings of ids, or "latest"; without, all that the filters let through
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// For `repair snapshots`: drop the snapshots that new ones replace
    #[arg(long)]
    pub forget: bool,

    /// For `repair snapshots`: only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Advice on how long containers that were set aside are of use.
pub const ASIDE_UNTIL: &str =
    "once `onefold check --read-data` finds that no snapshot misses anything, it can be deleted";

/// Part of the repository to repair.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairPart {
    /// Everything
    #[value(alias = "packs")]
    All,
    /// Only the index: delete it and build it anew from the containers
    Index,
    /// Snapshots: make new ones without what is lost
    Snapshots,
}

impl Args {
    fn is_of_snapshots(&self) -> bool {
        // A variable with the host is for other verbs, too.
        let has_filter = ["filter_host", "filter_tag", "filter_path"]
            .iter()
            .any(|id| self.typed.has(id));
        has_filter || self.forget || self.dry_run || !self.snapshots.is_empty()
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    if args.what == RepairPart::Snapshots {
        return snapshots::run(args, global, out);
    }
    if args.is_of_snapshots() {
        return Err(Error::Usage(
            "snapshots, filters, --forget and --dry-run are for `repair snapshots`; `repair` and `repair packs` look at all containers, and take no ids".into(),
        ));
    }
    let repository = repository::open_to_repair(global, "a repair")?;
    let patience = Patience::new(global, out);
    if args.what == RepairPart::Index {
        patience.keep(|| Ok(repository.rebuild_index()?))?;
        if out.json {
            out.json(&json!({"message_type": "summary", "num_errors": 0}))?;
        }
        out.say("the index was rebuilt")?;
        return Ok(Exit::Ok);
    }
    let report = patience.keep(|| {
        let mut watch = SweepWatch::new(out, Duration::from_secs(60));
        Ok(repository.repair(&SnapshotRoots, &mut watch)?)
    })?;
    print(&repository, report, out)
}

fn print(repository: &Repository, mut report: RepairReport, out: &Out) -> Result<Exit> {
    print_small_objects(&report, out)?;
    tell("damaged", &report.found, out)?;
    print_containers(&report, out)?;
    out.say("rebuilt the index")?;
    report
        .other_versions
        .append(&mut report.left.other_versions);
    tell("left alone", &report.other_versions, out)?;
    tell("still damaged", &report.left.damage, out)?;
    let hurts = hurt::print(repository, &report.left, out)?;
    if out.json {
        out.json(&hurts.added_to(summary(&report)))?;
    }
    end(report, hurts, out)
}

/// Prints errors, each with its subject.
fn tell(what: &str, errors: &[onefold_store::Error], out: &Out) -> Result<()> {
    errors.iter().try_for_each(|error| {
        let message = error::chain_of(error);
        if out.json {
            out.note_json(&json!({"message_type": "error", "message": message}));
        }
        out.say(format_args!("{what}: {message}"))
    })
}

/// Prints the results for all objects except containers.
fn print_small_objects(report: &RepairReport, out: &Out) -> Result<()> {
    for folder in &report.made_folders {
        out.say(format_args!(
            "made the folder {folder}, which was missing: nothing can have been in it"
        ))?;
    }
    for object in &report.restored_objects {
        out.say(format_args!(
            "restored {} from another copy of it",
            paths::shown(OsStr::new(object).as_encoded_bytes())
        ))?;
    }
    for object in &report.removed_objects {
        out.say(format_args!(
            "removed {object}, which was damaged and has no second copy: {}",
            match object.as_str() {
                "sketch" => "the next backup makes a new one, and may find fewer duplicates",
                _ => "the next prune judges anew what was on the list",
            }
        ))?;
    }
    Ok(())
}

/// Prints the containers that were replaced, and those among them that are kept beside the others.
fn print_containers(report: &RepairReport, out: &Out) -> Result<()> {
    let (replaced, aside) = (&report.replaced_containers, &report.set_aside);
    let count = (replaced.len() + aside.len()) as u64;
    if count > 0 {
        out.say(format_args!(
            "replaced {}, saving {} from {}",
            many(count, "damaged container"),
            many(report.saved_chunks, "chunk"),
            if count == 1 { "it" } else { "them" }
        ))?;
    }
    for one in aside {
        out.say(format_args!(
            "{}: the device does not give all of it, or nothing in it could be saved, so it was kept under this name. Should it be readable \
             again, the next `onefold repair` takes it back; {ASIDE_UNTIL}",
            one.object
        ))?;
    }
    for id in &report.taken_back {
        let object = object_name(*id);
        out.say(format_args!(
            "{object}: an earlier repair set it aside; all of it is there now, so it was taken back"
        ))?;
    }
    for (aside, why) in &report.still_aside {
        out.say(format_args!(
            "{}, {}: an earlier repair set it aside, and it stays so ({}); {ASIDE_UNTIL}",
            aside.object,
            human::bytes(aside.bytes),
            error::chain_of(why)
        ))?;
    }
    Ok(())
}

fn summary(report: &RepairReport) -> Value {
    let aside = report.set_aside.iter();
    json!({
        "message_type": "summary",
        "num_errors": report.left.damage.len(),
        "restored_objects": report.restored_objects,
        "removed_objects": report.removed_objects,
        "made_folders": report.made_folders,
        "replaced_containers": report.replaced_containers.len(),
        "set_aside": aside.map(|one| &one.object).collect::<Vec<_>>(),
        "taken_back": report.taken_back.iter().map(|id| object_name(*id)).collect::<Vec<_>>(),
        "still_aside": report.still_aside.iter().map(|(aside, _)| &aside.object).collect::<Vec<_>>(),
        "saved_chunks": report.saved_chunks,
    })
}

/// Prints whether everything is whole again.
fn end(mut report: RepairReport, hurts: Hurts, out: &Out) -> Result<Exit> {
    let damages = report.left.damage.len() as u64;
    if damages == 0 {
        if let Some(unknown) = report.other_versions.drain(..).next() {
            return Err(unknown.into());
        }
        if hurts.count() == 0 {
            out.say("everything is whole")?;
            return Ok(Exit::Ok);
        }
    }
    let places = match damages {
        1 => "1 damaged place is".into(),
        more => format!("{} damaged places are", human::count(more)),
    };
    Err(Error::Hurt {
        what: format!("{places} beyond repair; hurt: {}", hurts.words()),
        remedy: remedy::of_what_is_left(&report.left, hurts),
    })
}
