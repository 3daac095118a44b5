//! `onefold volume grow`: a larger volume, or room for more chunks, while the depot is in use.

use clap::ArgGroup;
use serde_json::json;

use super::ask::ask;
use super::head_name::HeadName;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::{self, Out};

/// Make a volume larger, or the depot's room for chunks
///
/// Both may be in use. An attached device has the new size at once, then grow its file system (resize2fs, xfs_growfs);
/// NBD clients see it when they connect again. A device given with --data is made longer first, by its own means.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("sizes").required(true).multiple(true).args(["size", "capacity"])))]
pub struct Args {
    /// Depot, and the volume (default: the first one)
    #[arg(value_name = "DEPOT[:VOLUME]")]
    pub name: HeadName,

    /// New size of the volume
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub size: Option<u64>,

    /// Bytes of chunks that the depot stores at most from now on
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub capacity: Option<u64>,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    if args.name.snapshot.is_some() {
        return Err(Error::Usage(
            "a snapshot stays as it is: clone it first".into(),
        ));
    }
    let request = json!({
        "volume": args.name.volume,
        "bytes": args.size,
        "capacity": args.capacity,
    });
    let done = ask(&args.name.depot, "grow", request)?;
    if out.json {
        out.json(&done)?;
        return Ok(Exit::Ok);
    }
    if let Some(bytes) = done["volume"]["bytes"].as_u64() {
        let name = out::safe(done["volume"]["name"].as_str().unwrap_or_default());
        out.say(format_args!(
            "volume {name} has {} now",
            human::bytes(bytes)
        ))?;
    }
    if let Some(bytes) = done["capacity_bytes"].as_u64() {
        out.say(format_args!(
            "the depot stores up to {} now",
            human::bytes(bytes)
        ))?;
    }
    Ok(Exit::Ok)
}
