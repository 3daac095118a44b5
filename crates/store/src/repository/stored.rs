//! The stored objects of a repository, and the keys that open them.

use std::sync::Arc;

use onefold_keys::Keys;

use crate::objects::ObjectStore;
use crate::objects::local_cache::LocalCache;

/// Everything that is needed to read a container: the objects, and the keys that open them.
pub struct Stored {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) keys: Keys,
    /// Bytes at a container's end that are read in one request; 0 where a request costs little.
    pub(crate) tail_bytes: usize,
    /// Copies in this machine's own folder, where there are any.
    pub(crate) local_cache: Option<LocalCache>,
}

impl Stored {
    /// From now on nothing is read from copies in this machine's own folder.
    pub(crate) fn read_the_store_itself(&self) {
        self.local_cache.iter().for_each(LocalCache::pass_by);
    }
}
