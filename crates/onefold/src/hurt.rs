//! Files and snapshots that damage hurts, as a check and a repair report them at their end.

use std::fmt::Display;

use onefold_backup::roots::{self, Hurt};
use onefold_backup::snapshots;
use onefold_store::{CheckReport, Repository, SessionKind};
use serde_json::{Value, json};

use crate::error::Result;
use crate::human::many;
use crate::out::Out;
use crate::short_id::short;
use crate::{lossless, paths, when};

/// Numbers of hurt snapshots and files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hurts {
    /// Snapshots of which no entry can be found any more.
    pub snapshots: u64,
    /// Snapshots among these whose own objects cannot be read.
    pub unread: u64,
    /// Lost parts of other snapshots' listings, each with some thousand paths.
    pub parts: u64,
    /// Files that have lost a part of their contents.
    pub files: u64,
}

impl Hurts {
    /// Returns the sum of all.
    pub fn count(&self) -> u64 {
        self.snapshots + self.parts + self.files
    }

    /// Returns the numbers in words: `2 whole snapshots, 1 file`, or `no file`.
    pub fn words(&self) -> String {
        let counts = [
            (self.snapshots, "whole snapshot"),
            (self.parts, "part of a listing"),
            (self.files, "file"),
        ];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, noun)| match (*count, *noun) {
                (2.., "part of a listing") => format!("{} of listings", many(*count, "part")),
                (count, noun) => many(count, noun),
            })
            .collect();
        if words.is_empty() {
            "no file".into()
        } else {
            words.join(", ")
        }
    }

    /// Returns `summary`, an object, with the numbers added.
    pub fn added_to(self, mut summary: Value) -> Value {
        summary["hurt"] = self.count().into();
        summary["hurt_snapshots"] = self.snapshots.into();
        summary["hurt_listing_parts"] = self.parts.into();
        summary["hurt_files"] = self.files.into();
        summary
    }

    fn add(&mut self, hurt: &Hurt) {
        *match hurt {
            Hurt::All => &mut self.snapshots,
            Hurt::Entries(..) => &mut self.parts,
            Hurt::File(_) => &mut self.files,
        } += 1;
    }
}

/// Prints everything that is hurt, and counts it.
pub fn print(repository: &Repository, report: &CheckReport, out: &Out) -> Result<Hurts> {
    let mut count = Hurts::default();
    if report.hurt.is_empty() && report.damaged_roots.is_empty() {
        return Ok(count);
    }
    let session = repository.session(SessionKind::Read)?;
    let mut reader = session.reader()?;
    let mut unread = Vec::new();
    let mut readable = Vec::new();
    let mut damaged = |id, _| unread.push(id);
    snapshots::for_each(repository, &mut damaged, &mut |named| {
        readable.push((named.snapshot.time, named.id));
    })?;
    readable.sort_unstable();
    for id in unread {
        let name = short(&id);
        heading(
            format_args!("snapshot {name} cannot be read; `onefold forget {name}` drops it"),
            out,
        )?;
        count.add(&Hurt::All);
        count.unread += 1;
        tell(&id.to_string(), &Hurt::All, out)?;
    }
    for (_, id) in readable {
        let Some(named) = snapshots::load_if_there(repository, id)? else {
            continue;
        };
        let mut hurts = Vec::new();
        let mut is_lost = |chunk: &_| report.hurt.hurts(chunk);
        roots::hurt(&named.snapshot, &mut reader, &mut is_lost, &mut |hurt| {
            hurts.push(hurt)
        })?;
        if !hurts.is_empty() {
            let (name, time) = (short(&named.id), when::local(named.snapshot.time));
            heading(format_args!("hurt in snapshot {name} of {time}:"), out)?;
        }
        for hurt in hurts {
            count.add(&hurt);
            tell(&named.id.to_string(), &hurt, out)?;
        }
    }
    session.finish()?;
    Ok(count)
}

/// Prints the heading of losses for people, with `-q` too: without it the losses mean nothing.
fn heading(line: impl Display, out: &Out) -> Result<()> {
    if out.json { Ok(()) } else { out.report(line) }
}

/// Prints one loss.
pub fn tell(snapshot: &str, hurt: &Hurt, out: &Out) -> Result<()> {
    if out.json {
        let value = match hurt {
            Hurt::File(path) => {
                let mut line = json!({"message_type": "hurt", "snapshot": snapshot, "what": "file", "path": paths::json(path)});
                lossless::add(&mut line, "path", path);
                line
            }
            Hurt::Entries(from, to) => {
                let mut line = json!({
                    "message_type": "hurt", "snapshot": snapshot, "what": "entries",
                    "from": paths::json(from), "to": to.as_ref().map(|to| paths::json(to)),
                });
                lossless::add(&mut line, "from", from);
                lossless::add(&mut line, "to", to.as_deref().unwrap_or_default());
                line
            }
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
        Hurt::All => out.report("  everything: its listing is lost"),
    }
}
