//! A replica: the same repository in another place, object by object. No key is needed for that: frames and checksums
//! are verified on the way, seals are not.
//!
//! Invariant: containers come before the roots that refer to them, so a replica whose making was interrupted lacks
//! snapshots and nothing else; the next time goes on from what is there. Nobody but the one who makes it writes there
//! (see [`REPLICA_OBJECT`]). What the source lost stays in the replica until somebody asks to delete it.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use onefold_index::ContainerId;
use onefold_io::ErrorKind;
use onefold_io::frame::{self, crc64};
use parking_lot::Mutex;

use crate::container::block::{self, BLOCK_HEADER_BYTES};
use crate::container::footer::{FOOTER_BYTES, Footer};
use crate::container::{self, CONTAINER_FOLDER, HEADER_BYTES, Header};
use crate::error::tolerate;
use crate::folders::ROOT_FOLDER;
use crate::index::INDEX_FOLDER;
use crate::index::catalog::{CATALOG, CATALOG_FOLDER};
use crate::index::sketch::SKETCH_OBJECT;
use crate::objects::{ObjectStore, read_twice_at_most};
use crate::registry::still::HeldStill;
use crate::registry::{Lock, PinInfo};
use crate::repository::Repository;
use crate::repository::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use crate::repository::place::Place;
use crate::repository::replica_mark::REPLICA_TEXT;
use crate::repository::slots::SLOT_FOLDER;
use crate::root;
use crate::{Error, Result, RootId, sweep::forgotten};

pub use crate::repository::replica_mark::REPLICA_OBJECT;

/// Objects that are copied at once, at most.
const AT_ONCE_MAX: usize = 16;

/// How a replica is made.
pub struct SyncOptions {
    /// Deletes what the source does not have.
    pub delete: bool,
    /// Description of the session that others see while they wait.
    pub info: PinInfo,
}

/// Counts of a synchronisation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SyncReport {
    /// Objects that were copied.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Objects that were deleted from the replica.
    pub deleted: u64,
    /// Snapshots that the replica has.
    pub snapshots: u64,
    /// Objects of the source that are damaged, and why: they are not copied.
    pub damaged: Vec<String>,
}

/// Told how far it is.
pub trait SyncObserver: Sync {
    /// Containers that are to be copied, and their bytes.
    fn begin(&self, objects: u64, bytes: u64);

    /// Called for each object that was copied, or is damaged, with its bytes; several threads may call it at once.
    /// False: the synchronisation ends there.
    fn done(&self, bytes: u64) -> bool;
}

/// Makes the place `to` a replica of the repository in `from`, or brings it up to date. While it runs no prune deletes
/// anything in the source; one that is only read is taken as it is.
///
/// # Errors
/// [`Error::NoRepository`]; [`Error::Option`] where `to` is another repository, or one of its own;
/// [`Error::Locked`]; [`Error::NotStill`]; failures of either device. The replica is whole as far as it goes.
pub fn sync(
    from: &Place,
    to: &Place,
    options: &SyncOptions,
    observer: &dyn SyncObserver,
) -> Result<SyncReport> {
    Repository::config_at(from)?;
    prepare(from, to)?;
    let still = match HeldStill::begin(from, &options.info) {
        Err(Error::Io(error)) if error.kind == ErrorKind::Denied => None,
        held => Some(held?),
    };
    let _lock = to.registry.lock(Lock::Sweep)?;
    let mut sync = ReplicaCopy {
        from: &*from.objects,
        to: &*to.objects,
        observer,
        report: SyncReport::default(),
    };
    // Before the containers: what a root refers to was there before the root was.
    let roots = sync.roots()?;
    sync.small()?;
    let at_once = from.ways.gets_at_once.max(to.ways.puts_at_once);
    let containers = sync.containers(at_once.clamp(2, AT_ONCE_MAX))?;
    let catalogs = sync.catalogs()?;
    still.map_or(Ok(()), HeldStill::finish)?;
    for root in &roots {
        sync.root(root)?;
    }
    if options.delete {
        sync.delete(&roots, &containers, &catalogs)?;
    }
    sync.report.snapshots = root::ids(&sync.to.list(ROOT_FOLDER)?).len() as u64;
    Ok(sync.report)
}

/// Makes sure that `to` is or becomes a replica of `from`.
fn prepare(from: &Place, to: &Place) -> Result<()> {
    let is_replica = match to.objects.len(REPLICA_OBJECT) {
        Err(error) if error.is_not_found() => false,
        len => len.is_ok(),
    };
    match Repository::config_at(to) {
        Ok(there) if there.repository != Repository::config_at(from)?.repository => {
            let what = "the destination is another repository: a replica needs a place of its own";
            return Err(Error::Option(what.into()));
        }
        Ok(_) if is_replica => return Ok(()),
        Ok(_) => {
            let what = "the destination is a repository that others write into, and no replica: give a place of its own";
            return Err(Error::Option(what.into()));
        }
        Err(Error::NoRepository { .. }) => {}
        Err(error) => return Err(error),
    }
    if !is_replica {
        to.objects.left_over()?;
        to.objects.put(REPLICA_OBJECT, &[REPLICA_TEXT])?;
    }
    to.registry.init()?;
    to.own.subdir(INDEX_FOLDER)?;
    for folder in [CONTAINER_FOLDER, ROOT_FOLDER] {
        to.objects.make_folder(folder)?;
    }
    Ok(())
}

struct ReplicaCopy<'a> {
    from: &'a dyn ObjectStore,
    to: &'a dyn ObjectStore,
    observer: &'a dyn SyncObserver,
    report: SyncReport,
}

impl ReplicaCopy<'_> {
    /// The source's roots.
    fn roots(&self) -> Result<Vec<RootId>> {
        for folder in [ROOT_FOLDER, CONTAINER_FOLDER] {
            if !self.from.has_folder(folder)? {
                let folder = folder.into();
                return Err(Error::MissingFolder { folder });
            }
        }
        let forgotten = forgotten::read(self.from)?;
        let mut roots = root::ids(&self.from.list(ROOT_FOLDER)?);
        roots.retain(|root| !forgotten.contains(root));
        Ok(roots)
    }

    /// Key slots, the sketch and the configuration: whoever finds the configuration finds a key.
    fn small(&mut self) -> Result<()> {
        let mut objects = listed(self.from, SLOT_FOLDER)?;
        objects.extend([SKETCH_OBJECT, CONFIG_OBJECT, CONFIG_COPY_OBJECT].map(str::to_owned));
        for object in objects {
            let bytes = match self.from.get(&object) {
                Err(error) if error.is_not_found() => continue,
                bytes => bytes?,
            };
            if self.to.get(&object).is_ok_and(|there| there == bytes) {
                continue;
            }
            self.to.put(&object, &[&bytes])?;
            self.count(bytes.len() as u64);
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.report.copied += 1;
        self.report.copied_bytes += bytes;
    }

    /// Copies containers that the replica does not have, several at once. Gives all of the source.
    fn containers(&mut self, at_once: usize) -> Result<HashSet<String>> {
        let of = |objects: &dyn ObjectStore| -> Result<BTreeMap<String, u64>> {
            let listed = objects.lengths_past(CONTAINER_FOLDER, &mut Err)?;
            let is_one = |(name, _): &(String, u64)| container::id_of_object(name).is_some();
            Ok(listed.into_iter().filter(is_one).collect())
        };
        let (source, there) = (of(self.from)?, of(self.to)?);
        let missing = source
            .iter()
            .filter(|(name, len)| there.get(*name) != Some(len));
        let missing: Vec<_> = missing.collect();
        let total = missing.iter().map(|(_, len)| **len).sum();
        self.observer.begin(missing.len() as u64, total);
        let next = AtomicUsize::new(0);
        let is_ended = AtomicBool::new(false);
        let done = Mutex::new(SyncReport::default());
        let work = || -> Result<()> {
            while let Some((name, len)) = missing.get(next.fetch_add(1, Relaxed)) {
                let copied = self.container(name, there.contains_key(*name));
                let mut done = done.lock();
                let copied = tolerate(copied, |error| {
                    done.damaged.push(format!("{name}: {error}"))
                })?;
                if let Some(bytes) = copied {
                    done.copied += 1;
                    done.copied_bytes += bytes;
                }
                drop(done);
                if !self.observer.done(**len) {
                    is_ended.store(true, Relaxed);
                    next.store(missing.len(), Relaxed);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
            let ended = threads.into_iter().map(|thread| {
                let panicked = |_| Err(Error::Machine("a thread of the sync ended early".into()));
                thread.join().unwrap_or_else(panicked)
            });
            // All of them end before the first error is told.
            ended
                .collect::<Vec<_>>()
                .into_iter()
                .collect::<Result<()>>()
        })?;
        let done = done.into_inner();
        if is_ended.into_inner() {
            return Err(Error::Machine("interrupted".into()));
        }
        self.report.copied += done.copied;
        self.report.copied_bytes += done.copied_bytes;
        self.report.damaged.extend(done.damaged);
        Ok(source.into_keys().collect())
    }

    /// Copies catalogs, so that a machine that is new to a replica that became a repository reads no descriptors for
    /// want of them. Gives all of the source. One that is damaged, or goes meanwhile, is passed over: it is advice.
    fn catalogs(&mut self) -> Result<HashSet<String>> {
        let source: HashSet<_> = listed(self.from, CATALOG_FOLDER)?.into_iter().collect();
        let there: HashSet<_> = listed(self.to, CATALOG_FOLDER)?.into_iter().collect();
        for object in source.difference(&there) {
            let whole = read_twice_at_most(self.from, object, || {
                let bytes = self.from.get(object)?;
                frame::decode_whole(CATALOG, &bytes, object, 0)?;
                Ok(bytes)
            });
            match whole {
                Err(error) if error.is_not_found() => {}
                Err(error) if error.is_unusable() => {
                    tracing::warn!("{error}: it is not copied");
                }
                whole => {
                    let bytes = whole?;
                    self.to.put(object, &[&bytes])?;
                    self.count(bytes.len() as u64);
                }
            }
        }
        Ok(source)
    }

    /// Copies one container, verified; gives its bytes.
    fn container(&self, name: &str, is_there: bool) -> Result<u64> {
        let id = container::id_of_object(name);
        let id = id.ok_or_else(|| Error::Machine(format!("{name} is no container")))?;
        let bytes = read_twice_at_most(self.from, name, || {
            let bytes = self.from.get(name)?;
            verify_container(id, &bytes).map(|()| bytes)
        })?;
        if is_there {
            // The object there has another length: it is a part of a copy that was interrupted.
            self.to.put(name, &[&bytes])?
        } else {
            match self.to.put_if_absent(name, &[&bytes]) {
                Err(Error::Io(error)) if error.kind == ErrorKind::Exists => {}
                put => put?,
            }
        }
        Ok(bytes.len() as u64)
    }

    fn root(&mut self, root: &RootId) -> Result<()> {
        let object = root.object();
        if self.to.len(&object).is_ok() {
            return Ok(());
        }
        let read = read_twice_at_most(self.from, &object, || {
            let bytes = self.from.get(&object)?;
            let found = RootId(*blake3::hash(&bytes).as_bytes());
            if found == *root {
                Ok(bytes)
            } else {
                let what = format!("its bytes hash to {found}");
                Err(Error::damaged(object.clone(), Some(0), what))
            }
        });
        match read {
            // Forgotten since it was listed.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.is_loss() => {
                self.report.damaged.push(format!("{object}: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(bytes) => {
                root::put(self.to, root, &bytes)?;
                self.count(bytes.len() as u64);
                Ok(())
            }
        }
    }

    /// Deletes what the source does not have: roots, durably, before containers.
    fn delete(
        &mut self,
        roots: &[RootId],
        containers: &HashSet<String>,
        catalogs: &HashSet<String>,
    ) -> Result<()> {
        let kept: HashSet<_> = roots.iter().map(RootId::object).collect();
        let slots: HashSet<_> = listed(self.from, SLOT_FOLDER)?.into_iter().collect();
        for (folder, kept) in [
            (ROOT_FOLDER, &kept),
            (SLOT_FOLDER, &slots),
            (CONTAINER_FOLDER, containers),
            (CATALOG_FOLDER, catalogs),
        ] {
            let there = listed(self.to, folder)?.into_iter();
            let gone: Vec<_> = there.filter(|object| !kept.contains(object)).collect();
            self.to.delete_all(&gone)?;
            self.report.deleted += gone.len() as u64;
        }
        Ok(())
    }
}

/// Objects below a folder, which may be missing.
fn listed(objects: &dyn ObjectStore, folder: &str) -> Result<Vec<String>> {
    match objects.list(folder) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}

/// Checks that a container is whole, as far as that can be told without a key: frames, and the checksums of all blocks
/// and of the table.
///
/// # Errors
/// Damage ([`Error::is_damage`]), or another version's container ([`Error::is_other_version`]).
pub fn verify_container(id: ContainerId, bytes: &[u8]) -> Result<()> {
    let object = container::object_name(id);
    let bad = |at: usize, what: &str| Error::damaged(&object, Some(at as u64), what);
    let header = bytes
        .get(..HEADER_BYTES)
        .ok_or_else(|| bad(0, "it ends in its header"))?;
    Header::decode(id, header)?;
    let (_, tail) = bytes
        .split_last_chunk::<FOOTER_BYTES>()
        .ok_or_else(|| bad(0, "it ends before its footer"))?;
    let footer = Footer::decode(id, tail, bytes.len() as u64)?;
    let table = footer.table_offset as usize..bytes.len() - FOOTER_BYTES;
    let table_at = table.start;
    if table_at < HEADER_BYTES || !footer.is_table(crc64(&bytes[table])) {
        return Err(bad(table_at, "the checksum of its table is another"));
    }
    let mut at = HEADER_BYTES;
    for number in 0..footer.blocks {
        let end = at
            .checked_add(BLOCK_HEADER_BYTES)
            .filter(|end| *end <= table_at);
        let end = end.ok_or_else(|| bad(at, "a block begins in its table"))?;
        let stored = block::stored_len(&bytes[at..end], &object, at as u64)?;
        let end = end.checked_add(stored).filter(|end| *end <= table_at);
        let end = end.ok_or_else(|| bad(at, "a block ends in its table"))?;
        block::verify_stored(&bytes[at..end], number, &object, at as u64)?;
        at = end;
    }
    if at == table_at {
        Ok(())
    } else {
        Err(bad(at, "bytes between its blocks and its table"))
    }
}
