//! Checks which sources can be backed up, before anything is walked: without any, no snapshot is made.

use std::borrow::Cow;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::exclude::Excludes;
use crate::meta::Stat;
use crate::walk::{self, Moved, Walk, check_depths, is_below_left_out};
use crate::{Error, Result, path};

/// Sources of a backup. There may be hundreds of thousands of paths: where all can be backed up, each is here once.
pub(super) struct Sources {
    all: Vec<Vec<u8>>,
    /// Paths that can be backed up, where some cannot.
    sound: Option<Vec<Vec<u8>>>,
    /// Sources that are stored under other paths than their own; [`all`](Self::all) has the paths that are stored.
    moved: Vec<Moved>,
    /// Number of sources that are not there, or cannot be looked at.
    pub missing: u64,
}

/// The reason why a source cannot be backed up.
enum SourceFault {
    Missing(Errno),
    OfItself,
}

/// Checks `paths` as a backup would, for callers that need the answer before anything is done.
///
/// # Errors
/// [`Error::NoSource`]: no path is there, as far as can be seen, or only such as lie in folders that are left out.
/// [`Error::Usage`]: a path has too many folders above it.
pub fn confirm_sources(paths: &[Vec<u8>], excludes: &Excludes) -> Result<()> {
    check_depths(paths)?;
    let mut eye = Eye::new(excludes);
    if paths
        .iter()
        .any(|path| eye.look(&path::cleaned(path)).is_none())
    {
        Ok(())
    } else {
        Sources::find(paths.to_vec(), excludes).map(drop)
    }
}

impl Sources {
    /// Makes the source of a stream, which is stored at `path`.
    pub fn of_stream(path: &[u8]) -> Self {
        Self {
            all: vec![path::clean(path)],
            sound: None,
            moved: Vec::new(),
            missing: 0,
        }
    }

    /// Looks at sources that are stored under other paths.
    ///
    /// # Errors
    /// Errors of [`find`](Self::find), even where only one source fails: a user who says where each belongs means them
    /// all.
    pub fn find_moved(mut moved: Vec<Moved>, excludes: &Excludes) -> Result<Self> {
        for source in &mut moved {
            source.from = path::clean(&source.from);
            source.to = path::clean(&source.to);
            Self::find(vec![source.from.clone()], excludes)?;
        }
        moved.sort_unstable_by(|a, b| a.to.cmp(&b.to));
        Ok(Self {
            all: moved.iter().map(|source| source.to.clone()).collect(),
            sound: None,
            moved,
            missing: 0,
        })
    }

    /// Starts the walk of all sources.
    ///
    /// # Errors
    /// Errors of [`Walk::start`] and [`Walk::start_moved`].
    pub fn walk(&self, options: &walk::Options) -> Result<Walk> {
        match &self.moved[..] {
            [] => Walk::start(&self.all, options),
            moved => Walk::start_moved(moved, options),
        }
    }

    /// Looks at the paths, and finds out which can be backed up.
    ///
    /// # Errors
    /// [`Error::NoSource`]: no path is there, as far as can be seen, or only such as lie in folders that are left out.
    /// [`Error::Usage`]: a path has too many folders above it.
    pub fn find(mut all: Vec<Vec<u8>>, excludes: &Excludes) -> Result<Self> {
        for path in &mut all {
            if let Cow::Owned(clean) = path::cleaned(path) {
                *path = clean;
            }
        }
        check_depths(&all)?;
        all.sort_unstable();
        all.dedup();
        let mut eye = Eye::new(excludes);
        let all_paths = all.iter().map(|path| &path[..]);
        let faults: Vec<(&[u8], SourceFault)> = all_paths
            .filter_map(|path| Some((path, eye.look(path)?)))
            .collect();
        if faults.len() == all.len() {
            return Err(Error::NoSource(why_none(&faults)));
        }
        let is_missing =
            |(_, fault): &&(&[u8], SourceFault)| matches!(fault, SourceFault::Missing(_));
        let missing = faults.iter().filter(is_missing).count() as u64;
        let is_sound = |path: &&Vec<u8>| {
            faults
                .binary_search_by_key(&&path[..], |(faulty, _)| faulty)
                .is_err()
        };
        let sound = (!faults.is_empty()).then(|| all.iter().filter(is_sound).cloned().collect());
        Ok(Self {
            missing,
            sound,
            moved: Vec::new(),
            all,
        })
    }

    /// All paths, sorted. Each of them is walked, so that the walk reports those that cannot be backed up.
    pub fn all(&self) -> &[Vec<u8>] {
        &self.all
    }

    /// Paths that can be backed up. The snapshot names no others: once a mistyped path is corrected, the next backup
    /// has the same paths as those before the mistake.
    pub fn sound(&self) -> &[Vec<u8>] {
        self.sound.as_ref().unwrap_or(&self.all)
    }

    /// Returns the paths of [`Sources::sound`].
    pub fn into_sound(self) -> Vec<Vec<u8>> {
        self.sound.unwrap_or(self.all)
    }
}

/// Looks at sources, one after another.
struct Eye<'a> {
    excludes: &'a Excludes,
    /// Folder that was asked about last, and whether it is left out: there may be many sources in few folders.
    last: Option<(Vec<u8>, bool)>,
}

impl<'a> Eye<'a> {
    fn new(excludes: &'a Excludes) -> Self {
        Self {
            excludes,
            last: None,
        }
    }

    fn look(&mut self, path: &[u8]) -> Option<SourceFault> {
        let stat = match Stat::at(CWD, or_root(path), false) {
            Ok(stat) => stat,
            // A path that is too long for one call must be walked, name by name.
            Err(Errno::NAMETOOLONG) => return None,
            Err(e) => return Some(SourceFault::Missing(e)),
        };
        let is_of_itself =
            self.excludes.is_left_out(&stat) || self.is_left_out(path::split(path).0);
        is_of_itself.then_some(SourceFault::OfItself)
    }

    /// Whether the folder, or one above it, is left out, under any name.
    fn is_left_out(&mut self, folder: &[u8]) -> bool {
        if let Some((last, is_out)) = &self.last
            && last == folder
        {
            return *is_out;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The walk reports a folder that cannot be opened.
        let is_out = rustix::fs::openat(CWD, or_root(folder), flags, Mode::empty())
            .is_ok_and(|folder| is_below_left_out(folder, self.excludes));
        self.last = Some((folder.to_vec(), is_out));
        is_out
    }
}

fn or_root(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

/// Says why there is nothing to back up: a fault other than a mistyped path comes first.
fn why_none(faults: &[(&[u8], SourceFault)]) -> String {
    let is_typo =
        |fault: &SourceFault| matches!(fault, SourceFault::Missing(Errno::NOENT | Errno::NOTDIR));
    match faults.iter().find(|(_, fault)| !is_typo(fault)) {
        Some((path, SourceFault::OfItself)) => {
            format!("{}: {}", path::show(path), Error::IntoItself)
        }
        Some((path, SourceFault::Missing(e))) => format!("{}: {e}", path::show(path)),
        None => match faults {
            [(one, _)] => format!("{} does not exist", path::show(one)),
            many => format!("none of the {} sources exists", many.len()),
        },
    }
}
