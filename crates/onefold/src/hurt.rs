//! Which files of which snapshots are hurt by damage: what a check and a repair report at their end.

use onefold_backup::roots::{self, Hurt};
use onefold_store::{CheckReport, Repository, SessionKind};
use serde_json::json;

use crate::error::Result;
use crate::out::Out;
use crate::select::{self, short};
use crate::{paths, when};

/// Prints every file that is hurt; gives how many there are (a lost part of a listing counts one).
pub fn print(repository: &Repository, report: &CheckReport, out: &Out) -> Result<u64> {
    let mut count = 0;
    for id in &report.damaged_roots {
        count += 1;
        if out.json {
            out.json(&json!({"message_type": "hurt", "snapshot": id.to_string(), "what": "all"}))?;
        }
        out.say(format_args!("snapshot {} cannot be read whole", short(id)))?;
    }
    if report.hurt.is_empty() {
        return Ok(count);
    }
    let session = repository.session(SessionKind::Read)?;
    let mut reader = session.reader()?;
    for named in select::list(repository, out)? {
        let Some(named) = onefold_backup::snapshots::load_if_there(repository, named.id)? else {
            continue;
        };
        let mut hurts = Vec::new();
        let mut is_lost = |chunk: &_| report.hurt.hurts(chunk);
        roots::hurt(&named.snapshot, &mut reader, &mut is_lost, &mut |hurt| {
            hurts.push(hurt)
        })?;
        if !hurts.is_empty() {
            out.say(format_args!(
                "hurt in snapshot {} of {}:",
                short(&named.id),
                when::local(named.snapshot.time)
            ))?;
        }
        count += hurts.len() as u64;
        for hurt in hurts {
            tell(&named.id.to_string(), &hurt, out)?;
        }
    }
    session.finish()?;
    Ok(count)
}

/// Prints one loss.
pub fn tell(snapshot: &str, hurt: &Hurt, out: &Out) -> Result<()> {
    if out.json {
        let value = match hurt {
            Hurt::File(path) => {
                json!({"message_type": "hurt", "snapshot": snapshot, "what": "file", "path": paths::json(path)})
            }
            Hurt::Entries(from, to) => json!({
                "message_type": "hurt", "snapshot": snapshot, "what": "entries",
                "from": paths::json(from), "to": to.as_ref().map(|to| paths::json(to)),
            }),
            Hurt::All => json!({"message_type": "hurt", "snapshot": snapshot, "what": "all"}),
        };
        return out.json(&value);
    }
    match hurt {
        Hurt::File(path) => out.report(format_args!("  {}", paths::shown(path))),
        Hurt::Entries(from, Some(to)) => out.report(format_args!(
            "  everything from {} up to {}",
            paths::shown(from),
            paths::shown(to)
        )),
        Hurt::Entries(from, None) => {
            out.report(format_args!("  everything from {} on", paths::shown(from)))
        }
        Hurt::All => out.report("  everything: its table of contents is lost"),
    }
}
