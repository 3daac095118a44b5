//! `onefold repair snapshots`: new snapshots without what is lost.

use onefold_backup::repair::{Repaired, repair};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots;
use onefold_store::CheckDepth;
use serde_json::json;

use super::Args;
use crate::cli::Global;
use crate::error::{Error, Result, chain_of};
use crate::exit::Exit;
use crate::human::many;
use crate::out::Out;
use crate::select::{self, short};
use crate::{hurt, repository, when};

/// Looks at every reference, and makes what is left of each hurt snapshot a new one.
pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a repair of snapshots")?;
    let report = repository.check(
        &SnapshotRoots,
        CheckDepth::Structure,
        &mut |_| {},
        &mut |_| {},
    )?;
    // The next try, or the next cable, may bring it: nothing is given up for that.
    if !args.dry_run
        && let Some(error) = report.damage.iter().find(|error| error.is_unreadable())
    {
        return Err(Error::Failed(format!(
            "no snapshot was made, and none dropped, since the device does not give all now ({}): `onefold repair` sets aside what it never gives",
            chain_of(error)
        )));
    }
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    let (mut changed, mut gone) = (0, 0);
    for named in select::many(&repository, &args.snapshots, &args.filter.filter()?, out)? {
        let Some(named) = snapshots::load_if_there(&repository, named.id)? else {
            continue;
        };
        let (id, at) = (named.id.to_string(), when::local(named.snapshot.time));
        let new = match repair(&repository, &named, &is_lost, args.dry_run)? {
            Repaired::Whole => continue,
            Repaired::Gone => {
                gone += 1;
                out.say(format_args!(
                    "nothing of snapshot {} of {at} can be found any more",
                    short(&named.id)
                ))?;
                None
            }
            Repaired::Anew(hurts, new) => {
                changed += 1;
                out.say(format_args!(
                    "lost of snapshot {} of {at}:",
                    short(&named.id)
                ))?;
                for hurt in &hurts {
                    hurt::tell(&id, hurt, out)?;
                }
                if let Some(new) = new {
                    out.say(format_args!("the rest is now snapshot {}", short(&new)))?;
                }
                new
            }
        };
        let forgets = args.forget && !args.dry_run;
        if forgets {
            repository.remove_root(&named.id)?;
            out.say(format_args!("dropped snapshot {}", short(&named.id)))?;
        }
        if out.json {
            out.json(&json!({
                "message_type": "changed",
                "old_snapshot_id": id,
                "new_snapshot_id": new.map(|new| new.to_string()),
                "forgotten": forgets,
            }))?;
        }
    }
    if out.json {
        out.json(
            &json!({"message_type": "summary", "changed_snapshots": changed, "lost_snapshots": gone}),
        )?;
    }
    let verb = if args.dry_run {
        "would repair"
    } else {
        "repaired"
    };
    out.say(format_args!("{verb} {}", many(changed, "snapshot")))?;
    Ok(Exit::Ok)
}
