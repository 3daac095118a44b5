//! Targets that treat two names as one: file systems that ignore case (FAT, exFAT, many that are not Linux's own,
//! folders of ext4 with `casefold`) or cut dots off the end of a name.
//!
//! Invariant: a restore replaces, and goes into, only things that have exactly the name that the snapshot says. A thing
//! that the target finds by that name, but that has another, is another file of the snapshot, made just now, or the
//! user's. It stays, and that is an error.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::WindowRun;
use onefold_io::Interruptions;

use crate::meta::Stat;
use crate::path::split;
use crate::restore::open_folders::FolderError;
use crate::restore::window::Window;

/// Error of a path that the target takes for another one: its name is not unique.
pub const TAKEN: Errno = Errno::NOTUNIQ;

/// Largest number of names that are remembered: some 16 MiB.
const NAMES_MAX: usize = 1 << 20;

/// Largest number of folders whose names are remembered: a restore goes back and forth between a few.
const FOLDERS_MAX: usize = 16;

/// Names of the folders that were asked about last, by hashes.
#[derive(Default)]
pub struct ListedFolders {
    /// Folders, the one that was asked about last at the end.
    folders: VecDeque<FoldedNames>,
    hasher: RandomState,
}

struct FoldedNames {
    folder: u32,
    hashes: HashSet<u64>,
}

impl ListedFolders {
    /// Whether a folder has exactly this name. The folder is listed if the name is not among the remembered ones.
    fn has(
        &mut self,
        folder: u32,
        name: &[u8],
        list: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        let hash = |name: &[u8]| self.hasher.hash_one(name);
        let known = self.folders.iter().position(|it| it.folder == folder);
        let known = known.and_then(|at| self.folders.remove(at));
        if let Some(known) = known.filter(|known| known.hashes.contains(&hash(name))) {
            self.folders.push_back(known);
            return Ok(true);
        }
        let (mut is_there, mut hashes) = (false, HashSet::new());
        list(&mut |there| {
            is_there |= there == name;
            if hashes.len() < NAMES_MAX {
                hashes.insert(hash(there));
            }
        })?;
        let mut left = NAMES_MAX - hashes.len();
        self.folders.push_back(FoldedNames { folder, hashes });
        // The oldest folders are forgotten.
        let others = self.folders.iter().rev().skip(1).take(FOLDERS_MAX - 1);
        let kept = others.take_while(|it| {
            let rest = left.checked_sub(it.hashes.len());
            left = rest.unwrap_or_default();
            rest.is_some()
        });
        let kept = 1 + kept.count();
        self.folders.drain(..self.folders.len() - kept);
        Ok(is_there)
    }
}

/// Returns another name that such a target treats as this one; `None` where no known target has any.
fn twin(name: &[u8]) -> Option<Vec<u8>> {
    let swapped = |b: &u8| {
        if b.is_ascii_lowercase() {
            b.to_ascii_uppercase()
        } else {
            b.to_ascii_lowercase()
        }
    };
    let mut twin: Vec<u8> = name.iter().map(swapped).collect();
    if twin == name {
        let text = std::str::from_utf8(name).unwrap_or_default();
        twin = text.chars().map(swapped_char).collect::<String>().into();
    }
    if twin == name || twin.is_empty() {
        let end = name.iter().rposition(|b| !matches!(b, b'.' | b' '));
        twin = name[..end.map_or(0, |end| end + 1)].to_vec();
    }
    (twin != name && !twin.is_empty()).then_some(twin)
}

fn swapped_char(c: char) -> char {
    let one = |mut chars: std::char::ToUppercase| chars.next().filter(|_| chars.next().is_none());
    if c.is_lowercase() {
        one(c.to_uppercase()).unwrap_or(c)
    } else {
        c.to_lowercase().next().unwrap_or(c)
    }
}

/// Whether some target may treat the two as one name.
fn are_alike(a: &[u8], b: &[u8]) -> bool {
    let folded = |name| String::from_utf8_lossy(name).to_lowercase();
    let cut = |name: String| name.trim_end_matches(['.', ' ']).to_owned();
    cut(folded(a)) == cut(folded(b))
}

fn each_name(dir: &OwnedFd, each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
    // The folder is opened anew: another thread may be listing it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    let mut buf = [MaybeUninit::uninit(); 32 << 10];
    let mut names = RawDir::new(&dir, &mut buf);
    let mut interruptions = Interruptions::default();
    while let Some(entry) = names.next() {
        match entry {
            Err(Errno::INTR) if interruptions.allow() => {}
            entry => each(entry?.file_name().to_bytes()),
        }
    }
    Ok(())
}

/// Whether a thing found as `name` in `dir` may have another name: its twin is found, too.
fn may_be_another(dir: &OwnedFd, name: &[u8]) -> bool {
    twin(name).is_some_and(|twin| Stat::at(dir, &twin, false).is_ok())
}

/// Whether the thing found as `name` in `dir` has exactly that name.
pub fn is_exact(dir: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    if !may_be_another(dir, name) {
        return Ok(true);
    }
    ListedFolders::default().has(0, name, |each| each_name(dir, each))
}

/// Checks that the target has a folder, and those above it up to one of the `exact`, by exactly their names; adds them
/// to `exact`.
fn lead_exactly(
    window: &Window,
    number: u32,
    exact: &Mutex<HashSet<u32>>,
    must_be_exact: impl Fn(u32, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut checked = Vec::new();
    for at in window.way_up(number) {
        if exact.lock().contains(&at) {
            break;
        }
        let folder = &window.folders[at as usize];
        must_be_exact(folder.parent, &folder.name)?;
        checked.push(at);
    }
    exact.lock().extend(checked);
    Ok(())
}

impl WindowRun<'_> {
    /// Checks a name in a folder of the window, as [`is_exact`] does. [`TAKEN`]: the thing has another name.
    pub(super) fn must_be_exact(
        &self,
        (folder, dir): (u32, &OwnedFd),
        name: &[u8],
    ) -> Result<(), Errno> {
        if !may_be_another(dir, name) {
            return Ok(());
        }
        let list = |each: &mut dyn FnMut(&[u8])| each_name(dir, each);
        if self.listed.lock().has(folder, name, list)? {
            Ok(())
        } else {
            Err(TAKEN)
        }
    }

    /// Checks that an existing folder, and those above it, have exactly the names that the snapshot says.
    pub(super) fn must_lead_exactly(&self, number: u32) -> Result<(), Errno> {
        let must_be_exact = |above, name: &[u8]| {
            let dir = match self.open(above) {
                // The owner is let into this folder on the way.
                Err(FolderError {
                    why: Errno::ACCESS, ..
                }) => self.folder(above)?,
                other => other.map_err(|failed| failed.why)?,
            };
            self.must_be_exact((above, &dir), name)
        };
        lead_exactly(self.window, number, &self.exact, must_be_exact)
    }

    /// Says which names the target treats as one, for a path that failed with [`TAKEN`].
    pub(super) fn taken(&self, path: &[u8]) -> String {
        let show = |name: &[u8]| crate::path::show(name);
        let mut at = path;
        while !at.is_empty() {
            let (folder, name) = split(at);
            let (mut has_it, mut other) = (false, None);
            if let Ok(dir) = self.all.target.open_folder(folder) {
                let _ = each_name(&dir, &mut |there| {
                    has_it |= there == name;
                    if are_alike(there, name) {
                        other = Some(there.to_vec());
                    }
                });
            }
            if let Some(other) = other.filter(|_| !has_it) {
                let (one, other) = (show(name), show(&other));
                return format!("the target takes {one} and {other} for one name, and has {other}");
            }
            at = folder;
        }
        "the target takes this name and another that it has for one".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a restore finds exactly this name in a folder of a target that ignores case.
    fn finds(listed: &mut ListedFolders, names: &[&str], name: &str) -> bool {
        let answers = |asked: &[u8]| names.iter().any(|it| are_alike(it.as_bytes(), asked));
        assert!(answers(name.as_bytes()), "{name} is asked for where it is");
        let has = listed.has(1, name.as_bytes(), |each| {
            names.iter().for_each(|name| each(name.as_bytes()));
            Ok(())
        });
        let twin = twin(name.as_bytes());
        !twin.is_some_and(|twin| answers(&twin)) || has.expect("listed")
    }

    #[test]
    fn a_name_of_other_case_is_another() {
        let names = ["README", "big", "ÄÖ", "1", "ends"];
        for there in names {
            assert!(
                finds(&mut ListedFolders::default(), &names, there),
                "{there}"
            );
        }
        for other in ["readme", "Readme", "BIG", "äö", "1.", "ends. ."] {
            assert!(
                !finds(&mut ListedFolders::default(), &names, other),
                "{other}"
            );
        }
    }

    /// The target has `/Sub/deep`, the snapshot `/sub/deep/er` and `/Sub/deep`.
    #[test]
    fn a_folder_is_not_gone_into_by_another_name_of_it() {
        let mut window = Window::new(0);
        let target = window.folder(b"", 0, None);
        let there = [("sub", false), ("Sub", true)].map(|(name, is_there)| {
            let sub = window.folder(name.as_bytes(), target, None);
            let deep = window.folder(b"deep", sub, None);
            (deep, window.folder(b"er", deep, None), is_there)
        });
        let names = |above: u32| match above {
            0 => ["Sub"],
            above if window.folders[above as usize].parent == 0 => ["deep"],
            _ => ["er"],
        };
        let (exact, asked) = (Mutex::default(), std::cell::Cell::new(0));
        let ask = |above, name: &[u8]| {
            asked.set(asked.get() + 1);
            let name = std::str::from_utf8(name).expect("text");
            if finds(&mut ListedFolders::default(), &names(above), name) {
                Ok(())
            } else {
                Err(TAKEN)
            }
        };
        for (deep, deeper, is_there) in there {
            let expected = if is_there { Ok(()) } else { Err(TAKEN) };
            for folder in [deep, deeper, deep] {
                assert_eq!(lead_exactly(&window, folder, &exact, ask), expected);
            }
        }
        // `sub` with the folders above it is asked for three times, `Sub` and the folders in it once.
        assert_eq!(asked.get(), 2 + 3 + 2 + 3);
    }

    #[test]
    fn what_was_made_since_the_folder_was_listed_is_found() {
        let mut listed = ListedFolders::default();
        assert!(finds(&mut listed, &["a"], "a"));
        assert!(finds(&mut listed, &["a", "b"], "b"));
        assert!(!finds(&mut listed, &["a", "b"], "B"));
    }

    #[test]
    fn folders_that_take_turns_are_listed_once_each() {
        let (mut listed, mut listings) = (ListedFolders::default(), 0);
        for round in 0..100 {
            for folder in 0..FOLDERS_MAX as u32 {
                let name = format!("name {round}");
                let has = listed.has(folder, name.as_bytes(), |each| {
                    listings += 1;
                    (0..100).for_each(|n| each(format!("name {n}").as_bytes()));
                    Ok(())
                });
                assert_eq!(has, Ok(true));
            }
        }
        assert_eq!(listings, FOLDERS_MAX);
        // No more folders than that are remembered.
        for folder in 0..100 {
            let _ = listed.has(folder, b"name", |_| Ok(()));
        }
        assert_eq!(listed.folders.len(), FOLDERS_MAX);
    }

    #[test]
    fn a_folder_of_very_many_names_keeps_others_from_being_remembered() {
        let mut listed = ListedFolders::default();
        let mut has = |folder, names: usize| {
            let list = |each: &mut dyn FnMut(&[u8])| {
                (0..names).for_each(|n| each(&n.to_le_bytes()));
                Ok(())
            };
            listed.has(folder, b"none", list).expect("listed");
            listed
                .folders
                .iter()
                .map(|it| it.folder)
                .collect::<Vec<_>>()
        };
        assert_eq!(has(1, 10), [1]);
        assert_eq!(has(2, 10), [1, 2]);
        assert_eq!(has(3, NAMES_MAX - 10), [2, 3]);
        assert_eq!(has(4, NAMES_MAX + 10), [4]);
    }

    /// On a file system where case matters.
    #[test]
    fn where_case_matters_both_names_are_exact() {
        let place = tempfile::tempdir().expect("tempdir");
        for name in ["name", "NAME"] {
            std::fs::write(place.path().join(name), name).expect("write");
        }
        let dir = OwnedFd::from(std::fs::File::open(place.path()).expect("open"));
        for name in ["name", "NAME"] {
            assert_eq!(is_exact(&dir, name.as_bytes()), Ok(true));
        }
    }
}
