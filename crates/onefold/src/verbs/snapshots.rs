//! `onefold snapshots`: lists the snapshots.

use std::ffi::OsString;

use onefold_backup::forget::{self, GroupBy};
use onefold_backup::snapshot::Snapshot;
use onefold_backup::snapshots::{Brief, Named};
use onefold_store::Repository;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::human::Columns;
use crate::json::{self, Array, message};
use crate::out::Out;
use crate::select::{self, FilterArgs, short};
use crate::{group, human, out, paths, repository, when};

/// List snapshots
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginnings of ids, or "latest"; all snapshots without
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Only the newest N, of each group
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    pub latest: Option<usize>,

    /// Group by host, paths, tags (a list of these words)
    #[arg(short, long, value_name = "WORDS", default_value = "", value_parser = group::parse)]
    pub group_by: GroupBy,

    /// Leave out columns
    #[arg(short, long)]
    pub compact: bool,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a listing")?;
    let filter = args.filter.filter()?;
    let mut total = 0;
    let mut is_wanted = |snapshot: &Snapshot| {
        total += 1;
        filter.matches(snapshot)
    };
    let named = &args.snapshots;
    let (found, unread) = select::many_that(&repository, named, &filter, &mut is_wanted, out)?;
    let none = (found.is_empty() && total > 0).then(|| select::none_of(&filter, total));
    let by = args.group_by;
    let mut groups = forget::group(found, by);
    for group in &mut groups {
        // The newest snapshot comes first until the order is reversed.
        group.truncate(args.latest.unwrap_or(usize::MAX));
        group.reverse();
    }
    if out.json {
        as_json(&repository, by, &groups, out)?;
        return unread.end();
    }
    let mut count = 0;
    for group in &groups {
        let Some(key) = group::key(&repository, group, by)? else {
            continue;
        };
        if !group::is_one(by) {
            out.line(format_args!("snapshots of {}:", group::shown(by, &key)))?;
        }
        count += table(&repository, group, args.compact, out)?;
    }
    out.say(none.unwrap_or_else(|| human::many(count, "snapshot")))?;
    unread.end()
}

fn as_json(repository: &Repository, by: GroupBy, groups: &[Vec<Brief>], out: &Out) -> Result<()> {
    if group::is_one(by) {
        json::snapshots(repository, groups.iter().flatten(), out)?;
        return out.bytes(b"\n");
    }
    let mut all = Array::new(out);
    for group in groups {
        let Some(key) = group::key(repository, group, by)? else {
            continue;
        };
        let key = message::line(&group::json(by, &key));
        all.next(&format!("{{\"group_key\":{key},\"snapshots\":"))?;
        json::snapshots(repository, group, out)?;
        out.bytes(b"}")?;
    }
    all.end()?;
    out.bytes(b"\n")
}

/// Prints one row for each snapshot; further paths have rows of their own. Returns how many snapshots there are.
fn table(repository: &Repository, group: &[Brief], compact: bool, out: &Out) -> Result<u64> {
    let mut columns = Columns::new(&[4, 5]);
    each_row(repository, group, compact, &mut |row| {
        columns.fit(row);
        Ok(())
    })?;
    each_row(repository, group, compact, &mut |row| {
        out.line(columns.line(row))
    })
}

/// Calls `visit` with the rows one by one: a long list of paths has many.
fn each_row(
    repository: &Repository,
    group: &[Brief],
    compact: bool,
    visit: &mut dyn FnMut(&[String]) -> Result<()>,
) -> Result<u64> {
    let head: &[&str] = if compact {
        &["ID", "Time", "Host", "Tags"]
    } else {
        &["ID", "Time", "Host", "Tags", "Size", "New", "Paths"]
    };
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    visit(&head)?;
    let mut count = 0;
    for brief in group {
        let Some(named) = brief.whole(repository)? else {
            continue;
        };
        count += 1;
        rows_of(&named, compact, visit)?;
    }
    Ok(count)
}

fn rows_of(
    Named { id, snapshot, .. }: &Named,
    compact: bool,
    visit: &mut dyn FnMut(&[String]) -> Result<()>,
) -> Result<()> {
    let mut row = vec![
        short(id),
        when::local(snapshot.time),
        out::safe(&snapshot.host),
        out::safe(&snapshot.tags.join(",")),
    ];
    if compact {
        return visit(&row);
    }
    row.push(human::bytes(snapshot.summary.total_bytes_processed));
    row.push(human::bytes(snapshot.summary.data_added_packed));
    let mut shown = snapshot.paths.iter().map(|path| paths::shown(path));
    row.push(shown.next().unwrap_or_default());
    visit(&row)?;
    row[..6].fill(String::new());
    for path in shown {
        row[6] = path;
        visit(&row)?;
    }
    Ok(())
}
