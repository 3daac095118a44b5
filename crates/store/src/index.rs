//! The fingerprint index of an opened repository: opened by the name in its configuration, and begun anew where its
//! files are damaged.
//!
//! Invariant: what stands in for an index that is not open knows nothing, which costs a reader time and is never
//! wrong (ARCHITECTURE.md, invariant 1); so whatever keeps an index from being opened, who reads goes on without, and
//! who writes is told. `strata` has as many openers as there are processes and is open at once; it is deleted under
//! their feet by its own means, which keep locks and what they are about to enter. The papers' indexes have one opener
//! at a time, so they are opened when the first session needs to write: readers, and a second repository that only
//! reads, never wait for them. Whoever has one open holds `opener.lock` beside the index's own lock, also while it is
//! thrown away and begun anew: nobody comes in between. Which kinds there are the options say: the store knows none.

pub mod catalog;
pub(crate) mod hooked;
pub(crate) mod imagined;
pub mod ingested;
pub mod sketch;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use onefold_chunk::knobs::Knobs;
use onefold_index::{
    ChunkIndex, ContainerId, IndexKind, Location, OpenIndex, Openers, RamIndex, kind_of,
};
use onefold_io::{Dir, ErrorKind, LockGuard, LockKind, MemDir, if_there};

use crate::container::ContainerTable;
use crate::index::ingested::Ingested;
use crate::repository::OpenOptions;
use crate::{Error, Result};

pub use crate::folders::INDEX_FOLDER;

/// The index that keeps nothing on disk.
const RAM: &str = "ram";
/// Time that an opened repository waits for the index's locks, in milliseconds: a reader can do without, a writer waits
/// as long as it takes.
const READER_WAIT_MS: u64 = 2000;
/// Lock of a process that has an index of one opener open.
const OPENER_LOCK: &str = "opener.lock";

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Io(error) | Error::Index(onefold_index::Error::Io(error)) if error.kind == ErrorKind::Denied)
}

/// The fingerprint index of an opened repository, or what stands in for it while it is not open.
pub(crate) struct RepositoryIndex {
    /// The kind and the parameters that it was made with; none of `ram`.
    kind: Option<(IndexKind, Knobs)>,
    /// The machine's own folder, which the index's folder is in.
    own: Arc<dyn Dir>,
    dir: Arc<dyn Dir>,
    /// Why its folder cannot be had. Then an empty one in RAM stands in for it, which is enough for whoever reads.
    denied: Option<onefold_io::Error>,
    /// Why it could not be opened when the repository was: who reads goes on without.
    out_of_reach: Option<String>,
    index: Box<dyn ChunkIndex>,
    is_open: bool,
    opener: Option<Box<dyn LockGuard>>,
    times_forgotten: u64,
}

impl RepositoryIndex {
    /// The index `name` in this machine's `own` folder, opened already if it can have several openers.
    pub(crate) fn new(name: &str, own: &Arc<dyn Dir>, options: &OpenOptions) -> Result<Self> {
        let kind = kind(name, options.indexes)?;
        let (dir, denied) = folder(&**own);
        let mut index = Self {
            kind,
            own: Arc::clone(own),
            dir,
            out_of_reach: denied.as_ref().map(ToString::to_string),
            denied,
            index: Box::new(RamIndex::new()),
            is_open: false,
            opener: None,
            times_forgotten: 0,
        };
        if index.has_many_openers() {
            match index.open_waiting(options, Some(READER_WAIT_MS)) {
                // The user asked for this budget, and must change it.
                Err(error @ Error::Index(onefold_index::Error::Budget { .. })) => {
                    return Err(error);
                }
                // A place that may not be written: as it should be, and of no weight for whoever reads.
                Err(error) if is_denied(&error) => {
                    tracing::info!("{error}: the repository is read without its index");
                    index.out_of_reach = Some(error.to_string());
                }
                Err(error) => tracing::warn!("{error}: the repository is read without its index"),
                Ok(()) => {}
            }
        }
        Ok(index)
    }

    /// Why it, or its folder, cannot be had: the place may not be read or written.
    pub(crate) fn out_of_reach(&self) -> Option<&str> {
        self.out_of_reach.as_deref()
    }

    fn has_many_openers(&self) -> bool {
        let is_shared = |(kind, _): &(IndexKind, Knobs)| kind.openers == Openers::Many;
        self.kind.as_ref().is_some_and(is_shared)
    }

    /// Whether it is open: what stands in for it otherwise knows nothing, and holds nothing.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it keeps anything on disk.
    pub(crate) fn is_persistent(&self) -> bool {
        self.kind.is_some()
    }

    /// Opens it, if it is not open yet. One whose files are damaged is begun anew, for every container will be told to
    /// it again.
    ///
    /// # Errors
    /// [`Error::Locked`] where it has one opener, and that is another.
    pub(crate) fn open(&mut self, options: &OpenOptions) -> Result<()> {
        self.open_waiting(options, None)
    }

    fn open_waiting(&mut self, options: &OpenOptions, wait_ms_max: Option<u64>) -> Result<()> {
        if self.is_open {
            return Ok(());
        }
        match self.hold() {
            // Deleted since this process opened its folder.
            Err(error) if error.is_not_found() => {
                self.find_folder()?;
                self.hold()?;
            }
            other => other?,
        }
        let opened = self.open_held(options, wait_ms_max);
        match &opened {
            Ok(()) => self.is_open = true,
            Err(_) => self.opener = None,
        }
        opened
    }

    fn open_held(&mut self, options: &OpenOptions, wait_ms_max: Option<u64>) -> Result<()> {
        let Some((kind, knobs)) = self.kind.clone() else {
            return self.clear();
        };
        let open = |dir: &Arc<dyn Dir>| open_kind(&kind, &knobs, dir, options, wait_ms_max);
        let index = match open(&self.dir) {
            Err(error) if error.is_loss() => {
                tracing::warn!("{error}: the index is rebuilt from the containers");
                self.begin_anew()?;
                open(&self.dir)?
            }
            other => other?,
        };
        // One that is empty was told of nothing, whatever is listed: otherwise it would pass for one that knows. The
        // others do not know, when they are opened, how many entries they have.
        if self.has_many_openers() && index.stats().entries == 0 {
            self.clear_lists(wait_ms_max)?;
        }
        self.index = index;
        Ok(())
    }

    /// Throws it away and begins it anew, empty. What is thrown away is not opened for that: it may be why it is thrown
    /// away.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`confirm_kept`](Self::confirm_kept).
    pub(crate) fn forget(&mut self, options: &OpenOptions) -> Result<()> {
        self.confirm_kept()?;
        self.times_forgotten = self.times_forgotten() + 1;
        self.index = Box::new(RamIndex::new());
        self.is_open = false;
        self.begin_anew()?;
        self.open(options)
    }

    /// Returns how often the index was forgotten, here or, as far as was seen, by others.
    pub(crate) fn times_forgotten(&self) -> u64 {
        self.times_forgotten + self.index.times_begun_anew()
    }

    /// For whoever tells the index something: that it is the repository's.
    pub(crate) fn confirm_kept(&self) -> Result<()> {
        self.denied
            .as_ref()
            .map_or(Ok(()), |why| Err(no_folder(why)))
    }

    /// Which containers it was told of.
    pub(crate) fn ingested(&self) -> Ingested {
        Ingested::new(Arc::clone(&self.dir))
    }

    /// Containers of which it has the hooks.
    pub(crate) fn hooked(&self) -> Ingested {
        Ingested::hooked(Arc::clone(&self.dir))
    }

    /// Takes containers that were deleted off both lists.
    pub(crate) fn unlist(&self, gone: &[ContainerId]) -> Result<()> {
        self.ingested().remove(gone)?;
        let hooked = self.hooked();
        if hooked.read()?.is_empty() {
            Ok(())
        } else {
            Ok(hooked.remove(gone)?)
        }
    }

    /// Removes both lists, durably: it knows nothing any more.
    fn clear_lists(&self, wait_ms_max: Option<u64>) -> Result<()> {
        self.ingested().clear(wait_ms_max)?;
        Ok(self.hooked().clear(wait_ms_max)?)
    }

    /// Bytes on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        folder_bytes(&*self.dir)
    }

    /// An empty folder that nobody else opens, if the index has one opener.
    fn begin_anew(&mut self) -> Result<()> {
        self.find_folder()?;
        self.hold()?;
        self.clear()
    }

    /// The folder has been deleted, perhaps: what is open of it has no name any more. Another's may be there by now.
    fn find_folder(&mut self) -> Result<()> {
        let holds = self.opener.is_some() && self.dir.open(OPENER_LOCK).is_ok();
        if holds || self.denied.is_some() {
            return Ok(());
        }
        self.opener = None;
        self.dir = self
            .own
            .subdir(INDEX_FOLDER)
            .map_err(|why| no_folder(&why))?;
        Ok(())
    }

    /// Makes sure that nobody else opens an index that has one opener, from now on.
    fn hold(&mut self) -> Result<()> {
        let of_one = self.kind.as_ref().map(|(kind, _)| kind);
        let of_one = of_one.filter(|kind| kind.openers == Openers::One);
        if let Some(kind) = of_one.filter(|_| self.opener.is_none()) {
            let lock = self.dir.lock(OPENER_LOCK, LockKind::Exclusive)?;
            self.opener = Some(lock.ok_or_else(|| held(kind.name))?);
        }
        Ok(())
    }

    /// Removes its files, and nothing else that is in its folder; first, durably, the list of what it was told.
    fn clear(&self) -> Result<()> {
        self.clear_lists(None)?;
        let Some((kind, _)) = &self.kind else {
            return Ok(());
        };
        (kind.delete)(&*self.dir)?;
        // others may have it open
        self.clear_lists(None)
    }
}

impl Deref for RepositoryIndex {
    type Target = dyn ChunkIndex;

    fn deref(&self) -> &Self::Target {
        &*self.index
    }
}

impl DerefMut for RepositoryIndex {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.index
    }
}

/// The index's folder; where it cannot be had, an empty one in RAM, and why: it may be closed to the reader, a link to
/// a disk that is not there, on a bad sector, or there is no room to make it.
fn folder(own: &dyn Dir) -> (Arc<dyn Dir>, Option<onefold_io::Error>) {
    match own.subdir(INDEX_FOLDER) {
        Ok(dir) => (dir, None),
        Err(error) => {
            tracing::info!("{error}: the repository is read without its index");
            (Arc::new(MemDir::new()), Some(error))
        }
    }
}

/// Why the folder cannot be had.
fn no_folder(why: &onefold_io::Error) -> Error {
    let kind = match why.kind {
        // an index that is missing is no damage
        ErrorKind::NotFound => ErrorKind::Denied,
        kind => kind,
    };
    onefold_io::Error::new("open folder", INDEX_FOLDER, kind, why.to_string()).into()
}

/// The kind of index that `text`, `NAME` or `NAME:key=value,…`, names among `kinds`, and its parameters; `None` of
/// `ram`.
///
/// # Errors
/// [`Error::Option`] with what there is.
pub(crate) fn kind(text: &str, kinds: &[IndexKind]) -> Result<Option<(IndexKind, Knobs)>> {
    if text == RAM {
        return Ok(None);
    }
    let found = kind_of(kinds, text);
    let found = found.map_err(|error| {
        if error.starts_with("unknown index") {
            format!("{error}, {RAM}")
        } else {
            error
        }
    });
    found.map(Some).map_err(Error::Option)
}

fn open_kind(
    kind: &IndexKind,
    knobs: &Knobs,
    dir: &Arc<dyn Dir>,
    options: &OpenOptions,
    lock_wait_ms_max: Option<u64>,
) -> Result<Box<dyn ChunkIndex>> {
    let opened = (kind.open)(OpenIndex {
        dir: Arc::clone(dir),
        ram_budget_bytes: options.index_ram_bytes,
        unique: options.entropy.try_u64()?,
        background: options.threads > 1,
        lock_wait_ms_max,
        knobs: knobs.clone(),
    });
    opened.map_err(|error| match error {
        onefold_index::Error::Held { .. } if kind.openers == Openers::One => held(kind.name),
        other => other.into(),
    })
}

fn held(name: &str) -> Error {
    Error::Locked {
        what: format!("the index {name} has one opener at a time, and another has it now"),
    }
}

/// Bytes of all files in a folder.
fn folder_bytes(dir: &dyn Dir) -> Result<u64> {
    let mut bytes = 0;
    for entry in dir.list()? {
        bytes += if entry.is_dir {
            folder_bytes(&*dir.open_subdir(&entry.name)?)?
        } else {
            // Merged away meanwhile, perhaps.
            if_there(dir.len_of(&entry.name))?.unwrap_or(0)
        };
    }
    Ok(bytes)
}

/// Inserts all chunks of a container into the index.
pub(crate) fn insert_table(
    index: &mut dyn ChunkIndex,
    id: ContainerId,
    table: &ContainerTable,
) -> Result<()> {
    let location = Location { container: id };
    let mut entries = Vec::with_capacity(table.chunks.len().min(4096));
    for batch in table.chunks.chunks(4096) {
        entries.clear();
        entries.extend(
            batch
                .iter()
                .map(|(fingerprint, _)| (*fingerprint, location)),
        );
        index.insert(&entries)?;
    }
    Ok(())
}
