//! `onefold volume delete`: a volume goes, or a depot with all its volumes.

use onefold_volume::Depot;
use onefold_volume::depot::system_devices;
use serde_json::json;

use super::ask::ask;
use super::default_hints;
use super::head_name::HeadName;
use super::own_path::naming;
use super::source::open_folder;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::{self, Out};

/// Delete a volume, or a depot with all its volumes
///
/// A volume is named DEPOT:NAME; its snapshots and clones stay. `volume snapshot --delete` deletes a snapshot.
///
/// Nobody may have it attached, served or open. A data device is given back: what it held is discarded where the device
/// can do that. Files in the folder that are not the depot's stay.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the depot, and the volume where it alone is to go
    #[arg(value_name = "DEPOT[:VOLUME]")]
    pub name: HeadName,

    /// Confirm that all data of the volume or depot is to be lost
    #[arg(long)]
    pub yes: bool,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let depot = &args.name.depot;
    if args.name.volume.is_some() || args.name.snapshot.is_some() {
        return volume(args, out);
    }
    let folder = open_folder(depot)?;
    if !args.yes {
        return Err(Error::Usage(format!(
            "{} and all its data would be deleted: give --yes if that is meant",
            depot.display()
        )));
    }
    let left = Depot::delete(&folder, &system_devices()).map_err(|error| naming(error, depot))?;
    // A socket that a killed process left is nothing that anybody wants.
    let _ = std::fs::remove_file(depot.join("control"));
    let left: Vec<_> = left.into_iter().filter(|name| name != "control").collect();
    if left.is_empty() {
        let _ = std::fs::remove_dir(depot);
    }
    match out.json {
        true => out.json(&json!({
            "message_type": "deleted",
            "depot": depot,
            "left": left,
        }))?,
        false if left.is_empty() => out.say(format_args!("{} is deleted", depot.display()))?,
        false => out.say(format_args!(
            "{} is deleted; {} in its folder are not the depot's and stay",
            depot.display(),
            shown(&left)
        ))?,
    }
    Ok(Exit::Ok)
}

/// Some names, and how many more there are.
fn shown(names: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    let some: Vec<_> = names
        .iter()
        .take(SHOWN_MAX)
        .map(|name| out::safe(name))
        .collect();
    match names.len() {
        0..=SHOWN_MAX => some.join(", "),
        all => format!(
            "{} and {} more",
            some.join(", "),
            human::count((all - SHOWN_MAX) as u64)
        ),
    }
}

fn volume(args: &Args, out: &Out) -> Result<Exit> {
    let name = args.name.named_volume()?;
    if !args.yes {
        return Err(Error::Usage(format!(
            "volume {name} and its data would be deleted: give --yes if that is meant"
        )));
    }
    let done = ask(&args.name.depot, "delete", json!({"volume": name}))?;
    default_hints::set(&args.name.depot, name, &[])?;
    if out.json {
        out.json(&done)?
    } else {
        out.say(format_args!("volume {} is deleted", out::safe(name)))?
    }
    Ok(Exit::Ok)
}
