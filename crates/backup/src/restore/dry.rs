//! A dry run of a window: nothing is touched, but what is there is looked at as the real run would.

use std::os::fd::OwnedFd;

use super::target::Target;
use super::times::may_be_same;
use super::window::{State, Window};
use super::{Options, Summary};
use crate::meta::Stat;
use crate::path::join;
use crate::{Change, Events, Kind, Time};

/// Counts what of the window would stay as it is in the target, and tells what would become of each thing. Files that would be made are so from then on,
/// those that would stay are skipped, and of what a window before has begun nothing more is told. Without a target, nothing is there yet.
pub fn look(
    window: &Window,
    target: Option<&Target>,
    options: &Options,
    events: &dyn Events,
    summary: &mut Summary,
) {
    let mut becomes = |folder: u32, name: &[u8], (kind, size): (Kind, u64), mtime: Time| {
        // What cannot be looked at is not there, or will fail when it is real.
        let path = &window.folders[folder as usize].path;
        let dir = target.and_then(|target| target.open_folder(path).ok());
        let is_kept = |dir: &OwnedFd| Stat::of(dir).is_ok_and(|there| options.keeps(&there));
        if dir.as_ref().is_some_and(is_kept) {
            let what =
                "nothing would be restored here: the repository that is restored from is here";
            events.warning(&join(path, name), what);
            summary.errors += 1;
            match kind {
                Kind::File => {
                    (summary.failed, summary.failed_bytes) =
                        (summary.failed + 1, summary.failed_bytes + size)
                }
                _ => summary.failed_others += 1,
            }
            return State::Failed;
        }
        let there = dir.and_then(|dir| Stat::at(&dir, name, false).ok());
        let change = match there {
            Some(there)
                if options
                    .overwrite
                    .keeps(&there, size, mtime, || may_be_same(mtime, there.mtime)) =>
            {
                Change::Unchanged
            }
            Some(_) => Change::Modified,
            None => Change::New,
        };
        if events.wants_entries() {
            events.entry(&join(path, name), change, size);
        }
        let stays = change == Change::Unchanged;
        if stays && kind == Kind::File {
            summary.skipped += 1;
            summary.skipped_bytes += size;
        } else if stays {
            summary.skipped_others += 1;
        }
        if stays {
            State::Skipped
        } else {
            State::Made(0)
        }
    };
    if events.wants_entries() {
        let folders = window.folders.iter().rev();
        for folder in folders.filter(|folder| folder.meta.is_some() && !folder.continues) {
            events.entry(&folder.path, Change::New, 0);
        }
    }
    for file in &window.files {
        let mut state = file.state.lock();
        if *state == State::Planned {
            let what = (Kind::File, file.size);
            *state = becomes(file.folder, &file.name, what, file.meta.mtime);
        }
    }
    let specials = window.specials.iter().map(|one| (one.folder, &one.entry));
    let links = window.links.iter().map(|one| (one.folder, &one.entry));
    for (folder, entry) in specials.chain(links) {
        becomes(folder, &entry.name, (entry.kind, entry.size), entry.mtime);
    }
}
