//! `onefold repair snapshots`: makes new snapshots without the lost parts.

use onefold_backup::repair::{Repaired, Storing, repair_as};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots::{self, SnapshotFilter};
use onefold_store::{CheckDepth, CheckReport, Repository, RootId, RootsLock};
use serde_json::json;

use super::Args;
use crate::error::{Error, Result, chain_of};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::many;
use crate::out::Out;
use crate::select::{self, short};
use crate::{hurt, patience, repository, when};

/// Looks at every reference, and makes a new snapshot of the remaining parts of each hurt one.
pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a repair of snapshots")?;
    let report = what_is_lost(&repository, args)?;
    let lock = patience::lock_roots(global, &repository, (args.dry_run, out))?;
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    let filter = args.filter.filter()?;
    let (mut changed, mut gone) = (0, 0);
    for id in readable(&repository, args, &filter, out)? {
        let Some(named) = snapshots::load_if_there(&repository, id)? else {
            continue;
        };
        let (id, at) = (named.id.to_string(), when::local(named.snapshot.time));
        let storing = lock
            .as_ref()
            .map_or(Storing::Nothing, |lock| Storing::Under {
                lock,
                forget: args.forget,
            });
        let new = match repair_as(&repository, &named, &is_lost, &storing)? {
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
        if new.is_none() {
            drop_it(lock.as_ref(), &named.id, args)?;
        }
        tell_replaced(&named.id, new, args, out)?;
    }
    for id in unreadable(&repository, args, &filter)? {
        gone += 1;
        out.say(format_args!(
            "nothing of snapshot {} can be read any more",
            short(&id)
        ))?;
        drop_it(lock.as_ref(), &id, args)?;
        tell_replaced(&id, None, args, out)?;
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
    if gone > 0 && !args.forget {
        out.note("what cannot be read stands in the way of sweeps and of \"latest\": `onefold repair snapshots --forget` drops it");
        return Ok(Exit::Damaged);
    }
    Ok(Exit::Ok)
}

/// Returns the result of a check, unless something that is missing may come back.
fn what_is_lost(repository: &Repository, args: &Args) -> Result<CheckReport> {
    let (depth, unseen) = (CheckDepth::Structure, &mut |_: &_| {});
    let mut report = repository.check(&SnapshotRoots, depth, &mut |_| {}, unseen)?;
    // Another version of the program can read these bytes: nothing is given up for them.
    if let Some(unknown) = report.other_versions.drain(..).next() {
        return Err(unknown.into());
    }
    // The next try, or another cable, may bring these bytes: nothing is given up for them.
    match report.damage.iter().find(|error| error.is_unreadable()) {
        Some(error) if !args.dry_run => Err(Error::Failed(format!(
            "no snapshot was made, and none dropped, since the device does not give all now ({}): `onefold repair` sets aside what it never gives",
            chain_of(error)
        ))),
        _ => Ok(report),
    }
}

/// Returns the chosen snapshots that can be read.
fn readable(
    repository: &Repository,
    args: &Args,
    filter: &SnapshotFilter,
    out: &Out,
) -> Result<Vec<RootId>> {
    if args.snapshots.is_empty() {
        let all = select::many(repository, &[], filter, out)?;
        return Ok(all.iter().map(|named| named.id).collect());
    }
    let mut ids = select::ids(repository, &args.snapshots, filter)?;
    ids.retain(|id| !is_damaged(repository, id));
    Ok(ids)
}

/// Returns the chosen snapshots that are damaged so that nothing of them can be read. With a filter there are none,
/// since their properties are not known.
fn unreadable(
    repository: &Repository,
    args: &Args,
    filter: &SnapshotFilter,
) -> Result<Vec<RootId>> {
    let mut ids = match args.snapshots.is_empty() {
        true if !filter.is_empty() => return Ok(Vec::new()),
        true => repository.roots()?,
        false => select::ids(repository, &args.snapshots, filter)?,
    };
    ids.retain(|id| is_damaged(repository, id));
    Ok(ids)
}

fn is_damaged(repository: &Repository, id: &RootId) -> bool {
    let loaded = snapshots::load_if_there(repository, *id);
    matches!(loaded, Err(error) if error.is_damage())
}

/// Drops a snapshot of which nothing is left, if that is wanted.
fn drop_it(lock: Option<&RootsLock>, old: &RootId, args: &Args) -> Result<()> {
    if let (Some(lock), true) = (lock, args.forget) {
        lock.replace(None, &[], &[*old])?;
    }
    Ok(())
}

/// Prints the snapshot that replaces an old one, and whether the old one was dropped.
fn tell_replaced(old: &RootId, new: Option<RootId>, args: &Args, out: &Out) -> Result<()> {
    let forgets = args.forget && !args.dry_run;
    if forgets {
        out.say(format_args!("dropped snapshot {}", short(old)))?;
    }
    if out.json {
        out.json(&json!({
            "message_type": "changed",
            "old_snapshot_id": old.to_string(),
            "new_snapshot_id": new.map(|new| new.to_string()),
            "forgotten": forgets,
        }))?;
    }
    Ok(())
}
