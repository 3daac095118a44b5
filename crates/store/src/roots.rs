//! Roots: sealed objects that keep chunks alive. To the store a snapshot is a root and some bytes; what they say is its
//! user's affair.

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame;

use crate::objects::OBJECT_BYTES_MAX;
use crate::objects::local_cache::Copied;
use crate::protocol::{ChangeMachine, ProtocolRules};
use crate::reader::ChunkReader;
use crate::registry::{Held, Lock, RootPlan, flock};
use crate::repository::{Repository, RepositoryState};
use crate::root::{ROOT, ids, open, read, read_as, read_forgotten};
use crate::session::Session;
use crate::{ChunkRef, Error, Result, sweep::forgotten};

pub use crate::folders::ROOT_FOLDER;
pub use crate::root_id::RootId;

/// The longest root, in bytes: with its frame and its seal it is an object that can be read again.
const ROOT_BYTES_MAX: usize = OBJECT_BYTES_MAX as usize - (4 << 10);

/// Held by whoever chooses roots to remove: from looking at them to the end. Of two that each take a root for another's
/// twin, both could go.
pub struct RootsLock {
    /// None where there is no room for it.
    held: Option<Box<dyn Held>>,
    shared: Arc<RepositoryState>,
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
        let plan = RootPlan {
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
        let mut steps = ChangeMachine::new(ProtocolRules::default());
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

impl RepositoryState {
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
    /// [`Error::Io`], of kind [`NotFound`](onefold_io::ErrorKind::NotFound) where there is none; damage
    /// ([`Error::is_damage`]), when it was read twice: its bytes are not those of its name, or its seal does not hold;
    /// another version's root ([`Error::is_other_version`]).
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
        crate::repository::replica_mark::refuse(&*self.shared.objects)?;
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
    /// Those of [`ObjectStore::delete`](crate::objects::ObjectStore::delete).
    pub fn remove_root(&self, id: &RootId) -> Result<()> {
        self.shared.objects.delete(&id.object())
    }
}
