//! `onefold volume list`: lists devices that are attached to this host, or what a depot holds.

use std::path::{Path, PathBuf};

use onefold_backup::Time;
use onefold_export::{attach, control};
use serde_json::{Value, json};

use super::ask::ask;
use super::places;
use crate::error::Result;
use crate::exit::Exit;
use crate::human;
use crate::out::{self, Out};
use crate::when;

/// List the devices that are attached to this host, or the volumes and snapshots of a depot
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of a depot: lists its volumes and snapshots
    #[arg(value_name = "DEPOT")]
    pub depot: Option<PathBuf>,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    if let Some(depot) = &args.depot {
        return volumes(depot, out);
    }
    let all: Vec<Value> = attached().into_iter().map(|(_, status)| status).collect();
    if out.json {
        out.json(&all)?;
        return Ok(Exit::Ok);
    }
    for one in &all {
        if one["dead"] == true {
            let device = out::safe(one["device"].as_str().unwrap_or_default());
            out.line(format_args!(
                "{device}  its process was killed: unmount it, then `onefold volume detach {device}`"
            ))?;
            continue;
        }
        let text = |name: &str| out::safe(one[name].as_str().unwrap_or_default());
        let bytes = human::bytes(one["bytes"].as_u64().unwrap_or(0));
        let (device, source) = (text("device"), text("source"));
        let volume = match text("volume") {
            raw if raw == "raw" => String::new(),
            volume => format!(":{volume}"),
        };
        out.line(format_args!("{device}  {bytes}  {source}{volume}"))?;
    }
    Ok(Exit::Ok)
}

/// Lists volumes and snapshots, each snapshot below its volume.
fn volumes(depot: &Path, out: &Out) -> Result<Exit> {
    let mut all = ask(depot, "volumes", json!({}))?;
    if let Some(all) = all.as_array_mut() {
        all.sort_by_key(|head| {
            let name = head["name"].as_str().unwrap_or_default().to_owned();
            let volume = name.split('@').next().unwrap_or_default().to_owned();
            (volume, name.contains('@'), head["created"].as_u64())
        });
    }
    if out.json {
        out.json(&all)?;
        return Ok(Exit::Ok);
    }
    for head in all.as_array().into_iter().flatten() {
        let name = out::safe(head["name"].as_str().unwrap_or_default());
        let bytes = human::bytes(head["bytes"].as_u64().unwrap_or(0));
        let made = match head["created"].as_u64() {
            None | Some(0) => String::new(),
            Some(seconds) => when::local(Time {
                secs: i64::try_from(seconds).unwrap_or(i64::MAX),
                nanos: 0,
            }),
        };
        out.line(
            format_args!("{name:<32}  {bytes:>10}  {made}")
                .to_string()
                .trim_end(),
        )?;
    }
    Ok(Exit::Ok)
}

/// Returns the control socket and status of each daemon, and devices of those that were killed, in the order of their
/// folders.
pub fn attached() -> Vec<(PathBuf, Value)> {
    let mut folders = places::there();
    folders.sort();
    let status = |folder: &PathBuf| {
        let control = attach::control_in(folder)?;
        let answer = control::ask(&control, "status", json!({})).ok().flatten();
        let dead = || Some(json!({"device": attach::dead_in(folder)?, "dead": true}));
        Some((control, answer.or_else(dead)?))
    };
    folders.iter().filter_map(status).collect()
}
