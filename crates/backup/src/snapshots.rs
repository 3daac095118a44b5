//! The snapshots of a repository: list, find, load, tag.

mod brief;

use onefold_store::{Repository, RootId, SessionKind};

use crate::snapshot::{Snapshot, Table};
use crate::{Error, Result, Time};

pub use brief::{Brief, PathsKey};

/// A snapshot with its name. Where many are listed, tables of leaves are left out.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub id: RootId,
    /// What its tree is called; see [`Snapshot::tree_id`].
    pub tree: [u8; 32],
    /// What it says of itself.
    pub snapshot: Snapshot,
}

impl Named {
    /// Its place among others: older ones come before it.
    pub(crate) fn place(&self) -> (Time, RootId) {
        (self.snapshot.time, self.id)
    }
}

/// All snapshots that are wanted, oldest first. One that cannot be read is given to `damaged` and left out; one that is
/// forgotten meanwhile is left out.
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

/// All snapshots one by one, in no order, without their tables: those of lists of paths take megabytes each.
///
/// # Errors
/// [`Error::Store`]: they cannot be listed.
pub fn for_each(
    repository: &Repository,
    damaged: &mut dyn FnMut(RootId, Error),
    visit: &mut dyn FnMut(Named),
) -> Result<()> {
    for id in repository.roots()? {
        match load_if_there(repository, id) {
            Ok(None) => {}
            Ok(Some(mut named)) => {
                named.snapshot.table = Table::Inline(Vec::new());
                visit(named);
            }
            Err(e) => damaged(id, e),
        }
    }
    Ok(())
}

/// One snapshot, whole.
///
/// # Errors
/// It is not there, damaged, or of another version.
pub fn load(repository: &Repository, id: RootId) -> Result<Named> {
    let snapshot = Snapshot::decode(&repository.root(&id)?)?;
    Ok(Named {
        id,
        tree: snapshot.tree_id(),
        snapshot,
    })
}

/// One snapshot, whole, as [`load`] gives it; `None` where it was forgotten since it was listed.
///
/// # Errors
/// It is damaged, or of another version.
pub fn load_if_there(repository: &Repository, id: RootId) -> Result<Option<Named>> {
    match load(repository, id) {
        Ok(named) => Ok(Some(named)),
        Err(Error::Store(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, of a snapshot that somebody named.
///
/// # Errors
/// [`Error::NoSnapshot`] where it was forgotten meanwhile.
fn load_named(repository: &Repository, id: RootId) -> Result<Named> {
    load_if_there(repository, id)?.ok_or_else(|| Error::NoSnapshot(id.to_string()))
}

/// Which snapshots are meant: all conditions that are given must hold.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    /// One of these hosts.
    pub hosts: Vec<String>,
    /// For one of these lists, all of its tags. An empty list asks for snapshots without tags.
    pub tags: Vec<Vec<String>>,
    /// All of these paths.
    pub paths: Vec<Vec<u8>>,
}

impl Filter {
    /// Whether it lets all through.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.tags.is_empty() && self.paths.is_empty()
    }

    /// Whether `snapshot` is meant.
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

/// The snapshot that `name` means: `latest` (of those that `filter` lets through), or the beginning of an id, if only
/// one has it. Who reads what it refers to has a session before it asks.
///
/// # Errors
/// [`Error::NoSnapshot`]; those of [`load`]; of `latest` [`Error::NotRead`], if any snapshot cannot be read: it could
/// be the one.
pub fn resolve(repository: &Repository, name: &str, filter: &Filter) -> Result<Named> {
    if name == "latest" {
        return latest(repository, filter);
    }
    load_named(repository, resolve_id(repository, name)?)
}

/// The id that begins so, if only one does. Whether the snapshot can be read does not matter.
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

fn latest(repository: &Repository, filter: &Filter) -> Result<Named> {
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
        // When it was made, and of what host, is not known: an older one must not pass for the latest.
        if let Some((id, error)) = unread {
            return Err(Error::NotRead {
                id,
                source: Box::new(error),
            });
        }
        let Some((_, id)) = newest else {
            let what = match is_empty {
                true => "there is no snapshot yet",
                false => "no snapshot has that host, path or tag",
            };
            return Err(Error::NoSnapshot(what.into()));
        };
        // Where it was forgotten since, another is the latest.
        if let Some(named) = load_if_there(repository, id)? {
            return Ok(named);
        }
    }
}

/// What to do with tags.
#[derive(Clone, Default, Debug)]
pub struct Retag {
    /// Instead of all tags.
    pub set: Option<Vec<String>>,
    /// Added.
    pub add: Vec<String>,
    /// Taken away.
    pub remove: Vec<String>,
}

/// Changes a snapshot's tags: a new root replaces the old. `None`: nothing to change.
///
/// # Errors
/// [Locked](onefold_store::Error::Locked) while another chooses snapshots to remove: it could take either of the two
/// for one too many.
pub fn retag(repository: &Repository, id: RootId, retag: &Retag) -> Result<Option<RootId>> {
    let lock = repository.lock_roots()?;
    // Before it is read: forgotten and swept in between, it would come back without its containers. And no sweep takes
    // the unfinished root for a dead one.
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
    let new = lock.replace(Some(&session), &[&snapshot.encode()], &[id])?;
    session.finish()?;
    Ok(new.first().copied())
}
