//! `onefold snapshots`: which snapshots there are.

use std::collections::BTreeMap;
use std::ffi::OsString;

use onefold_backup::forget::{self, GroupBy, GroupKey};
use onefold_backup::snapshots::{Filter, Named};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::cli::typed::Typed;
use crate::error::Result;
use crate::exit::Exit;
use crate::json::SnapshotJson;
use crate::out::Out;
use crate::select::{self, FilterArgs, short};
use crate::{group, human, out, paths, repository, when};

/// List snapshots
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub typed: Typed,

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
    let named = &args.snapshots;
    let all = match named.is_empty() {
        true => &Filter::default(),
        false => &filter,
    };
    let (mut found, unread) = select::many_or_not(&repository, named, all, out)?;
    let total = found.len();
    found.retain(|named| filter.matches(&named.snapshot));
    let none = (found.is_empty() && total > 0).then(|| none_of(args, total));
    let by = args.group_by;
    let mut groups = forget::group(found, by);
    for group in groups.values_mut() {
        // The newest stands first so far.
        group.truncate(args.latest.unwrap_or(usize::MAX));
        group.reverse();
    }
    if out.json {
        as_json(by, &groups, out)?;
        return unread.end();
    }
    let mut count = 0;
    for (key, group) in &groups {
        if !group::is_one(by) {
            out.line(format_args!("snapshots of {}:", group::shown(by, key)))?;
        }
        out.bytes(table(group, args.compact).as_bytes())?;
        count += group.len();
    }
    out.say(none.unwrap_or_else(|| human::many(count as u64, "snapshot")))?;
    unread.end()
}

/// That the filters leave nothing, and which those are: a name may be mistyped.
fn none_of(args: &Args, total: usize) -> String {
    let FilterArgs { hosts, tags, paths } = &args.filter;
    let paths = paths.iter().map(|path| path.to_string_lossy());
    let listed = |what: &str, mut words: Vec<String>, or: &str| {
        words.retain(|word| !word.is_empty());
        (!words.is_empty()).then(|| format!("{what} {}", words.join(or)))
    };
    let by_variable = match args.typed.has("filter_host") {
        true => "",
        false => " (of ONEFOLD_HOST)",
    };
    let host = listed("host", hosts.clone(), " or ").map(|words| words + by_variable);
    let has = [
        host,
        listed("tag", tags.clone(), " or "),
        listed("path", paths.map(String::from).collect(), " and "),
    ];
    let has: Vec<String> = has.into_iter().flatten().collect();
    let has = match has.is_empty() {
        true => "what is asked for".into(),
        false => out::safe(&has.join(" with ")),
    };
    format!(
        "0 snapshots of {}: none has {has}",
        human::count(total as u64)
    )
}

fn as_json(by: GroupBy, groups: &BTreeMap<GroupKey, Vec<Named>>, out: &Out) -> Result<()> {
    let list = |group: &[Named]| -> Value {
        json!(group.iter().map(SnapshotJson::from).collect::<Vec<_>>())
    };
    let value = match group::is_one(by) {
        true => groups
            .values()
            .next()
            .map_or_else(|| json!([]), |group| list(group)),
        false => groups
            .iter()
            .map(
                |(key, group)| json!({"group_key": group::json(by, key), "snapshots": list(group)}),
            )
            .collect(),
    };
    out.json(&value)
}

/// One row a snapshot; further paths stand in rows of their own.
pub fn table(group: &[Named], compact: bool) -> String {
    let head: &[&str] = if compact {
        &["ID", "Time", "Host", "Tags"]
    } else {
        &["ID", "Time", "Host", "Tags", "Size", "New", "Paths"]
    };
    let mut rows = vec![
        head.iter()
            .map(|cell| (*cell).to_owned())
            .collect::<Vec<_>>(),
    ];
    for Named { id, snapshot, .. } in group {
        let mut row = vec![
            short(id),
            when::local(snapshot.time),
            out::safe(&snapshot.host),
            out::safe(&snapshot.tags.join(",")),
        ];
        if !compact {
            row.push(human::bytes(snapshot.summary.total_bytes_processed));
            row.push(human::bytes(snapshot.summary.data_added_packed));
            let mut shown = snapshot.paths.iter().map(|path| paths::shown(path));
            row.push(shown.next().unwrap_or_default());
            rows.push(row);
            rows.extend(shown.map(|path| [vec![String::new(); 6], vec![path]].concat()));
        } else {
            rows.push(row);
        }
    }
    human::table(&rows, &[4, 5])
}
