//! The snapshots of a repository: list, find, load, tag.

mod brief;

use onefold_store::{Repository, RootId, SessionKind};

use crate::snapshot::{LeafTable, Snapshot};
use crate::{Error, Result, Time};

pub use brief::{Brief, PathsKey};

/// A snapshot with its name. In lists of many snapshots, tables of leaves are left out.
#[derive(Clone, Debug)]
pub struct Named {
    /// Name of the snapshot.
    pub id: RootId,
    /// Name of its tree; see [`Snapshot::tree_id`].
    pub tree: [u8; 32],
    /// The snapshot itself.
    pub snapshot: Snapshot,
}

impl Named {
    /// Key by which snapshots are sorted: older ones come first.
    pub(crate) fn place(&self) -> (Time, RootId) {
        (self.snapshot.time, self.id)
    }
}

/// Lists all snapshots that `is_wanted` chooses, oldest first. A snapshot that cannot be read is passed to `damaged`
/// and left out; one that is forgotten meanwhile is left out.
///
/// # Errors
/// [`Error::Store`]: the snapshots cannot be listed.
pub fn list(
    repository: &Repository,
    is_wanted: &mut dyn FnMut(&Snapshot) -> bool,
    damaged: &mut dyn FnMut(RootId, Error),
) -> Result<Vec<Brief>> {
    let (mut all, mut room_bytes) = (Vec::new(), brief::LISTS_BYTES);
    for_each(repository, damaged, &mut |named| {
        if is_wanted(&named.snapshot) {
            all.push(Brief::within(named, &mut room_bytes));
        }
    })?;
    all.sort_unstable_by_key(|brief| (brief.time, brief.id));
    Ok(all)
}

/// Visits all snapshots one by one, in no order, without their tables: long lists of paths take megabytes each.
///
/// # Errors
/// [`Error::Store`]: the snapshots cannot be listed.
pub fn for_each(
    repository: &Repository,
    damaged: &mut dyn FnMut(RootId, Error),
    visit: &mut dyn FnMut(Named),
) -> Result<()> {
    for id in repository.roots()? {
        match load_if_there(repository, id) {
            Ok(None) => {}
            Ok(Some(mut named)) => {
                named.snapshot.table = LeafTable::Inline(Vec::new());
                visit(named);
            }
            Err(e) => damaged(id, e),
        }
    }
    Ok(())
}

/// Loads one snapshot, with its table.
///
/// # Errors
/// The snapshot is not there, damaged, or of another version.
pub fn load(repository: &Repository, id: RootId) -> Result<Named> {
    named(id, &repository.root(&id)?)
}

fn named(id: RootId, root: &[u8]) -> Result<Named> {
    let snapshot = Snapshot::decode(root)?;
    Ok(Named {
        id,
        tree: snapshot.tree_id(),
        snapshot,
    })
}

/// Loads one snapshot that a [`Hold`](onefold_store::Hold) keeps: it may be forgotten.
///
/// # Errors
/// Errors of [`load`].
pub fn load_held(repository: &Repository, id: RootId) -> Result<Named> {
    named(id, &repository.held_root(&id)?)
}

/// Loads one snapshot as [`load`] does; returns `None` where it was forgotten since it was listed.
///
/// # Errors
/// The snapshot is damaged, or of another version.
pub fn load_if_there(repository: &Repository, id: RootId) -> Result<Option<Named>> {
    match load(repository, id) {
        Ok(named) => Ok(Some(named)),
        Err(Error::Store(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Loads a snapshot that the user named.
///
/// # Errors
/// [`Error::NoSnapshot`] where it was forgotten meanwhile.
fn load_named(repository: &Repository, id: RootId) -> Result<Named> {
    load_if_there(repository, id)?.ok_or_else(|| Error::NoSnapshot(id.to_string()))
}

/// Conditions on snapshots: a snapshot must meet all that are given.
#[derive(Clone, Default, Debug)]
pub struct SnapshotFilter {
    /// Hosts, one of which must be the snapshot's.
    pub hosts: Vec<String>,
    /// Lists of tags: the snapshot must have all tags of one list. An empty list means snapshots without tags.
    pub tags: Vec<Vec<String>>,
    /// Paths that the snapshot must all have.
    pub paths: Vec<Vec<u8>>,
}

impl SnapshotFilter {
    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.tags.is_empty() && self.paths.is_empty()
    }

    /// Whether `snapshot` meets the conditions.
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let has_all = |tags: &Vec<String>| {
            if tags.is_empty() {
                snapshot.tags.is_empty()
            } else {
                tags.iter().all(|tag| snapshot.tags.contains(tag))
            }
        };
        (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && (self.tags.is_empty() || self.tags.iter().any(has_all))
            && self.paths.iter().all(|path| snapshot.paths.contains(path))
    }
}

/// Returns the snapshot that `name` means: `latest` (of those that meet `filter`), or the beginning of an id, if only
/// one has it. A caller that reads chunks of the snapshot must have a session before it asks.
///
/// # Errors
/// [`Error::NoSnapshot`]; those of [`load`]; for `latest` also [`Error::NotRead`], if any snapshot cannot be read: it
/// could be the latest.
pub fn resolve(repository: &Repository, name: &str, filter: &SnapshotFilter) -> Result<Named> {
    if name == "latest" {
        return latest(repository, filter);
    }
    load_named(repository, resolve_id(repository, name)?)
}

/// Returns the id that begins with `name`, if only one does. The snapshot need not be readable.
///
/// # Errors
/// [`Error::NoSnapshot`].
pub fn resolve_id(repository: &Repository, name: &str) -> Result<RootId> {
    let missing = |what: String| Err(Error::NoSnapshot(what));
    let ids: Vec<RootId> = repository
        .roots()?
        .into_iter()
        .filter(|id| id.to_string().starts_with(name))
        .collect();
    match ids[..] {
        [id] if !name.is_empty() => Ok(id),
        [] => missing(format!("no snapshot's id begins with {name}")),
        _ => missing(format!(
            "the ids of {} snapshots begin with {name}: give more digits",
            ids.len()
        )),
    }
}

fn latest(repository: &Repository, filter: &SnapshotFilter) -> Result<Named> {
    loop {
        let (mut unread, mut newest, mut is_empty) = (None, None, true);
        let mut damaged = |id, error| {
            unread.get_or_insert((id, error));
        };
        for_each(repository, &mut damaged, &mut |named| {
            is_empty = false;
            if filter.matches(&named.snapshot) {
                newest = newest.max(Some(named.place()));
            }
        })?;
        // Time and host of the unread snapshot are not known: an older one must not pass for the latest.
        if let Some((id, error)) = unread {
            return Err(Error::NotRead {
                id,
                source: Box::new(error),
            });
        }
        let Some((_, id)) = newest else {
            let what = if is_empty {
                "there is no snapshot yet"
            } else {
                "no snapshot has that host, path or tag"
            };
            return Err(Error::NoSnapshot(what.into()));
        };
        // Where it was forgotten since, another one is the latest.
        if let Some(named) = load_if_there(repository, id)? {
            return Ok(named);
        }
    }
}

/// Changes to a snapshot's tags.
#[derive(Clone, Default, Debug)]
pub struct Retag {
    /// Tags that replace all others.
    pub set: Option<Vec<String>>,
    /// Tags to add.
    pub add: Vec<String>,
    /// Tags to remove.
    pub remove: Vec<String>,
}

/// Changes a snapshot's tags: a new root replaces the old one. Returns its name; `None`: nothing to change.
///
/// # Errors
/// [Locked](onefold_store::Error::Locked) while another process chooses snapshots to remove: it could count one of the
/// two as one too many.
pub fn retag(repository: &Repository, id: RootId, retag: &Retag) -> Result<Option<RootId>> {
    let lock = repository.lock_roots()?;
    // The session must begin before the snapshot is read: forgotten and swept in between, the snapshot would come back
    // without its containers. The session also keeps sweeps from removing the unfinished root.
    let session = repository.session(SessionKind::Pinned)?;
    let Named { mut snapshot, .. } = load_named(repository, id)?;
    let mut tags = retag.set.clone().unwrap_or_else(|| snapshot.tags.clone());
    tags.extend(retag.add.iter().cloned());
    tags.retain(|tag| !retag.remove.contains(tag));
    tags.sort();
    tags.dedup();
    if tags == snapshot.tags {
        return Ok(None);
    }
    snapshot.tags = tags;
    snapshot.original = snapshot.original.or(Some(id.0));
    let root = snapshot.encode_unique(&repository.options().entropy)?;
    let new = lock.replace(Some(&session), &[&root], &[id])?;
    session.finish()?;
    Ok(new.first().copied())
}
