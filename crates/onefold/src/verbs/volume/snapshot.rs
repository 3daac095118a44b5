//! `onefold volume snapshot` and `clone`: a volume as it is now, kept or written on.

use serde_json::json;

use super::ask::ask;
use super::head_name::HeadName;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::{self, Out};

/// Keep a volume as it is now
///
/// Everything that was answered before is in it. For a clean file system, wrap it in `fsfreeze --freeze` and
/// `--unfreeze`; without, it is as after a power cut. It takes no space until the volume changes.
#[derive(clap::Args, Debug)]
pub struct SnapshotArgs {
    /// Depot, volume (default: the first one) and name of the snapshot
    #[arg(value_name = "DEPOT[:VOLUME]@NAME")]
    pub name: HeadName,

    /// Delete the snapshot
    #[arg(long)]
    pub delete: bool,
}

/// Make a volume of a snapshot, or of another volume as it is now
///
/// The new volume takes no space until one of the two changes. They may be deleted in any order.
#[derive(clap::Args, Debug)]
pub struct CloneArgs {
    /// Snapshot or volume to begin with
    #[arg(value_name = "DEPOT[:VOLUME][@SNAPSHOT]")]
    pub from: HeadName,

    /// Depot and name of the new volume
    #[arg(value_name = "DEPOT:NAME")]
    pub to: HeadName,
}

/// Runs `volume snapshot`.
pub fn snapshot(args: &SnapshotArgs, out: &Out) -> Result<Exit> {
    let name = &args.name;
    let Some(snapshot) = &name.snapshot else {
        return Err(Error::Usage(format!(
            "{} names no snapshot: give DEPOT@NAME",
            name.shown()
        )));
    };
    let request = json!({"volume": name.volume, "snapshot": snapshot});
    let (what, did) = if args.delete {
        ("delete", "deleted")
    } else {
        ("snapshot", "made")
    };
    let done = ask(&name.depot, what, request)?;
    if out.json {
        out.json(&done)?
    } else {
        let head = out::safe(done["name"].as_str().unwrap_or_default());
        out.say(format_args!("snapshot {head} is {did}"))?;
    }
    Ok(Exit::Ok)
}

/// Runs `volume clone`.
pub fn clone(args: &CloneArgs, out: &Out) -> Result<Exit> {
    let (from, to) = (&args.from, &args.to);
    let same = |name: &HeadName| name.depot.canonicalize().unwrap_or(name.depot.clone());
    if same(from) != same(to) {
        return Err(Error::Usage(format!(
            "a clone lies in the depot of what it is made of: give {}:NAME",
            from.depot.display()
        )));
    }
    let request = json!({
        "volume": from.volume,
        "snapshot": from.snapshot,
        "name": to.named_volume()?,
    });
    let done = ask(&from.depot, "clone", request)?;
    if out.json {
        out.json(&done)?
    } else {
        let head = out::safe(done["name"].as_str().unwrap_or_default());
        out.say(format_args!("volume {head} is made of {}", from.shown()))?;
    }
    Ok(Exit::Ok)
}
