//! A dry run of a window: nothing is touched, but what is there is looked at as the real run would.

use super::Options;
use super::target::Target;
use super::times::may_be_same;
use super::window::Window;
use crate::meta::Stat;
use crate::path::join;
use crate::{Change, Events, Time};

/// How many things of the window would stay as they are in the target, and the bytes of those that are files.
/// Tells what would become of each. Without a target, nothing is there yet.
pub fn kept(
    window: &Window,
    target: Option<&Target>,
    options: &Options,
    events: &dyn Events,
) -> (u64, u64) {
    let stays = |folder: u32, name: &[u8], size: u64, mtime: Time| {
        // What cannot be looked at is not there, or will fail when it is real.
        let path = &window.folders[folder as usize].path;
        let there = target.and_then(|target| {
            let dir = target.open_folder(path).ok()?;
            Stat::at(&dir, name, false).ok()
        });
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
        change == Change::Unchanged
    };
    if events.wants_entries() {
        let folders = window.folders.iter().rev();
        for folder in folders.filter(|folder| folder.meta.is_some() && !folder.continues) {
            events.entry(&folder.path, Change::New, 0);
        }
    }
    let files = window.files.iter().filter_map(|file| {
        stays(file.folder, &file.name, file.size, file.meta.mtime).then_some(file.size)
    });
    let specials = window.specials.iter().filter_map(|special| {
        let entry = &special.entry;
        stays(special.folder, &entry.name, 0, entry.mtime).then_some(0)
    });
    let links = window.links.iter().filter_map(|link| {
        let entry = &link.entry;
        stays(link.folder, &entry.name, entry.size, entry.mtime).then_some(entry.size)
    });
    files
        .chain(specials)
        .chain(links)
        .fold((0, 0), |(kept, bytes), size| (kept + 1, bytes + size))
}
