//! Roots: sealed objects that keep chunks alive. To the store a snapshot is a root and some bytes; what they say is its
//! user's affair.

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::{self, FrameKind};
use onefold_io::{ErrorKind, hex_number};
use onefold_keys::Keys;

use crate::objects::local_cache::Copied;
use crate::objects::{OBJECT_BYTES_MAX, ObjectStore, read_twice_at_most};
use crate::protocol::{Change, Rules};
use crate::reader::ChunkReader;
use crate::registry::{Held, Lock, Plan, flock};
use crate::repository::{Repository, Shared};
use crate::session::Session;
use crate::{ChunkRef, Error, Result, sweep::forgotten};

/// The frame of a root.
pub const ROOT: FrameKind = FrameKind {
    magic: *b"1FROOT\0\0",
    version: 1,
};
/// The longest root, in bytes: with its frame and its seal it is an object that can be read again.
const ROOT_BYTES_MAX: usize = OBJECT_BYTES_MAX as usize - (4 << 10);
/// End of the name of a forgotten root: readers may hold it.
const FORGOTTEN_SUFFIX: &str = "-forgotten";
/// The folder of all roots.
pub const ROOT_FOLDER: &str = "snapshots";

/// Held by whoever chooses roots to remove: from looking at them to the end. Of two that each take a root for another's
/// twin, both could go.
pub struct RootsLock {
    /// None where there is no room for it.
    held: Option<Box<dyn Held>>,
    shared: Arc<Shared>,
}

impl RootsLock {
    /// Puts `new` roots, and then removes those that are `gone`, by one decision: either all of it happens, whatever
    /// becomes of this process, or nothing. What new roots refer to is referred to by roots that are there, and
    /// `session` began before those were read; without one, roots are only removed. Gives the new roots' names.
    ///
    /// # Errors
    /// [`Error::PinLost`], [`Error::Overtaken`], [`Error::TooLong`]: nothing is decided. Failures of the device.
    pub fn replace(
        &self,
        session: Option<&Session>,
        new: &[&[u8]],
        gone: &[RootId],
    ) -> Result<Vec<RootId>> {
        let sealed = new.iter().map(|root| self.shared.sealed_root(root));
        let plan = Plan {
            pin: session.map(Session::pin).transpose()?,
            put: sealed.collect::<Result<_>>()?,
            remove: gone.to_vec(),
        };
        let names = plan.put.iter().map(|(root, _)| *root).collect();
        if !plan.put.is_empty() {
            self.shared.require_folder(ROOT_FOLDER)?;
        }
        // Each change in one lock is a machine of its own: nobody comes in between, as if the lock were freed and
        // taken.
        let mut steps = Change::new(Rules::default());
        steps.locked();
        steps.chosen();
        match &self.held {
            Some(held) => held.decide(&plan, &mut steps)?,
            // Where there is no room for a lock there is none for a root: only to forget helps.
            None => flock::decide(&*self.shared.objects, &plan, &mut steps)?,
        }
        steps.over();
        Ok(names)
    }
}

/// A root's name: BLAKE3 of its stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RootId(pub [u8; 32]);

impl RootId {
    /// Parses a name of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id = [0; 32];
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        if digits.len() != id.len() || !rest.is_empty() {
            return None;
        }
        for (byte, two) in id.iter_mut().zip(digits) {
            *byte = hex_number(std::str::from_utf8(two).ok()?, 2)? as u8;
        }
        Some(Self(id))
    }

    pub(crate) fn object(&self) -> String {
        format!("{ROOT_FOLDER}/{self}")
    }

    /// The root's name once it is forgotten, until a sweep sees that nobody holds it.
    pub(crate) fn forgotten_object(&self) -> String {
        format!("{ROOT_FOLDER}/{self}{FORGOTTEN_SUFFIX}")
    }
}

impl std::fmt::Display for RootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Metadata chunks whose references were given, by this root or an earlier one.
#[derive(Default)]
pub struct Seen(HashSet<Fingerprint>);

impl Seen {
    /// Whether the chunk was seen before; from now on it was.
    pub fn before(&mut self, chunk: &ChunkRef) -> bool {
        !self.0.insert(chunk.fingerprint)
    }

    /// Notes that the chunk's references could not be given after all.
    pub fn forget(&mut self, chunk: &ChunkRef) {
        self.0.remove(&chunk.fingerprint);
    }
}

/// The roots that keep chunks alive: their user tells the store which chunks each refers to.
pub trait Roots {
    /// Gives every reference of the root `id`, whose bytes are `root`, to `visit`: chunks of its metadata and of
    /// contents. What was `seen` refers to need not be given again.
    ///
    /// # Errors
    /// Those of `visit`. Where a part of the metadata is lost ([`Error::is_loss`]), all else is given before
    /// that is said.
    fn for_each_ref(
        &self,
        id: &RootId,
        root: &[u8],
        reader: &mut ChunkReader,
        seen: &mut Seen,
        visit: &mut dyn FnMut(&ChunkRef) -> Result<()>,
    ) -> Result<()>;

    /// Whether it is to be as if the root were not there. Such a one is not even read.
    fn is_left_out(&self, _id: &RootId) -> bool {
        false
    }
}

impl Session {
    /// Stores a root, durably, if no sweep can have missed this session. Everything it refers to must be durable: its
    /// writers have finished. A dry run only names it.
    ///
    /// # Errors
    /// [`Error::PinLost`], [`Error::TooLong`]: then it is not stored.
    pub fn put_root(&self, root: &[u8]) -> Result<RootId> {
        let (id, stored) = self.shared().sealed_root(root)?;
        if !self.is_dry_run() {
            let pin = self.pin()?;
            self.shared().require_folder(ROOT_FOLDER)?;
            pin.publish(&id, &stored)?;
            self.shared().keep_copy(&id, &stored);
        }
        Ok(id)
    }
}

impl Shared {
    /// A root as it is stored, and its name.
    fn sealed_root(&self, root: &[u8]) -> Result<(RootId, Vec<u8>)> {
        if root.len() > ROOT_BYTES_MAX {
            return Err(Error::TooLong {
                what: "a snapshot's root, with all paths, patterns and tags that were given,",
                bytes: root.len() as u64,
                bytes_max: ROOT_BYTES_MAX as u64,
            });
        }
        let sealed = self
            .keys
            .seal_object(&ROOT.magic, root, &self.options.entropy)?;
        let stored = frame::encode_frame(ROOT, &sealed);
        Ok((RootId(*blake3::hash(&stored).as_bytes()), stored))
    }

    /// Makes durable which roots there are, and which no longer.
    pub(crate) fn keep_roots(&self) -> Result<()> {
        self.objects.keep(&[format!("{ROOT_FOLDER}/")])
    }

    /// A root's bytes, by this machine's copy where it has one.
    fn root(&self, id: &RootId) -> Result<Vec<u8>> {
        let object = id.object();
        let of = Copied::Object(&object);
        let cache = self.local_cache.as_ref();
        if let Some(stored) = cache.and_then(|cache| cache.get(of))
            && let Ok(root) = open(&self.keys, id, object.clone(), &stored)
        {
            return Ok(root);
        }
        let (root, stored) = read_as(&*self.objects, &self.keys, id, object.clone())?;
        if let Some(cache) = cache {
            cache.put(of, &[&stored]);
        }
        Ok(root)
    }

    /// Keeps this machine's copy of a root that it has stored.
    fn keep_copy(&self, id: &RootId, stored: &[u8]) {
        if let Some(cache) = &self.local_cache {
            cache.put(Copied::Object(&id.object()), &[stored]);
        }
    }
}

/// Stores a root's bytes, durably. Whether it is new: without encryption the very same bytes can be there already, or
/// what damage left of them.
pub(crate) fn put(objects: &dyn ObjectStore, id: &RootId, stored: &[u8]) -> Result<bool> {
    let object = id.object();
    match objects.put_if_absent(&object, &[stored]) {
        Err(Error::Io(error)) if error.kind == ErrorKind::Exists => {
            let is_whole = || Ok(objects.get(&object)? == stored);
            match read_twice_at_most(objects, &object, is_whole) {
                Ok(true) => objects.keep(&[object])?,
                _ => objects.put(&object, &[stored])?,
            }
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Forgets a root: it is none any more, and its bytes stay until a sweep sees that no reader holds it. One that is not
/// there is no error. Where there is no room to rename it, it goes at once.
pub(crate) fn forget(objects: &dyn ObjectStore, id: &RootId) -> Result<()> {
    match objects.rename_new(&id.object(), &id.forgotten_object()) {
        Err(error) if error.is_not_found() => Ok(()),
        // The root was forgotten before, and came again; or there is room only for deleting it.
        Err(Error::Io(error)) if matches!(error.kind, ErrorKind::Exists | ErrorKind::NoSpace) => {
            objects.delete(&id.object())
        }
        renamed => renamed,
    }
}

/// The names of forgotten roots among those of objects.
pub(crate) fn forgotten_ids(listed: &[String]) -> Vec<RootId> {
    let names = listed.iter();
    let names = names.filter_map(|name| name.strip_suffix(FORGOTTEN_SUFFIX).map(str::to_owned));
    ids(&names.collect::<Vec<_>>())
}

/// The names of roots among those of objects.
pub(crate) fn ids(listed: &[String]) -> Vec<RootId> {
    let id = |name: &String| RootId::parse(name.strip_prefix(ROOT_FOLDER)?.strip_prefix('/')?);
    listed.iter().filter_map(id).collect()
}

/// A root's bytes, as they were before they were sealed.
pub(crate) fn read(objects: &dyn ObjectStore, keys: &Keys, id: &RootId) -> Result<Vec<u8>> {
    Ok(read_as(objects, keys, id, id.object())?.0)
}

/// Reads a root that was forgotten, as [`read`] does.
pub(crate) fn read_forgotten(
    objects: &dyn ObjectStore,
    keys: &Keys,
    id: &RootId,
) -> Result<Vec<u8>> {
    Ok(read_as(objects, keys, id, id.forgotten_object())?.0)
}

/// Reads the root `id` under the name `object`. Gives it, and its stored bytes.
fn read_as(
    objects: &dyn ObjectStore,
    keys: &Keys,
    id: &RootId,
    object: String,
) -> Result<(Vec<u8>, Vec<u8>)> {
    read_twice_at_most(objects, &object, || {
        let stored = objects.get(&object)?;
        Ok((open(keys, id, object.clone(), &stored)?, stored))
    })
}

/// Opens the stored bytes of the root `id`.
fn open(keys: &Keys, id: &RootId, object: String, stored: &[u8]) -> Result<Vec<u8>> {
    let found = RootId(*blake3::hash(stored).as_bytes());
    if found != *id {
        return Err(Error::damaged(
            object,
            Some(0),
            format!("its bytes hash to {found}"),
        ));
    }
    // Its name is that of its bytes, and it must be that of one root: nothing may stand in them that neither seal
    // nor format fixes.
    let payload = frame::decode_whole(ROOT, stored, &object, 0)?;
    Ok(keys.open_object(&ROOT.magic, payload, &object)?)
}

impl Repository {
    /// Makes it durable that a root is there, for who found it and did not put it: whoever did may have died before
    /// that. `false`: it is there no longer, or cannot be had ([`Error::is_loss`]).
    ///
    /// # Errors
    /// [`Error::Io`] where the device fails otherwise; another version's root ([`Error::is_other_version`]).
    pub fn keep_root(&self, id: &RootId) -> Result<bool> {
        self.shared.objects.keep(&[id.object()])?;
        // This machine's copy says nothing of what is there.
        match read(&*self.shared.objects, &self.shared.keys, id) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_loss() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A root's bytes.
    ///
    /// # Errors
    /// [`Error::Io`], of kind [`ErrorKind::NotFound`] where there is none; damage ([`Error::is_damage`]), when it was
    /// read twice: its bytes are not those of its name, or its seal does not hold; another version's root
    /// ([`Error::is_other_version`]).
    pub fn root(&self, id: &RootId) -> Result<Vec<u8>> {
        self.shared.root(id)
    }

    /// A root's bytes, of one that a [`Hold`](crate::Hold) keeps: it may be forgotten.
    ///
    /// # Errors
    /// Those of [`root`](Self::root).
    pub fn held_root(&self, id: &RootId) -> Result<Vec<u8>> {
        match self.shared.root(id) {
            Err(error) if error.is_not_found() => {
                read_forgotten(&*self.shared.objects, &self.shared.keys, id).map_err(|other| {
                    match other {
                        other if other.is_not_found() => error,
                        other => other,
                    }
                })
            }
            read => read,
        }
    }

    /// All roots, sorted.
    ///
    /// # Errors
    /// [`Error::Damaged`] where their folder is missing; [`Error::Io`] where it cannot be listed.
    pub fn roots(&self) -> Result<Vec<RootId>> {
        let mut roots = ids(&self.shared.list(ROOT_FOLDER)?);
        let forgotten = forgotten::read(&*self.shared.objects)?;
        roots.retain(|root| !forgotten.contains(root));
        Ok(roots)
    }

    /// For whoever chooses roots to remove.
    ///
    /// # Errors
    /// [`Error::Locked`] while another does.
    pub fn lock_roots(&self) -> Result<RootsLock> {
        crate::repository::replica::refuse(&*self.shared.objects)?;
        let held = match self.shared.place.registry.lock(Lock::Snapshots) {
            // To forget is what helps then; and nobody puts a root in another's place.
            Err(error) if error.is_no_space() => None,
            other => Some(other?),
        };
        Ok(RootsLock {
            held,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Removes a root where nobody else chooses roots to remove; whoever does holds the [lock](Self::lock_roots), and
    /// [replaces](RootsLock::replace) by it. One that is not there is no error. What only it kept alive goes with the
    /// next sweep.
    ///
    /// # Errors
    /// Those of [`ObjectStore::delete`].
    pub fn remove_root(&self, id: &RootId) -> Result<()> {
        self.shared.objects.delete(&id.object())
    }
}
