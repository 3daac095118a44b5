//! Snapshots as one read-only tree, for whoever shows them: a mount, a browser.
//!
//! ```text
//! latest ─▶ snapshots/<time>     hosts/<host>/<time>, tags/<tag>/<time>, ids/<id> ─▶ snapshots/<time>
//! number ─▶ leaf ─▶ entry        lookup: folder's path, then a search in the table of leaves and in one leaf
//! open   ─▶ stretch of pieces ─▶ chunks (kept, read ahead) ─▶ bytes
//! ```
//!
//! Invariant: nothing is kept for an entry but for the decoded leaf that it stands in, as long as that is in use. A
//! file's number says where the entry is ([`number`]). All methods may be called from many threads.

pub(crate) mod chunks;
mod file;
mod hard_links;
mod leaves;
mod nodes;
pub mod number;
mod shelves;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkReader, Hold, Repository, RootId, SessionKind};
use parking_lot::Mutex;

use self::chunks::OpenChunks;
pub use self::file::OpenFile;
use self::hard_links::HardLinks;
use self::leaves::{OpenLeaf, RecentlyUsed};
use self::number::SNAPSHOTS_MAX;
use self::shelves::{Shelves, Shown};
use crate::snapshots::{self, SnapshotFilter};
use crate::tree::Tree;
use crate::{Kind, Result, Time};

pub use self::nodes::ListedName;

/// RAM for decoded leaves, in bytes.
const LEAVES_BYTES_MAX: usize = 32 << 20;
/// RAM for tables of leaves, in bytes.
const TREES_BYTES_MAX: usize = 16 << 20;
/// Files of which it is remembered how many of their bytes are data.
const DATA_BYTES_KNOWN_MAX: usize = 4096;
/// Digits of an id that name a snapshot, where that is enough.
const ID_DIGITS: usize = 8;

/// Snapshots as a tree.
pub struct Vfs {
    repository: Repository,
    options: Options,
    chunks: Arc<OpenChunks>,
    /// Reads leaves and recipe chunks.
    metadata: Mutex<ChunkReader>,
    /// Held while what the repository shows is looked at.
    known: Mutex<KnownSnapshots>,
    shelves: Mutex<Shelves>,
    trees: Mutex<RecentlyUsed<u32, Tree>>,
    leaves: Mutex<RecentlyUsed<Fingerprint, OpenLeaf>>,
    data_bytes: Mutex<RecentlyUsed<(u32, u64), u64>>,
    hard_links: HardLinks,
    /// Files of which it was told that they cannot be read.
    told: Mutex<HashSet<u64>>,
}

/// Options of the tree.
pub struct Options {
    /// Which snapshots.
    pub filter: SnapshotFilter,
    /// The name of a snapshot's folder, made of its time.
    pub name_of: Box<dyn Fn(Time) -> String + Send + Sync>,
    /// Owner of the folders above the snapshots: user and group number.
    pub owner: (u32, u32),
    /// When the tree was made, for the times of those folders.
    pub now: Time,
    /// Hears what cannot be shown or read, each once.
    pub warn: Box<dyn Fn(&str) + Send + Sync>,
}

/// Snapshots that were met since the tree was made.
#[derive(Default)]
struct KnownSnapshots {
    /// All roots, as they were listed last.
    listed: Vec<RootId>,
    by_id: HashMap<RootId, Option<Shown>>,
    /// Ids by ordinal, and who uses the snapshot.
    ids: Vec<(RootId, Arc<()>)>,
    /// Hold that keeps every prune away from the listed snapshots.
    hold: Option<Hold>,
    /// Hold before the last refresh: a prune may be reading the holds just now.
    hold_before: Option<Hold>,
}

impl KnownSnapshots {
    /// When the backup of a snapshot began that is or was shown.
    fn time_of(&self, ordinal: u32) -> Option<Time> {
        let id = self.id_of(ordinal)?;
        let shown = self.by_id.get(&id)?.as_ref()?;
        Some(shown.time)
    }

    fn id_of(&self, ordinal: u32) -> Option<RootId> {
        self.ids.get(ordinal as usize).map(|(id, _)| *id)
    }

    /// For somebody who uses the snapshot.
    fn use_of(&self, ordinal: u32) -> Arc<()> {
        let found = self.ids.get(ordinal as usize);
        found
            .map(|(_, in_use)| Arc::clone(in_use))
            .unwrap_or_default()
    }

    /// Whether a snapshot is shown if it is there.
    fn is_shown(&self, id: &RootId) -> bool {
        self.by_id.get(id).is_some_and(Option::is_some)
    }

    /// Snapshots that are to be kept: those that are shown, and those that somebody uses.
    fn wanted(&self, listed: &[RootId]) -> Vec<RootId> {
        let shown = listed.iter().filter(|id| self.is_shown(id)).copied();
        let used = self.ids.iter();
        let used = used.filter(|(_, in_use)| Arc::strong_count(in_use) > 1);
        let wanted: BTreeSet<_> = shown.chain(used.map(|(id, _)| *id)).collect();
        wanted.into_iter().collect()
    }
}

/// Attributes of a file that programs ask for first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The number that `Number::encode` makes.
    pub number: u64,
    /// Kind of the file.
    pub kind: Kind,
    /// The lower twelve mode bits.
    pub mode: u16,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Length of the content, or of what a link says, in bytes.
    pub size: u64,
    /// Bytes that are no holes.
    pub data_bytes: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last access; that of the last change where it is not kept.
    pub atime: Time,
    /// Hard link count; 1 for folders.
    pub links: u64,
    /// Device number (`st_rdev`).
    pub rdev: u64,
    /// Whether it stays so for ever: everything within snapshots does.
    pub is_fixed: bool,
}

impl Vfs {
    /// The snapshots of a repository.
    ///
    /// # Errors
    /// Those of [`Repository::session`]; the snapshots cannot be listed.
    pub fn new(repository: Repository, options: Options) -> Result<Self> {
        let session = repository.session(SessionKind::Held)?;
        let metadata = session.data_reader()?;
        let vfs = Self {
            chunks: OpenChunks::new(session),
            metadata: Mutex::new(metadata),
            known: Mutex::default(),
            shelves: Mutex::new(Shelves::new()),
            trees: Mutex::new(RecentlyUsed::new(TREES_BYTES_MAX)),
            leaves: Mutex::new(RecentlyUsed::new(LEAVES_BYTES_MAX)),
            data_bytes: Mutex::new(RecentlyUsed::new(DATA_BYTES_KNOWN_MAX)),
            hard_links: HardLinks::default(),
            told: Mutex::default(),
            repository,
            options,
        };
        vfs.refresh()?;
        Ok(vfs)
    }

    /// Looks which snapshots there are now. A snapshot that cannot be read is told once and left out.
    ///
    /// # Errors
    /// The snapshots cannot be listed; the tree stays as it was.
    pub fn refresh(&self) -> Result<()> {
        let mut known = self.known.lock();
        let listed = self.repository.roots()?;
        let is_held = |hold: &Hold| known.wanted(&listed).len() == hold.roots().len();
        if listed == known.listed && known.hold.as_ref().is_some_and(is_held) {
            return Ok(());
        }
        for id in &listed {
            if !known.by_id.contains_key(id) {
                let shown = self.look_at(*id, &mut known.ids)?;
                known.by_id.insert(*id, shown);
            }
        }
        let wanted = known.wanted(&listed);
        let hold = self.repository.hold(&wanted, known.hold.as_ref())?;
        let held = listed.iter();
        let held = held.filter(|id| hold.roots().binary_search(id).is_ok());
        let mut shown: Vec<_> = held.filter_map(|id| known.by_id[id].clone()).collect();
        known.hold_before = known.hold.replace(hold);
        shown.sort_by_key(|one| (one.time, one.ordinal));
        self.name(&mut shown, &mut known);
        self.shelves.lock().show(&shown);
        known.listed = listed;
        Ok(())
    }

    /// Returns the number of snapshots that are shown.
    pub fn snapshots(&self) -> usize {
        let known = self.known.lock();
        known.listed.iter().filter(|id| known.is_shown(id)).count()
    }

    /// Shows others that somebody still reads the snapshots, and lets go of those that are forgotten. To be called once
    /// a minute.
    ///
    /// # Errors
    /// Those of [`refresh`](Self::refresh).
    pub fn keep_alive(&self) -> Result<()> {
        let mut known = self.known.lock();
        let confirmed = known.hold.as_ref().map_or(Ok(()), Hold::confirm);
        if let Err(onefold_store::Error::PinLost { .. }) = confirmed {
            // Whoever took it away may have deleted something since.
            known.hold = None;
        }
        // Files that programs stopped using a minute ago need no protection any more.
        known.hold_before = None;
        drop(known);
        self.refresh()
    }

    /// Returns the entries of a snapshot in the shelves, if it is to be shown.
    fn look_at(&self, id: RootId, ids: &mut Vec<(RootId, Arc<()>)>) -> Result<Option<Shown>> {
        let snapshot = match snapshots::load_if_there(&self.repository, id) {
            Ok(Some(named)) => named.snapshot,
            Ok(None) => return Ok(None),
            Err(error) if error.is_unusable() => {
                self.warn(format_args!("snapshot {id} is not shown: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !self.options.filter.matches(&snapshot) {
            return Ok(None);
        }
        if ids.len() == SNAPSHOTS_MAX {
            self.warn(format_args!(
                "snapshot {id} is not shown: at most {SNAPSHOTS_MAX} can be"
            ));
            return Ok(None);
        }
        ids.push((id, Arc::default()));
        Ok(Some(Shown {
            ordinal: ids.len() as u32 - 1,
            name: String::new(),
            id: id.to_string(),
            time: snapshot.time,
            host: snapshot.host,
            tags: snapshot.tags,
        }))
    }

    /// Names the folders of snapshots, which are in order of time. A folder that has a name keeps it. Of several of one
    /// second the first has the time alone, the others some digits of their ids behind it.
    fn name(&self, shown: &mut [Shown], known: &mut KnownSnapshots) {
        let ids: Vec<_> = shown.iter().map(|one| one.id.clone()).collect();
        let mut taken: HashSet<_> = shown.iter().map(|one| one.name.clone()).collect();
        for one in shown {
            let digits = (ID_DIGITS..one.id.len()).find(|digits| {
                let begins_so = |id: &&String| id.starts_with(&one.id[..*digits]);
                ids.iter().filter(begins_so).count() == 1
            });
            one.id.truncate(digits.unwrap_or(one.id.len()));
            if !one.name.is_empty() {
                continue;
            }
            one.name = (self.options.name_of)(one.time);
            if taken.contains(&one.name) {
                one.name = format!("{}_{}", one.name, one.id);
            }
            taken.insert(one.name.clone());
            let id = known.id_of(one.ordinal);
            if let Some(Some(kept)) = id.and_then(|id| known.by_id.get_mut(&id)) {
                kept.name.clone_from(&one.name);
            }
        }
    }

    fn warn(&self, what: std::fmt::Arguments<'_>) {
        (self.options.warn)(&what.to_string());
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        self.chunks.close();
    }
}
