//! Removing what is in restored folders of the target and not in the snapshot.
//!
//! What always holds: only folders that the snapshot has are looked into, each opened beneath the target; a name that the snapshot's folder has is
//! never removed; nothing is removed where the backup could not list, nor from other file systems, nor from folders that the caller keeps.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use onefold_store::ChunkReader;
use rustix::io::Errno;

use super::Options;
use super::remove::Remover;
use super::target::{Target, names};
use crate::meta::Stat;
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::{Events, Flags, Progress, Result, path};

/// Removes from the target what the restored folder of the snapshot and those below it do not have; in a dry run only counts it. Returns how much
/// was removed, and how many paths failed; failures are told.
pub fn delete_others(
    snapshot: &Snapshot,
    tree: &Tree,
    options: &Options,
    target: &Target,
    reader: &mut ChunkReader,
    progress: &Progress,
    events: &dyn Events,
) -> Result<(u64, u64)> {
    let from = &options.path[..];
    let mut remover = Remover::new(options, progress, events);
    let mut unlisted = unlisted_above(tree, from, reader)?;
    // Folders of the snapshot that stay as they are in the target, with all below: so much was said of each.
    let mut left = BTreeSet::new();
    let mut clear = |folder: &[u8], known: &[Vec<u8>], unlisted: &BTreeSet<Vec<u8>>| {
        let place = &folder[from.len()..];
        // A listing that broke off after the folder's entry was written left no flag: it looks like an empty folder of a backup with errors.
        let is_doubtful = known.is_empty() && snapshot.summary.errors > 0;
        if is_within_any(folder, unlisted) {
            let what = "nothing is deleted here: the backup could not list this folder";
            return events.warning(place, what);
        }
        if is_doubtful {
            let what = "nothing is deleted here: it is empty in a backup that had errors, and may not have been listed";
            return events.warning(place, what);
        }
        if !is_within_any(folder, &left) && clear_folder(target, place, known, &mut remover) {
            left.insert(folder.to_vec());
        }
    };
    let mut cursor = tree.cursor_at(from, b"");
    let mut folder = from.to_vec();
    let mut known: Vec<Vec<u8>> = Vec::new();
    // Folders without entries have no run of their own: they are cleared as soon as they are known to be passed.
    let mut empty: BTreeSet<Vec<u8>> = BTreeSet::new();
    while let Some((at, entry)) = cursor.next(reader)? {
        progress.check()?;
        if !path::within(&at, from) {
            break;
        }
        if at != folder {
            clear(&folder, &known, &unlisted);
            folder = at;
            known.clear();
            empty.remove(&folder);
        }
        if entry.flags.has(Flags::UNLISTED) {
            unlisted.insert(path::join(&folder, &entry.name));
        }
        if entry.is_dir() {
            empty.insert(path::join(&folder, &entry.name));
        }
        known.push(entry.name);
    }
    clear(&folder, &known, &unlisted);
    empty
        .iter()
        .for_each(|folder| clear(folder, &[], &unlisted));
    Ok((remover.removed, remover.errors))
}

/// The folders from the top down to `from` that could not be listed.
fn unlisted_above(tree: &Tree, from: &[u8], reader: &mut ChunkReader) -> Result<BTreeSet<Vec<u8>>> {
    let mut unlisted = BTreeSet::new();
    let mut at = from;
    while !at.is_empty() {
        let entry = tree.entry(at, reader)?;
        if entry.is_some_and(|entry| entry.flags.has(Flags::UNLISTED)) {
            unlisted.insert(at.to_vec());
        }
        at = path::split(at).0;
    }
    Ok(unlisted)
}

fn is_within_any(mut folder: &[u8], folders: &BTreeSet<Vec<u8>>) -> bool {
    if folders.is_empty() {
        return false;
    }
    while !folder.is_empty() {
        if folders.contains(folder) {
            return true;
        }
        folder = path::split(folder).0;
    }
    false
}

/// Removes the names that are not in `known`, which is sorted, as a snapshot's names are. Whether the folder stays as it is, with all below it.
fn clear_folder(
    target: &Target,
    folder: &[u8],
    known: &[Vec<u8>],
    remover: &mut Remover<'_>,
) -> bool {
    let opened = target.open_unmounted(folder).and_then(|dir| {
        let stat = Stat::of(&dir)?;
        Ok((dir, stat))
    });
    let (dir, stat) = match opened {
        Ok((_, stat)) if remover.keeps(&stat, folder) => return true,
        Ok(opened) => opened,
        // What is not there, or is no folder and will be replaced by one, holds nothing to remove.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return false,
        Err(Errno::XDEV) => {
            remover.leave_mounted(folder);
            return true;
        }
        Err(e) => {
            remover.failed("open the folder", folder, e);
            return false;
        }
    };
    let names = match names(&dir) {
        Ok(names) => names,
        Err(e) => {
            remover.failed("list", folder, e);
            return false;
        }
    };
    for name in names {
        if known.binary_search(&name).is_err() {
            remover.remove(dir.as_fd(), stat.device, &name, &path::join(folder, &name));
        }
    }
    false
}
