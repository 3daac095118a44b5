//! `onefold tag`: changes tags of snapshots.

use std::ffi::OsString;

use onefold_backup::snapshots::{self, Retag};
use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;
use crate::patience::Patience;
use crate::select::{self, FilterArgs, short, tag_list};
use crate::{human, repository};

/// Change the tags of snapshots
///
/// A snapshot with other tags is another snapshot: it gets a new id, and remembers the first one.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true).args(["set", "add", "remove"])))]
pub struct Args {
    /// Beginnings of ids, or "latest"; without, all that the filters let through
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Replace all tags ('' for none)
    #[arg(long, value_name = "TAG[,TAG…]", conflicts_with_all = ["add", "remove"])]
    pub set: Vec<String>,

    /// Add tags
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub add: Vec<String>,

    /// Take tags away
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub remove: Vec<String>,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a change of tags")?;
    let filter = args.filter.filter()?;
    let (chosen, unread) = select::many_or_not(&repository, &args.snapshots, &filter, out)?;
    let all = |lists: &[String]| {
        lists
            .iter()
            .flat_map(|list| tag_list(list))
            .collect::<Vec<_>>()
    };
    let retag = Retag {
        set: (!args.set.is_empty()).then(|| all(&args.set)),
        add: all(&args.add),
        remove: all(&args.remove),
    };
    let patience = Patience::with_the_brief(global, out);
    let mut changed = 0;
    for named in &chosen {
        let new = patience.keep(|| Ok(snapshots::retag(&repository, named.id, &retag)?))?;
        let Some(new) = new else { continue };
        changed += 1;
        if out.json {
            out.json(&json!({"message_type": "changed", "old_snapshot_id": named.id.to_string(), "new_snapshot_id": new.to_string()}))?;
        }
        out.say(format_args!("{} is now {}", short(&named.id), short(&new)))?;
    }
    if out.json {
        out.json(&json!({"message_type": "summary", "changed_snapshots": changed}))?;
    }
    out.say(format_args!(
        "changed the tags of {}",
        human::many(changed, "snapshot")
    ))?;
    unread.end()
}
