//! `onefold find`: shows which snapshots have a file.

mod objects;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use objects::Objects;
use onefold_backup::exclude::PatternsBuilder;
use onefold_backup::list::Find;
use onefold_backup::snapshots::Named;
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, path};
use onefold_store::{ChunkReader, SessionKind};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::many;
use crate::json::{Array, NodeJson};
use crate::out::Out;
use crate::select::{self, FilterArgs, Unread, short};
use crate::verbs::ls;
use crate::{paths, patterns, repository, when};

/// Find files in snapshots
///
/// Newest snapshots come first. A pattern is a name or a glob (*, ?, [a-z], **); one that begins with / matches whole
/// paths.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Names, patterns or ids to find
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Only in this snapshot (repeatable)
    #[arg(short, long = "snapshot", value_name = "ID")]
    pub snapshots: Vec<OsString>,

    /// Case does not matter
    #[arg(short, long)]
    pub ignore_case: bool,

    /// Show permissions, owner, size and time
    #[arg(short, long)]
    pub long: bool,

    /// Show sizes with units
    #[arg(long, requires = "long")]
    pub human_readable: bool,

    /// Oldest snapshots first
    #[arg(short = 'R', long)]
    pub reverse: bool,

    /// Only files changed at or after this time, such as 2026-02-03 or "2026-02-03 04:05"
    #[arg(short = 'O', long, value_name = "TIME", conflicts_with = "object")]
    pub oldest: Option<String>,

    /// The patterns are beginnings of chunks' fingerprints: find the files that have them
    #[arg(long, group = "object")]
    pub blob: bool,

    /// The patterns are ids of snapshots' trees, or of leaves and recipes of metadata: find where they belong
    #[arg(long, group = "object")]
    pub tree: bool,

    /// The patterns are beginnings of containers' ids: find the files and trees that have chunks in them
    #[arg(long, group = "object")]
    pub pack: bool,

    /// With --blob or --tree: say in which container each is
    #[arg(long)]
    pub show_pack_id: bool,

    /// Only files changed at or before this time
    #[arg(short = 'N', long, value_name = "TIME", conflicts_with = "object")]
    pub newest: Option<String>,
}

fn wanted(args: &Args, out: &Out) -> Result<Find> {
    if args.blob || args.tree || args.pack {
        return Ok(Find::default());
    }
    let mut builder = PatternsBuilder::default();
    for pattern in &args.patterns {
        let mut alone = PatternsBuilder::default();
        alone.add(pattern.as_bytes(), args.ignore_case)?;
        // A pattern such as "." is empty: no patterns would find everything.
        let names_nothing = alone.build()?.is_empty();
        if names_nothing || pattern.as_bytes().starts_with(b"!") {
            return Err(Error::Usage(format!(
                "the pattern {pattern:?} finds nothing"
            )));
        }
        builder.add(pattern.as_bytes(), args.ignore_case)?;
        patterns::tell_doubt(pattern.as_bytes(), out);
    }
    let time = |text: &Option<String>| {
        let read = text.as_deref().map(when::parse).transpose();
        read.map_err(Error::Usage)
    };
    Ok(Find {
        patterns: builder.build()?,
        oldest: time(&args.oldest)?,
        newest: time(&args.newest)?,
        ..Find::default()
    })
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let wanted = wanted(args, out)?;
    let repository = repository::open(global, "a search")?;
    let objects = Objects::wanted(args, &repository)?;
    let session = repository.session(SessionKind::Read)?;
    let filter = args.filter.filter()?;
    let (mut found, mut unread) = select::many_or_not(&repository, &args.snapshots, &filter, out)?;
    if args.snapshots.is_empty() && !args.reverse {
        found.reverse();
    }
    let mut reader = session.reader()?;
    let mut all = Array::new(out);
    let mut is_found = objects.is_some();
    for named in &found {
        let named = match onefold_backup::snapshots::load_if_there(&repository, named.id) {
            Ok(Some(named)) => named,
            Ok(None) => continue,
            Err(error) => {
                unread.add_lost(named.id, error, out)?;
                continue;
            }
        };
        if let Some(objects) = &objects {
            match objects.search(&named, args, &mut reader, out) {
                Ok(found) if out.json => found.iter().try_for_each(|one| all.push(one))?,
                Ok(_) => {}
                Err(Error::Backup(error)) => unread.add_lost(named.id, error, out)?,
                Err(error) => return Err(error),
            }
            continue;
        }
        let (mut hits, mut is_first) = (Array::new(out), true);
        let mut hit = |path: &[u8], entry: &Entry| {
            let is_first = std::mem::take(&mut is_first);
            is_found = true;
            if out.json {
                if is_first {
                    all.next("{\"matches\":")?;
                }
                return hits.push(&NodeJson::new(path, entry));
            }
            if is_first {
                let at = when::local(named.snapshot.time);
                out.say(format_args!("in snapshot {} of {at}:", short(&named.id)))?;
            }
            print(path, entry, args, out)
        };
        search(&named, &wanted, &mut reader, &mut unread, &mut hit, out)?;
        if hits.len() > 0 {
            let (count, id) = (hits.len(), named.id);
            hits.end()?;
            out.bytes(format!(",\"hits\":{count},\"snapshot\":\"{id}\"}}").as_bytes())?;
        }
    }
    if out.json {
        all.end()?;
        out.bytes(b"\n")?;
    } else if !is_found && !out.quiet {
        let looked_into = many(found.len() as u64, "snapshot");
        out.note(format_args!("nothing is found in {looked_into}"));
    }
    session.finish()?;
    unread.end()
}

/// Calls `hit` with each match. Paths that cannot be read are reported, and the rest is searched.
fn search(
    named: &Named,
    wanted: &Find,
    reader: &mut ChunkReader,
    unread: &mut Unread,
    hit: &mut dyn FnMut(&[u8], &Entry) -> Result<()>,
    out: &Out,
) -> Result<()> {
    let tree = match Tree::open(&named.snapshot, reader) {
        Ok(tree) => tree,
        Err(error) => return unread.add_lost(named.id, error, out),
    };
    let mut cursor = tree.cursor();
    loop {
        let (folder, entry) = match cursor.next(reader) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(()),
            Err(error) => {
                unread.add_lost(named.id, error, out)?;
                match cursor.pass_over() {
                    Some(_) => continue,
                    None => return Ok(()),
                }
            }
        };
        let path = path::join(&folder, &entry.name);
        if wanted.matches(&path, &entry) {
            hit(&path, &entry)?;
        }
    }
}

fn print(path: &[u8], entry: &Entry, args: &Args, out: &Out) -> Result<()> {
    out.line(if args.long {
        ls::long(path, entry, args.human_readable)
    } else {
        format!("{}{}", paths::shown(path), ls::missing(entry))
    })
}
