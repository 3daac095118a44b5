//! Damage to an object: the action, and its place.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;

/// Action on an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Flip,
    Truncate,
    Empty,
    Zero,
    Delete,
    /// Another object's bytes stand there: see [`swaps`].
    Swap,
    /// The device does not give a byte: nobody reads anything that it is part of.
    Unreadable,
    /// A folder stands in its place: an empty one, or one that holds somebody's file.
    Folder,
}

pub const ACTIONS: [Action; 8] = [
    Action::Flip,
    Action::Truncate,
    Action::Empty,
    Action::Zero,
    Action::Delete,
    Action::Swap,
    Action::Unreadable,
    Action::Folder,
];

/// Places of damage within an object: front, early, middle, end.
pub const PLACES: usize = 4;

impl Action {
    /// How many ways there are to do this to `path`.
    pub fn ways(self, device: &SimDir, stranger: &SimDir, path: &str) -> usize {
        match self {
            Self::Flip | Self::Truncate | Self::Zero | Self::Unreadable => PLACES,
            Self::Empty | Self::Delete => 1,
            Self::Folder => 2,
            Self::Swap => swaps(device, stranger, path).len(),
        }
    }
}

/// Returns objects to put in the place of `path`: another of its kind, an object of another kind, and its counterpart
/// from another repository.
pub fn swaps(device: &SimDir, stranger: &SimDir, path: &str) -> Vec<(String, Vec<u8>)> {
    let own = bytes(device, path);
    let first = |of: &SimDir, whose: &str, is_wanted: &dyn Fn(&str) -> bool| {
        let all = objects(of).into_iter().filter(|other| is_wanted(other));
        let mut all = all.map(|other| (format!("{whose} {other}"), bytes(of, &other)));
        all.find(|(_, other)| *other != own && !other.is_empty())
    };
    let alike = first(device, "its", &|other| {
        other != path && kind(other) == kind(path)
    });
    let in_its_folder = |other: &str| other.split('/').next() == path.split('/').next();
    let is_of_another_kind = |other: &str| kind(other) != kind(path);
    let other_kind = first(device, "its", &|other| {
        in_its_folder(other) && is_of_another_kind(other)
    });
    let other_kind = other_kind.or_else(|| first(device, "its", &is_of_another_kind));
    let theirs = first(stranger, "another repository's", &|other| {
        kind(other) == kind(path)
    });
    [alike, other_kind, theirs].into_iter().flatten().collect()
}

/// Objects of a kind have this in common: the folder, or the name up to a number.
pub fn kind(path: &str) -> &str {
    let is_of_one_kind = |folder: &&str| *folder != "index";
    match path.split_once('/').map(|(folder, _)| folder) {
        Some(folder) if is_of_one_kind(&folder) => folder,
        _ => path.split(['-', '.']).next().unwrap_or(path),
    }
}

/// Objects worth damaging; locks and the like hold nothing.
pub fn objects(device: &SimDir) -> Vec<String> {
    let wanted = [
        "config",
        "keys/",
        "containers/",
        "snapshots/",
        "index/",
        "condemned",
        "sketch",
        "scratch/marks",
        "sessions/",
    ];
    let all = device.paths().into_iter();
    all.filter(|path| {
        wanted.iter().any(|start| path.starts_with(start))
            && !path.contains("lock")
            && !path.contains("owner")
    })
    .collect()
}

/// Returns the content of an object on the device.
pub fn bytes(device: &SimDir, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    device
        .damage(path, |found| bytes.clone_from(found))
        .unwrap();
    bytes
}

/// Damages `path` in the way `way` of those that there are.
pub fn damage(device: &SimDir, stranger: &SimDir, path: &str, (action, way): (Action, usize)) {
    match action {
        Action::Delete => device.lose(path).unwrap(),
        Action::Folder => make_folder(device, path, way == 1),
        Action::Unreadable => {
            let at = place_in(bytes(device, path).len(), way) as u64;
            device.spoil(path, at..at + 1).unwrap();
        }
        Action::Swap => {
            let (_, other) = swaps(device, stranger, path).remove(way);
            device.damage(path, |bytes| *bytes = other).unwrap();
        }
        _ => device
            .damage(path, |bytes| edit(bytes, action, way))
            .unwrap(),
    }
}

/// Name of a user's file, in a folder that stands in the place of an object.
pub const SOMEBODYS: &str = "somebodys";

fn make_folder(device: &SimDir, path: &str, holds_a_file: bool) {
    let mut dir: Arc<dyn Dir> = Arc::new(device.clone());
    let mut rest = path;
    while let Some((folder, below)) = rest.split_once('/') {
        dir = dir.open_subdir(folder).unwrap();
        rest = below;
    }
    dir.remove(rest).unwrap();
    let folder = dir.subdir(rest).unwrap();
    if holds_a_file {
        folder.create(SOMEBODYS).unwrap().sync().unwrap();
    }
    folder.sync().unwrap();
    dir.sync().unwrap();
}

fn edit(bytes: &mut Vec<u8>, action: Action, place: usize) {
    if bytes.is_empty() {
        return;
    }
    let at = place_in(bytes.len(), place);
    match action {
        Action::Flip => bytes[at] ^= 0x10,
        Action::Truncate => bytes.truncate(at),
        Action::Empty => bytes.clear(),
        Action::Zero => {
            let end = bytes.len().min(at + 64);
            bytes[at..end].fill(0);
            // Zeros over zeros would be no damage.
            bytes[at] ^= 1;
        }
        Action::Delete | Action::Swap | Action::Unreadable | Action::Folder => {
            unreachable!("they edit nothing")
        }
    }
}

/// Where damage lies in an object.
fn place_in(len: usize, place: usize) -> usize {
    [0, len / 8, len / 2, len.saturating_sub(1)][place]
}
