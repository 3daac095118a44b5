//! Where the user says that a repository is: a local folder, or a bucket of object storage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{Dir, ErrorKind, FileDir, GroupAccess, RemadeDir};
use onefold_store::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use onefold_store::{
    CONTAINER_FOLDER, Entropy, Error as StoreError, INDEX_FOLDER, Place, Repository,
    RepositoryConfig,
};
use onefold_volume::depot::config::DEPOT;
use rustix::fs::{Mode, OFlags};

#[cfg(feature = "remote")]
use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::global::Global;
use crate::machine_cache;

/// Objects whose mode tells what the group of a repository may do; the first of these that is there counts. restic goes
/// by its `config`, too; the others stand for one that is lost, so that a repair makes it for the group.
const SHARED_AS: [&str; 3] = [CONFIG_OBJECT, CONFIG_COPY_OBJECT, CONTAINER_FOLDER];

/// Takes back the sessions and locks that this process has in buckets: it ends. Those in folders go with the process.
pub fn leave_all() {
    #[cfg(feature = "remote")]
    crate::bucket::leave_all();
}

/// Where a repository is, or is to be.
pub enum Site {
    /// In this folder.
    Folder(PathBuf),
    /// In a bucket.
    #[cfg(feature = "remote")]
    Bucket(Box<Bucket>),
}

/// How the place of a replica lies to that of its repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The two places have nothing to do with each other.
    Apart,
    /// The two are one place.
    Same,
    /// The replica would lie in the repository.
    Inside,
}

impl Site {
    /// How `other` lies to this place, by whatever path or link.
    pub fn relation_to(&self, other: &Self) -> Relation {
        match (self, other) {
            (Self::Folder(own), Self::Folder(other)) => match (real(own), real(other)) {
                (Some(own), Some(other)) => relation(other.strip_prefix(own).ok()),
                _ => Relation::Apart,
            },
            #[cfg(feature = "remote")]
            (Self::Bucket(own), Self::Bucket(other)) => relation(other.below(own).as_deref()),
            #[cfg(feature = "remote")]
            _ => Relation::Apart,
        }
    }

    /// Shows the place as messages name it.
    pub fn display(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            #[cfg(feature = "remote")]
            Self::Bucket(bucket) => bucket.location().to_string(),
        }
    }

    /// The folder, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            #[cfg(feature = "remote")]
            Self::Bucket(_) => None,
        }
    }

    /// The place of the repository before it is known which one it is: this machine's own folder is not the one that
    /// its index lies in.
    ///
    /// # Errors
    /// [`Error::NoRepository`]: there is no such folder, or another program's repository.
    pub fn place(&self) -> Result<Place> {
        match self {
            Self::Folder(folder) => Ok(Place::local(open_folder(folder)?, &Entropy::system())),
            #[cfg(feature = "remote")]
            Self::Bucket(bucket) => Ok(bucket.place()),
        }
    }

    /// The `place` of the repository that is there, with the sessions and locks that all who work in it share.
    ///
    /// # Errors
    /// [`StoreError::Locked`]: another machine uses a repository in a bucket alone.
    pub fn settled(&self, place: Place, global: &Global) -> onefold_store::Result<Place> {
        match self {
            Self::Folder(_) => Ok(place),
            #[cfg(feature = "remote")]
            Self::Bucket(bucket) => bucket.settled(place, global.take_over),
        }
    }

    /// The `place` of the repository that `config` is of, with the index where the user wants it: each repository has a
    /// folder of its own there, so that several can have one `--index-dir`. Its group may do there what it may do in
    /// the repository.
    ///
    /// # Errors
    /// Failures of that folder; none is known where a repository in a bucket could have one.
    pub fn with_own(
        &self,
        place: Place,
        global: &Global,
        config: &RepositoryConfig,
    ) -> onefold_store::Result<Place> {
        let Some(folder) = self.own_parent(global)? else {
            return Ok(place);
        };
        // A group whose modes cannot be told gets nothing.
        let group = self.group_access().ok().flatten().unwrap_or_default();
        let own = RemadeDir::below(folder.clone(), config.repository_hex(), group);
        match self {
            Self::Folder(_) => Ok(place.with_own(Arc::new(own))),
            #[cfg(feature = "remote")]
            Self::Bucket(bucket) => {
                machine_cache::begin(&folder, &config.repository_hex(), global);
                bucket.place_with(Arc::new(own), global.take_over)
            }
        }
    }

    /// The folder in which each repository's own folder lies; `None` where a repository's folder is its own.
    ///
    /// # Errors
    /// Nothing says where it is to be.
    pub fn own_parent(&self, global: &Global) -> onefold_store::Result<Option<PathBuf>> {
        match (&global.index_dir, self) {
            (Some(folder), _) => Ok(Some(folder.clone())),
            (None, Self::Folder(_)) => Ok(None),
            #[cfg(feature = "remote")]
            (None, Self::Bucket(_)) => machine_cache::parent(global).map(Some),
        }
    }

    /// Whether a repository is there.
    ///
    /// # Errors
    /// Nobody can say.
    pub fn has_repository(&self) -> Result<bool> {
        let place = match self.place() {
            Err(Error::NoRepository(_)) => return Ok(false),
            place => place?,
        };
        match Repository::config_at(&place) {
            Ok(_) => Ok(true),
            Err(StoreError::NoRepository { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The repository that the folder lies in, by whatever path or link.
    pub fn around(&self) -> Option<PathBuf> {
        let folder = std::path::absolute(self.folder()?).ok()?;
        let there = folder.ancestors().find_map(|it| it.canonicalize().ok())?;
        let holds_one = |it: &Path| matches!(Self::Folder(it.into()).has_repository(), Ok(true));
        let outer = there.ancestors().find(|it| holds_one(it));
        outer.map(Path::to_path_buf)
    }

    /// Returns the rights of the group in the repository's folder; `None` where there is no folder.
    ///
    /// # Errors
    /// Failures of the folder.
    pub fn group_access(&self) -> Result<Option<GroupAccess>> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        match FileDir::open(folder) {
            Ok(dir) => Ok(Some(dir.shared_as(&SHARED_AS).group_access())),
            Err(error) => Err(StoreError::Io(error).into()),
        }
    }
}

/// Returns the relation of two places, by the path below the first.
fn relation(below: Option<&Path>) -> Relation {
    match below {
        None => Relation::Apart,
        Some(path) if path.as_os_str().is_empty() => Relation::Same,
        Some(_) => Relation::Inside,
    }
}

/// The path without links and dots, of a folder that may not be there yet.
fn real(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    let there = folder.ancestors().find(|it| it.exists())?;
    let rest = folder.strip_prefix(there).ok()?;
    let there = there.canonicalize().ok()?;
    // Joined with nothing, it would end with a slash.
    Some(there.components().chain(rest.components()).collect())
}

fn open_folder(folder: &Path) -> Result<Arc<dyn Dir>> {
    match FileDir::open(folder) {
        Ok(dir) => match something_else(folder) {
            None => Ok(Arc::new(dir.linked(INDEX_FOLDER).shared_as(&SHARED_AS))),
            Some(other) => {
                let what = format!("{}, which is {other}", folder.display());
                Err(Error::NoRepository(what))
            }
        },
        Err(error) if error.kind == ErrorKind::NotFound => {
            Err(Error::NoRepository(folder.display().to_string()))
        }
        Err(error) if is_no_folder(&error) => {
            let what = format!("{}, which is no folder", folder.display());
            Err(Error::NoRepository(what))
        }
        Err(error) => Err(StoreError::Io(error).into()),
    }
}

/// Names what stands in the folder in place of a repository of ours: opened as one it would seem damaged.
fn something_else(folder: &Path) -> Option<&'static str> {
    let is_ours = folder.join("containers").exists();
    let config = || {
        let mut start = [0; 12];
        // A FIFO of that name, or one that a link leads to, would make us wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = rustix::fs::open(folder.join("config"), flags, Mode::empty());
        let mut file = std::fs::File::from(file.ok()?);
        file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        io::Read::read_exact(&mut file, &mut start).ok()?;
        Some(start)
    };
    if is_ours {
        return None;
    }
    let start = config()?;
    if start.starts_with(&DEPOT.magic) {
        Some("a depot of block devices, for `onefold volume`")
    } else if !folder.join("data").is_dir() {
        None
    } else if start == *b"[repository]" {
        Some("a repository of borg")
    } else {
        let is_restic = folder.join("snapshots").is_dir();
        is_restic.then_some("a repository of restic")
    }
}

fn is_no_folder(error: &onefold_io::Error) -> bool {
    let kind = error.source.as_ref().map(io::Error::kind);
    kind == Some(io::ErrorKind::NotADirectory)
}
