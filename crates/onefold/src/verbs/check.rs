//! `onefold check`: verifies that everything is as it was written.

use std::time::{Duration, Instant};

use onefold_backup::roots::SnapshotRoots;
use onefold_store::{CheckDepth, CheckReport, Entropy, Error as StoreError, Repository};
use serde_json::{Value, json};

use crate::error::{self, Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{self, many};
use crate::hurt::{self, Hurts};
use crate::out::Out;
use crate::sweeping::SweepWatch;
use crate::{remedy, repository};

/// Check that everything is as it was written
///
/// Without flags: all snapshots, all metadata, every container's table, and that every reference leads somewhere.
/// Damage ends with exit code 13 and a list of the files that it hurts.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Also read and verify all contents
    #[arg(long)]
    pub read_data: bool,

    /// Also read and verify a part: the 2nd of 7 (2/7), or some percent (10%) or bytes (50G) at random
    #[arg(long, value_name = "N/M|PERCENT|SIZE", conflicts_with = "read_data", value_parser = parse_subset)]
    pub read_data_subset: Option<Subset>,

    /// Taken as restic's: what is checked is read from the store, and never from copies on this machine
    #[arg(long, hide = true)]
    pub with_cache: bool,
}

/// Which part of the containers is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Subset {
    /// This part of that many.
    Part(u32, u32),
    /// A random part of about this share.
    Share(f64),
    /// A random part of about this many bytes.
    Bytes(u64),
}

fn parse_subset(text: &str) -> Result<Subset, String> {
    if text.ends_with('%') {
        return match human::parse_percent(text)? {
            0.0 => Err("0% is nothing to read".into()),
            share => Ok(Subset::Share(share)),
        };
    }
    let wrong = || format!("{text:?} is neither like 2/7 nor like 10% nor like 50G");
    let Some((n, m)) = text.split_once('/') else {
        let bytes = human::parse_bytes(text).ok().filter(|bytes| *bytes > 0);
        return bytes.map(Subset::Bytes).ok_or_else(wrong);
    };
    match (n.parse(), m.parse()) {
        (Ok(n), Ok(m)) if 1 <= n && n <= m => Ok(Subset::Part(n, m)),
        _ => Err(wrong()),
    }
}

impl Args {
    fn depth(&self, repository: &Repository) -> Result<CheckDepth> {
        Ok(match self.read_data_subset {
            _ if self.read_data => CheckDepth::Data { part: 1, of: 1 },
            None => CheckDepth::Structure,
            Some(Subset::Part(part, of)) => CheckDepth::Data { part, of },
            Some(Subset::Share(share)) => at_random(share)?,
            Some(Subset::Bytes(bytes)) => {
                let stored: u64 = repository.containers()?.iter().map(|(_, len)| len).sum();
                at_random(bytes as f64 / stored.max(1) as f64)?
            }
        })
    }
}

/// Returns the depth for a random share of all containers.
fn at_random(share: f64) -> Result<CheckDepth> {
    Ok(CheckDepth::Sample {
        per_million: (share * 1e6).ceil().clamp(1.0, 1e6) as u32,
        seed: Entropy::system().try_u64().map_err(StoreError::from)?,
    })
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let started = Instant::now();
    let repository = repository::open(global, "a check")?;
    let depth = args.depth(&repository)?;
    let watch = std::cell::RefCell::new(SweepWatch::new(out, Duration::ZERO));
    let mut found = |damage: &onefold_store::Error| {
        let message = error::chain_of(damage);
        match out.json {
            true => out.note_json(&json!({"message_type": "error", "message": message})),
            false if damage.is_other_version() => {
                watch.borrow().note(format_args!("not read: {message}"))
            }
            false => watch.borrow().note(format_args!("damaged: {message}")),
        }
    };
    let mut report = repository.check(
        &SnapshotRoots,
        depth,
        &mut |progress| watch.borrow_mut().show(progress),
        &mut found,
    )?;
    drop(watch);
    let hurts = hurt::print(&repository, &report, out)?;
    if out.json {
        out.json(&hurts.added_to(summary(&report)))?;
    }
    print_checked(&report, depth, started.elapsed(), out)?;
    end(&mut report, hurts, out)
}

fn summary(report: &CheckReport) -> Value {
    json!({
        "message_type": "summary",
        "num_errors": report.damage.len(),
        "snapshots": report.roots,
        "containers": report.containers,
        "chunks_read": report.chunks_read,
        "broken_packs": report.broken.iter().map(|id| id.to_string()).collect::<Vec<_>>(),
        "set_aside": report.set_aside.iter().map(|aside| &aside.object).collect::<Vec<_>>(),
        "set_aside_bytes": report.set_aside.iter().map(|aside| aside.bytes).sum::<u64>(),
        "suggest_repair_index": false,
        "suggest_prune": false,
    })
}

/// Prints how much was looked at, and how closely.
fn print_checked(
    report: &CheckReport,
    depth: CheckDepth,
    elapsed: Duration,
    out: &Out,
) -> Result<()> {
    out.say(format_args!(
        "checked    {}, {} in {}",
        many(report.roots, "snapshot"),
        many(report.containers, "container"),
        human::duration(elapsed)
    ))?;
    match depth {
        CheckDepth::Structure => out.say("contents   not read; --read-data verifies them too")?,
        CheckDepth::Data { part, of } if of > 1 => out.say(format_args!(
            "contents   part {part} of {of}: {} verified",
            many(report.chunks_read, "chunk")
        ))?,
        CheckDepth::Data { .. } => out.say(format_args!(
            "contents   {} verified",
            many(report.chunks_read, "chunk")
        ))?,
        CheckDepth::Sample { .. } => out.say(format_args!(
            "contents   {} verified, in {} of {}",
            many(report.chunks_read, "chunk"),
            human::count(report.containers_read),
            many(report.containers, "container")
        ))?,
    }
    Ok(())
}

/// Prints the containers that a repair set aside, and what will be done with them.
fn print_set_aside(report: &CheckReport, out: &Out) -> Result<()> {
    for aside in &report.set_aside {
        let size = human::bytes(aside.bytes);
        out.say(format_args!("set aside  {}, {size}", aside.object))?;
    }
    if !report.set_aside.is_empty() {
        let (which, it, they) = match report.set_aside.len() as u64 {
            1 => ("1 container is".into(), "it", "it"),
            more => (
                format!("{} containers are", human::count(more)),
                "them",
                "they",
            ),
        };
        out.note(format_args!(
            "{which} set aside by a repair: should all of {it} be readable again, `onefold repair` takes {it} back; once a check with --read-data finds that no snapshot \
             misses anything, {they} can be deleted"
        ));
    }
    Ok(())
}

/// Prints whether everything is as it was written.
fn end(report: &mut CheckReport, hurts: Hurts, out: &Out) -> Result<Exit> {
    let damages = report.damage.len() as u64;
    if report.has_no_copy {
        out.note("the second copy of the configuration, config.copy, is missing: `onefold repair` makes it");
    }
    print_set_aside(report, out)?;
    if damages == 0 && report.damaged_roots.is_empty() {
        out.say("no damage was found")?;
        return match report.other_versions.drain(..).next() {
            Some(unknown) => Err(unknown.into()),
            None => Ok(Exit::Ok),
        };
    }
    let found = many(damages, "damaged place");
    let is_folder = |error: &StoreError| matches!(error, StoreError::MissingFolder { .. });
    Err(Error::Hurt {
        what: match hurts.count() {
            0 if report.damage.iter().any(is_folder) => {
                format!("found {found}; which snapshots there were is not known")
            }
            0 => format!("found {found}, but all that snapshots refer to can be read"),
            _ => format!("found {found}; hurt: {}", hurts.words()),
        },
        remedy: if report.is_mendable {
            Some(remedy::REPAIR.into())
        } else {
            remedy::of_what_is_left(report, hurts)
        },
    })
}
