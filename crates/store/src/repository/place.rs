//! Where a repository lies: its objects, the registry of who is at work, and a folder of this machine's own.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_keys::Entropy;

use crate::objects::{LocalObjects, ObjectStore};
use crate::registry::Registry;
use crate::registry::flock::FlockRegistry;

/// Where a repository lies. Clones are the same place.
#[derive(Clone)]
pub struct Place {
    /// Data and truth: containers, snapshots, key slots, the configuration, lists.
    pub objects: Arc<dyn ObjectStore>,
    /// Sessions and locks.
    pub registry: Arc<dyn Registry>,
    /// The folder of this machine: the index, and the sweep's working file. All of it is advice or scratch, so it may
    /// be deleted at any time.
    pub own: Arc<dyn Dir>,
    /// Limits and preferences of the storage, such as requests at once.
    pub ways: Ways,
}

/// Limits and preferences of a place's storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// Objects that are stored at once.
    pub puts_at_once: usize,
    /// Ranges that are read at once.
    pub gets_at_once: usize,
    /// Two ranges no further apart than this, in bytes, are read as one.
    pub gap_bytes: u64,
    /// Bytes at a container's end that are read in one request, in the hope that its table is in them; 0 where a
    /// request costs little.
    pub tail_bytes: usize,
    /// Up to so many containers that a machine's index has missed are read whole, catalogs or not: hooks alone miss what
    /// lies scattered.
    pub whole_max: usize,
    /// How long a list of the condemned waits before anything on it is deleted, in seconds.
    pub grace_s: u64,
}

impl Ways {
    /// Whether a request costs so much that sessions tell each other by a catalog what they stored.
    pub fn is_dear(&self) -> bool {
        self.tail_bytes > 0
    }
}

impl Default for Ways {
    /// The limits of a local folder.
    fn default() -> Self {
        Self {
            puts_at_once: 1,
            gets_at_once: 2,
            gap_bytes: 128 << 10,
            tail_bytes: 0,
            whole_max: 0,
            grace_s: 0,
        }
    }
}

impl Place {
    /// A local folder, which is this machine's own folder, too. `entropy` names sessions and unfinished objects.
    pub fn local(root: Arc<dyn Dir>, entropy: &Entropy) -> Self {
        let objects = LocalObjects::new(Arc::clone(&root), entropy.clone());
        let objects: Arc<dyn ObjectStore> = Arc::new(objects);
        let registry = FlockRegistry::new(Arc::clone(&root), Arc::clone(&objects), entropy.clone());
        Self {
            objects,
            registry: Arc::new(registry),
            own: root,
            ways: Ways::default(),
        }
    }

    /// Returns the place with another folder of this machine's own, perhaps on another device.
    #[must_use]
    pub fn with_own(self, own: Arc<dyn Dir>) -> Self {
        Self { own, ..self }
    }
}

/// A place, or a local folder that is one.
pub trait IntoPlace {
    /// The place; `entropy` is for the names that a local folder takes.
    fn into_place(self, entropy: &Entropy) -> Place;
}

impl IntoPlace for Place {
    fn into_place(self, _entropy: &Entropy) -> Place {
        self
    }
}

impl IntoPlace for &Place {
    fn into_place(self, _entropy: &Entropy) -> Place {
        self.clone()
    }
}

impl<D: Dir + 'static> IntoPlace for Arc<D> {
    fn into_place(self, entropy: &Entropy) -> Place {
        Place::local(self, entropy)
    }
}

impl IntoPlace for Arc<dyn Dir> {
    fn into_place(self, entropy: &Entropy) -> Place {
        Place::local(self, entropy)
    }
}

impl IntoPlace for &Arc<dyn Dir> {
    fn into_place(self, entropy: &Entropy) -> Place {
        Place::local(Arc::clone(self), entropy)
    }
}
