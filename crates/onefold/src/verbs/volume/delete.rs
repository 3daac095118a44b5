//! `onefold volume delete`: a depot with all its volumes goes.

use std::path::PathBuf;

use onefold_io::FileDir;
use onefold_volume::depot::system_devices;
use onefold_volume::{Depot, Error as VolumeError};
use serde_json::json;

use super::source::{naming, no_depot};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;

/// Delete a depot with all its volumes
///
/// Nobody may have it attached, served or open. A data device is given back: what it held is discarded where the device
/// can do that. Files in the folder that are not the depot's stay.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,

    /// Confirm that all data of the depot is to be lost
    #[arg(long)]
    pub yes: bool,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let folder = match FileDir::open(&args.depot) {
        Err(error) if error.kind == onefold_io::ErrorKind::NotFound => {
            return Err(no_depot(&args.depot));
        }
        other => other.map_err(VolumeError::from)?,
    };
    if !args.yes {
        return Err(Error::Usage(format!(
            "{} and all its data would be deleted: give --yes if that is meant",
            args.depot.display()
        )));
    }
    let left =
        Depot::delete(&folder, &system_devices()).map_err(|error| naming(error, &args.depot))?;
    // A socket that a killed process left is nothing that anybody wants.
    let _ = std::fs::remove_file(args.depot.join("control"));
    let left: Vec<_> = left.into_iter().filter(|name| name != "control").collect();
    if left.is_empty() {
        let _ = std::fs::remove_dir(&args.depot);
    }
    match out.json {
        true => out.json(&json!({
            "message_type": "deleted",
            "depot": args.depot,
            "left": left,
        }))?,
        false if left.is_empty() => out.say(format_args!("{} is deleted", args.depot.display()))?,
        false => out.say(format_args!(
            "{} is deleted; {} in its folder are not the depot's and stay",
            args.depot.display(),
            left.join(", ")
        ))?,
    }
    Ok(Exit::Ok)
}
