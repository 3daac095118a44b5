//! Folders of this machine for repositories in buckets, one for each repository, with the index of fingerprints and
//! copies of what the bucket has. All of it may be deleted at any time, also while commands use it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use onefold_store::{Error as StoreError, LOCAL_CACHE_FOLDER, Result as StoreResult};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;

/// Characters in the name of a repository's folder: its identity in hexadecimal.
const NAME_CHARS: usize = 32;
/// A folder that was not used for so long is old, unless another age is said: 30 days, as restic has it.
pub const OLD_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The folder of one repository.
#[derive(Debug)]
pub struct KeptFolder {
    /// Identity of the repository, in hexadecimal.
    pub repository: String,
    pub path: PathBuf,
    /// Last time when a command used the repository.
    pub used: SystemTime,
    /// Bytes of copies of what the bucket has.
    pub copies_bytes: u64,
    /// Bytes of all else: the index, and a prune's working file.
    pub index_bytes: u64,
}

impl KeptFolder {
    /// Whether it was not used for `age`. A time in the future is none.
    pub fn is_older_than(&self, age: Duration) -> bool {
        self.used.elapsed().is_ok_and(|unused| unused > age)
    }

    /// Removes it.
    ///
    /// # Errors
    /// Failures of the file system, but for files that others remove meanwhile.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(format!("remove {}", self.path.display()), error)),
            Ok(()) => Ok(()),
        }
    }
}

/// The folder in which each repository in a bucket has its own.
///
/// # Errors
/// Nothing says where it is to be.
pub fn parent(global: &Global) -> StoreResult<PathBuf> {
    let given = global.index_dir.as_ref().or(global.cache.folder.as_ref());
    let absolute = |name: &str, below: &str| {
        let folder = PathBuf::from(std::env::var_os(name)?);
        folder.is_absolute().then(|| folder.join(below))
    };
    given
        .cloned()
        .or_else(|| absolute("XDG_CACHE_HOME", "onefold"))
        .or_else(|| absolute("HOME", ".cache/onefold"))
        .ok_or_else(|| {
            StoreError::Option(
                "there is no folder for the index: set HOME or XDG_CACHE_HOME, or give --cache-dir or --index-dir"
                    .into(),
            )
        })
}

/// All folders of repositories in `parent`, in order of their names; none where there is no such folder.
///
/// # Errors
/// The folder cannot be listed.
pub fn all(parent: &Path) -> Result<Vec<KeptFolder>> {
    let fail = |error| Error::io(format!("list {}", parent.display()), error);
    let listed = match fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(fail)?,
    };
    let mut all = Vec::new();
    for entry in listed {
        let entry = entry.map_err(fail)?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_folder && is_of_repository(&name) {
            all.extend(looked_at(name, entry.path()));
        }
    }
    all.sort_unstable_by(|a, b| a.repository.cmp(&b.repository));
    Ok(all)
}

fn is_of_repository(name: &str) -> bool {
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    name.len() == NAME_CHARS && name.chars().all(is_digit)
}

/// `None`: it was removed meanwhile.
fn looked_at(repository: String, path: PathBuf) -> Option<KeptFolder> {
    let used = fs::metadata(&path).ok()?.modified().ok()?;
    let copies_bytes = bytes_below(&path.join(LOCAL_CACHE_FOLDER));
    Some(KeptFolder {
        index_bytes: bytes_below(&path).saturating_sub(copies_bytes),
        copies_bytes,
        repository,
        path,
        used,
    })
}

/// Bytes of the files below a folder. What cannot be looked at, or goes meanwhile, is not counted.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(listed) = fs::read_dir(folder) else {
        return 0;
    };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    listed.flatten().map(bytes).sum()
}

/// Notes that the `repository` is in use, and with `--cleanup-cache` removes the folders of others that are old.
pub fn begin(parent: &Path, repository: &str, global: &Global) {
    // One that is not there yet is made later, and has the time of that.
    if let Ok(folder) = fs::File::open(parent.join(repository)) {
        let _ = folder.set_modified(SystemTime::now());
    }
    if !global.cache.cleanup {
        return;
    }
    let folders = all(parent).unwrap_or_default().into_iter();
    let old = folders.filter(|it| it.repository != repository && it.is_older_than(OLD_AFTER));
    for folder in old {
        match folder.remove() {
            Ok(()) => tracing::info!(
                "{} is removed: it was not used for 30 days",
                folder.path.display()
            ),
            Err(error) => tracing::warn!("{}", error.chain()),
        }
    }
}

/// Makes the error of a folder that the user gave, and that cannot be made, one of usage: nothing but that folder is
/// wrong. Any other error stays as it is.
pub fn blame_given_folder(error: Error, global: &Global) -> Error {
    if error.exit() != Exit::Failed {
        return error;
    }
    let told = error.chain();
    let given = [
        ("--index-dir", &global.index_dir),
        ("--cache-dir", &global.cache.folder),
    ];
    let is_made_in_vain = |folder: &PathBuf| {
        let making = format!("create folder {}: ", folder.display());
        told.contains(&making)
    };
    let blamed = given
        .into_iter()
        .find(|(_, folder)| folder.as_ref().is_some_and(is_made_in_vain));
    match blamed {
        Some((flag, _)) => {
            Error::Usage(format!("{flag} names a folder that cannot be made: {told}"))
        }
        None => error,
    }
}
