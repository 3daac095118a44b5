//! `onefold diff`: shows the differences between two snapshots.

use std::ffi::OsString;

use onefold_backup::diff::{self, DiffSummary, Mark, Side};
use onefold_backup::path;
use onefold_backup::snapshots::{Named, SnapshotFilter};
use onefold_backup::tree::Tree;
use onefold_store::{Repository, SessionKind};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{bytes, count, many};
use crate::out::Out;
use crate::select::{self, Spec, short};
use crate::{lossless, paths, repository};

/// Show what differs between two snapshots
///
/// Marks: + added, - removed, M content changed, U only metadata changed, T something else (a file became a folder), ?
/// unknown, as one of the two backups could not read it, or not list a folder above it, or, with --metadata, not read
/// its attributes. Sums of data are of chunks that only one of the two has.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The older one; a ":PATH" must be that of the newer one
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub first: OsString,

    /// The newer one; with ":PATH" only what is below
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub second: OsString,

    /// Also entries of which only metadata differs
    #[arg(long)]
    pub metadata: bool,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let (first, second) = (Spec::parse(&args.first)?, Spec::parse(&args.second)?);
    if !first.path.is_empty() && first.path != second.path {
        return Err(Error::Usage(
            "the same path must be compared in both snapshots".into(),
        ));
    }
    let repository = repository::open(global, "a comparison")?;
    let (a, b) = (load(&repository, &first)?, load(&repository, &second)?);
    let session = repository.session(SessionKind::Read)?;
    let mut reader = session.reader()?;
    let trees = (
        &Tree::open(&a.snapshot, &mut reader)?,
        &Tree::open(&b.snapshot, &mut reader)?,
    );
    out.say(format_args!(
        "comparing snapshot {} to {}:",
        short(&a.id),
        short(&b.id)
    ))?;
    let mut printed = Ok(());
    let summary = diff::diff(
        trees,
        &mut reader,
        &second.path,
        args.metadata,
        &mut |mark, at, old, new| {
            if printed.is_ok() {
                let is_dir = new.or(old).is_some_and(onefold_backup::Entry::is_dir);
                let below = match (at.len() == second.path.len(), is_dir) {
                    // The path of a single file is its name in its folder.
                    (true, false) => path::join(b"", path::split(at).1),
                    _ => at[second.path.len()..].to_vec(),
                };
                printed = tell(mark, &below, is_dir, out);
            }
        },
    );
    let summary = summary.map_err(|error| second.explain(error))?;
    printed?;
    sum_up(&a, &b, &summary, out)?;
    session.finish()?;
    Ok(Exit::Ok)
}

fn load(repository: &Repository, spec: &Spec) -> Result<Named> {
    select::one(repository, &spec.snapshot, &SnapshotFilter::default())
}

fn tell(mark: Mark, at: &[u8], is_dir: bool, out: &Out) -> Result<()> {
    let slash = if is_dir && !at.is_empty() { "/" } else { "" };
    if out.json {
        let path = format!("{}{slash}", paths::json(at));
        let modifier = mark.letter().to_string();
        let mut change = json!({"message_type": "change", "path": path, "modifier": modifier});
        lossless::add(&mut change, "path", &[at, slash.as_bytes()].concat());
        return out.json_buffered(&change);
    }
    out.line(format_args!(
        "{}    {}{slash}",
        mark.letter(),
        paths::shown(at)
    ))
}

fn sum_up(a: &Named, b: &Named, summary: &DiffSummary, out: &Out) -> Result<()> {
    if out.json {
        let side = |s: &Side| -> Value {
            json!({
                "files": s.files, "dirs": s.dirs, "others": s.others, "bytes": s.bytes,
                "data_blobs": s.data_chunks, "tree_blobs": s.tree_chunks,
            })
        };
        return out.json(&json!({
            "message_type": "statistics",
            "source_snapshot": a.id.to_string(),
            "target_snapshot": b.id.to_string(),
            "changed_files": summary.changed_files,
            "added": side(&summary.added),
            "removed": side(&summary.removed),
            "unknown": summary.unknown,
        }));
    }
    let side = |s: &Side| {
        format!(
            "{}, {}, {} other, {} of data",
            many(s.files, "file"),
            many(s.dirs, "folder"),
            count(s.others),
            bytes(s.bytes)
        )
    };
    out.say(format_args!(
        "changed    {}",
        many(summary.changed_files, "file")
    ))?;
    out.say(format_args!("added      {}", side(&summary.added)))?;
    out.say(format_args!("removed    {}", side(&summary.removed)))?;
    if summary.unknown > 0 {
        out.say(format_args!(
            "unknown    {} that one of the two backups could not read or list",
            many(summary.unknown, "path")
        ))?;
    }
    Ok(())
}
