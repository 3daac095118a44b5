//! `onefold ls`: lists the entries of a snapshot.

mod ncdu;
mod order;
mod sorted;

use std::ffi::OsString;

use onefold_backup::snapshots::Named;
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, Kind, path};
use onefold_store::SessionKind;
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::json::{NodeJson, SnapshotJson, message, permissions};
use crate::out::Out;
use crate::select::{self, FilterArgs, Spec, short};
use crate::{human, paths, repository, when};
use ncdu::Ncdu;
use order::LineOrder;
use sorted::SortedLines;

/// List the files of a snapshot
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginning of an id, or "latest"; with ":PATH" only what is below, and all paths begin there
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    /// Folders or files to list; everything without
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Show permissions, owner, size and time
    #[arg(short, long)]
    pub long: bool,

    /// Show sizes with units
    #[arg(long, requires = "long")]
    pub human_readable: bool,

    /// With paths: also what is deeper below them than their own names
    #[arg(long)]
    pub recursive: bool,

    /// Order of the entries
    #[arg(short, long, value_name = "ORDER", default_value = "name")]
    pub sort: LineOrder,

    /// In reverse
    #[arg(long)]
    pub reverse: bool,

    /// Write what `ncdu -f -` reads, everything below the paths
    #[arg(long, conflicts_with_all = ["json", "long", "sort", "reverse"])]
    pub ncdu: bool,
}

/// Ways of showing entries.
enum Lister<'a> {
    /// Each line is printed at once.
    Lines,
    /// Lines are printed in order when all are there.
    Sorted(LineOrder, SortedLines),
    Ncdu(Ncdu<'a>),
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let spec = Spec::parse(&args.snapshot)?;
    let repository = repository::open(global, "a listing")?;
    // Objects that the snapshot refers to stay from here on.
    let session = repository.session(SessionKind::Read)?;
    let named = select::one(&repository, &spec.snapshot, &args.filter.filter()?)?;
    let mut reader = session.reader()?;
    let tree = Tree::open(&named.snapshot, &mut reader)?;
    let nothing = || {
        let id = short(&named.id);
        let words = if spec.words.is_empty() {
            args.paths.first()
        } else {
            Some(&spec.words)
        };
        let meant = words.map(|path| paths::meant(path)).unwrap_or_default();
        Error::Failed(format!("nothing of that path is in snapshot {id}{meant}"))
    };
    let mut wanted: Vec<Vec<u8>> = args.paths.iter().map(|path| paths::inside(path)).collect();
    let mut top = &spec.path[..];
    if !top.is_empty() {
        let entry = tree.entry(top, &mut reader)?.ok_or_else(nothing)?;
        if !entry.is_dir() {
            // The path of a single file is its name in its folder.
            let (folder, name) = path::split(top);
            (top, wanted) = (folder, vec![path::join(b"", name)]);
        }
    }
    let is_wanted = |path: &[u8]| is_wanted(args, &wanted, &path[top.len()..]);
    let mut lister = Lister::begin(args, &named, (&tree, top), &is_wanted, out)?;
    // The root is always there, and has no entry.
    let mut is_found = wanted.is_empty() || wanted.contains(&Vec::new());
    let mut cursor = tree.cursor_at(top, b"");
    while let Some((folder, entry)) = cursor.next(&mut reader)? {
        if !path::within(&folder, top) {
            break;
        }
        let path = path::join(&folder, &entry.name);
        if is_wanted(&path) {
            is_found = true;
            let below = &path[top.len()..];
            match &mut lister {
                Lister::Lines => out.line(line(args, below, &entry, out))?,
                Lister::Sorted(order, sorted) => {
                    let line = line(args, below, &entry, out) + "\n";
                    sorted.push(&order.key(below, &entry), line.as_bytes())?;
                }
                Lister::Ncdu(ncdu) => ncdu.add(&folder, entry, &mut reader)?,
            }
        }
    }
    match lister {
        Lister::Lines => {}
        Lister::Sorted(_, sorted) => sorted.each(&mut |line| out.bytes(line))?,
        Lister::Ncdu(ncdu) => ncdu.end(&mut reader)?,
    }
    session.finish()?;
    if !is_found {
        return Err(nothing());
    }
    Ok(Exit::Ok)
}

/// Whether a path is listed, as in restic: without paths all are; with paths the path itself and entries directly in
/// it, or everything below with `--recursive`.
fn is_wanted(args: &Args, wanted: &[Vec<u8>], path: &[u8]) -> bool {
    let direct = |folder: &[u8]| path == folder || path::split(path).0 == folder;
    wanted.is_empty()
        || wanted.iter().any(|folder| {
            if args.recursive || args.ncdu {
                path::within(path, folder)
            } else {
                direct(folder)
            }
        })
}

impl<'a> Lister<'a> {
    fn begin(
        args: &Args,
        named: &Named,
        place: (&'a Tree, &[u8]),
        is_wanted: &'a dyn Fn(&[u8]) -> bool,
        out: &'a Out,
    ) -> Result<Self> {
        let mut about = json!(SnapshotJson::from(named));
        if args.ncdu {
            return Ok(Self::Ncdu(Ncdu::begin(&about, place, is_wanted, out)?));
        }
        if out.json {
            (about["message_type"], about["struct_type"]) = (json!("snapshot"), json!("snapshot"));
            out.json_buffered(&about)?;
        }
        let paths = named.snapshot.paths.iter();
        let shown: Vec<_> = paths.map(|path| paths::shown(path)).collect();
        out.say(format_args!(
            "snapshot {} of {} at {}:",
            short(&named.id),
            shown.join(", "),
            when::local(named.snapshot.time)
        ))?;
        Ok(match (args.sort, args.reverse) {
            (LineOrder::Name, false) => Self::Lines,
            (order, is_reverse) => Self::Sorted(order, SortedLines::new(is_reverse)),
        })
    }
}

fn line(args: &Args, path: &[u8], entry: &Entry, out: &Out) -> String {
    if out.json {
        let mut node = json!(NodeJson::new(path, entry));
        (node["message_type"], node["struct_type"]) = (json!("node"), json!("node"));
        return message::line(&node);
    }
    if args.long {
        long(path, entry, args.human_readable)
    } else {
        format!("{}{}", paths::shown(path), missing(entry))
    }
}

/// Returns, in words, what the snapshot lacks of an entry.
pub fn missing(entry: &Entry) -> &'static str {
    if entry.damage().is_some() {
        " (damaged)"
    } else if entry.is_unreadable() {
        " (could not be read)"
    } else {
        match (entry.is_unlisted(), entry.lacks_xattrs()) {
            (false, false) => "",
            (true, false) => " (could not be listed)",
            (false, true) => " (its attributes could not be read)",
            (true, true) => " (could not be listed, nor its attributes be read)",
        }
    }
}

/// Returns a line as `ls -l` writes it.
pub fn long(path: &[u8], entry: &Entry, human_readable: bool) -> String {
    let size = if human_readable {
        human::bytes(entry.size)
    } else {
        entry.size.to_string()
    };
    let owner = &entry.owner;
    let arrow = match entry.kind {
        Kind::Symlink => format!(" -> {}", shown_target(&entry.target)),
        _ => String::new(),
    };
    let (mode, mtime) = (permissions(entry), when::local(entry.mtime));
    let missing = missing(entry);
    format!(
        "{mode} {:>5} {:>5} {size:>10} {mtime} {}{arrow}{missing}",
        owner.uid,
        owner.gid,
        paths::shown(path)
    )
}

fn shown_target(target: &[u8]) -> String {
    if target.is_empty() {
        String::new()
    } else {
        paths::shown(target)
    }
}
