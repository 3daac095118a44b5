//! `onefold volume list`: lists devices that are attached to this host.

use std::path::PathBuf;

use onefold_export::{attach, control};
use serde_json::{Value, json};

use super::places;
use crate::error::Result;
use crate::exit::Exit;
use crate::human;
use crate::out::{self, Out};

pub fn run(out: &Out) -> Result<Exit> {
    let all = attached();
    if out.json {
        out.json(&all)?;
        return Ok(Exit::Ok);
    }
    for one in &all {
        let text = |name: &str| out::safe(one[name].as_str().unwrap_or_default());
        let bytes = human::bytes(one["volumes"][0]["bytes"].as_u64().unwrap_or(0));
        out.line(format_args!(
            "{}  {bytes}  {}",
            text("device"),
            text("source")
        ))?;
    }
    Ok(Exit::Ok)
}

/// Returns the status of each daemon, in the order of their folders.
fn attached() -> Vec<Value> {
    let folders = std::fs::read_dir(places::all())
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<_> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    let controls = folders
        .iter()
        .filter_map(|folder| attach::control_in(folder));
    let ask = |control: PathBuf| control::ask(&control, "status", json!({}));
    controls
        .filter_map(|control| ask(control).ok().flatten())
        .collect()
}
