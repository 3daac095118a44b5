//! What everybody who works on an opened repository shares, and how the index is asked and told.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId};
use onefold_io::{Dir, ErrorKind};
use parking_lot::Mutex;

use super::{INDEX_FOLDER, OpenOptions};
use crate::config::Config;
use crate::container;
use crate::index::RepositoryIndex;
use crate::ingested::Ingested;
use crate::keys::Keys;
use crate::objects::ObjectStore;
use crate::opened::Opened;
use crate::session::insert_table;
use crate::{Error, Result};

/// What all sessions, readers and writers of an opened repository share.
pub struct Shared {
    pub(crate) root: Arc<dyn Dir>,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) options: OpenOptions,
    pub(crate) index: Mutex<RepositoryIndex>,
    pub(crate) index_dir: Arc<dyn Dir>,
    /// Why its folder cannot be had. Then an empty one in RAM stands in for it, which is enough for whoever reads.
    pub(super) index_denied: Option<onefold_io::Error>,
}

impl Shared {
    /// All containers, sorted.
    pub(crate) fn containers(&self) -> Result<Vec<ContainerId>> {
        let listed = self.objects.list("containers")?;
        let mut ids: Vec<_> = listed
            .iter()
            .filter_map(|(name, _)| container::id_of_object(name))
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Asks or tells the index. One whose files turn out to be damaged is begun anew from the containers, then asked again: damage to it costs time
    /// only, in the middle of a session too. So `ask` may run twice, and the second time upon an index that knows every stored container.
    pub(crate) fn with_index<T>(
        &self,
        mut ask: impl FnMut(&mut dyn ChunkIndex) -> Result<T>,
    ) -> Result<T> {
        let mut index = self.index.lock();
        match ask(&mut **index) {
            Err(error @ Error::Index(_)) if error.is_loss() => {
                tracing::warn!("{error}: the index is rebuilt from the containers");
                self.rebuild(&mut index)?;
                ask(&mut **index)
            }
            other => other,
        }
    }

    /// For whoever tells the index something: that it is the repository's.
    pub(super) fn index_is_kept(&self) -> Result<()> {
        let denied = |why: &onefold_io::Error| {
            // an index that is missing is no damage
            let kind = match why.kind {
                ErrorKind::NotFound => ErrorKind::Denied,
                kind => kind,
            };
            onefold_io::Error::new("open folder", INDEX_FOLDER, kind, why.to_string()).into()
        };
        self.index_denied
            .as_ref()
            .map_or(Ok(()), |why| Err(denied(why)))
    }

    /// Throws the index away and tells a new one of every container that can be read. What others finish meanwhile, they tell it themselves.
    pub(super) fn rebuild(&self, index: &mut RepositoryIndex) -> Result<()> {
        self.index_is_kept()?;
        index.forget(&self.options)?;
        let told = self.tell(&mut **index, &self.containers()?)?;
        index.checkpoint()?;
        Ingested::new(Arc::clone(&self.index_dir)).add(&told)
    }

    /// Tells the index of containers, and returns those that could be read.
    pub(super) fn tell(
        &self,
        index: &mut dyn ChunkIndex,
        ids: &[ContainerId],
    ) -> Result<Vec<ContainerId>> {
        let mut told = Vec::with_capacity(ids.len());
        for id in ids {
            match Opened::read(self, *id) {
                Ok(opened) => {
                    insert_table(index, *id, &opened.table)?;
                    told.push(*id);
                }
                // Damaged, not to be read, or just deleted: nothing to refer to. `check` reports it.
                Err(error) if error.is_loss() => tracing::warn!("{error}: left out of the index"),
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }
}
