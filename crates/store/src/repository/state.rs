//! State that everybody who works on an opened repository shares, and access to the index.

use std::collections::HashSet;
use std::ops::Deref;

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};
use parking_lot::{Mutex, RwLock};

use super::OpenOptions;
use super::stored::Stored;
use crate::container::opened::Opened;
use crate::container::{self, CONTAINER_FOLDER, ContainerTable};
use crate::error::tolerate;
use crate::index::catalog::{Copies, Forwarding};
use crate::index::{RepositoryIndex, insert_table};
use crate::reader::recovered::Recovered;
use crate::repository::config::RepositoryConfig;
use crate::repository::place::Place;
use crate::{Error, Result, sweep::condemned};

/// Largest number of times that an index is rebuilt that is lost again meanwhile: somebody may be deleting its files
/// just then.
const REBUILDS_MAX: usize = 8;

/// State that all sessions, readers and writers of an opened repository share.
pub struct RepositoryState {
    pub(crate) place: Place,
    pub(crate) stored: Stored,
    pub(crate) config: RepositoryConfig,
    pub(crate) options: OpenOptions,
    /// Read by who looks up, any number at once; written by who tells it anything, or opens it.
    pub(crate) index: RwLock<RepositoryIndex>,
    pub(crate) recovered: Mutex<Recovered>,
}

impl Deref for RepositoryState {
    type Target = Stored;

    fn deref(&self) -> &Stored {
        &self.stored
    }
}

impl RepositoryState {
    /// Objects below `folder`, which `init` makes: an error of damage where it is missing, so that nobody takes what
    /// was in it for deleted.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.require_folder(folder)?;
        self.objects.list(folder)
    }

    /// Damage where the folder is missing.
    pub(crate) fn require_folder(&self, folder: &str) -> Result<()> {
        if self.objects.has_folder(folder)? {
            Ok(())
        } else {
            Err(Error::MissingFolder {
                folder: folder.into(),
            })
        }
    }

    /// All containers, sorted. Damaged where their folder is missing.
    pub(crate) fn containers(&self) -> Result<Vec<ContainerId>> {
        self.containers_past(&mut Err)
    }

    /// The same; `failed` hears why a folder of them cannot be listed, and says whether to go on without it.
    pub(crate) fn containers_past(
        &self,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<ContainerId>> {
        self.require_folder(CONTAINER_FOLDER)?;
        let listed = self.objects.list_past(CONTAINER_FOLDER, failed)?;
        let ids = listed.iter().map(|name| container::id_of_object(name));
        let mut ids: Vec<_> = ids.flatten().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Lists the containers with their stored bytes, for which each is looked at.
    pub(crate) fn container_lengths_past(
        &self,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(ContainerId, u64)>> {
        self.require_folder(CONTAINER_FOLDER)?;
        let listed = self.objects.lengths_past(CONTAINER_FOLDER, failed)?;
        let row = |(name, len): &(String, u64)| Some((container::id_of_object(name)?, *len));
        let mut all: Vec<_> = listed.iter().filter_map(row).collect();
        all.sort_unstable();
        Ok(all)
    }

    /// Asks or tells the index. An index whose files turn out to be damaged, or gone, or more than this process may
    /// open, is begun anew from the containers, then asked again: damage to it costs time only, in the middle of a
    /// session too. So `ask` may run several times, and from the second time on the index knows every stored container.
    pub(crate) fn with_index<T>(
        &self,
        mut ask: impl FnMut(&mut RepositoryIndex) -> Result<T>,
    ) -> Result<T> {
        let mut index = self.index.write();
        let mut asked = ask(&mut index);
        for times in 0..REBUILDS_MAX {
            match &asked {
                // a new index has few files; if they are too many still, they always will be
                Err(error @ Error::Index(_))
                    if error.is_loss() || times == 0 && error.is_crowded_index() =>
                {
                    tracing::warn!("{error}: the index is rebuilt from the containers");
                }
                _ => break,
            }
            asked = self.rebuild(&mut index).and_then(|()| ask(&mut index));
        }
        asked
    }

    /// Looks up, side by side with others who do. As [`with_index`](Self::with_index) where the index is lost.
    pub(crate) fn look_up(
        &self,
        keys: &[Fingerprint],
        found: &mut [Option<Location>],
    ) -> Result<()> {
        let asked = self.index.read().lookup(keys, found).map_err(Error::from);
        match asked {
            Err(error) if error.is_loss() || error.is_crowded_index() => {
                self.with_index(|index| Ok(index.lookup(keys, found)?))
            }
            other => other,
        }
    }

    /// Opens the index for whoever tells it something, as others have left it by now. Gives the containers that it was
    /// told of.
    ///
    /// # Errors
    /// [`Error::Locked`] where it has one opener, and that is another.
    pub(crate) fn open_index(&self) -> Result<Vec<ContainerId>> {
        self.with_index(|index| {
            index.confirm_kept()?;
            // One that begins anew has forgotten what is listed as ingested, and the list with it.
            index.open(&self.options)?;
            let ingested = index.ingested().read()?;
            // After the list: what that names is known to what is seen now.
            index.refresh()?;
            Ok(ingested)
        })
    }

    /// Throws the index away and tells a new one of every container that can be read and is not condemned: what such a
    /// one held may be elsewhere by now, and the index knows one place of a chunk. What others finish meanwhile, they
    /// tell it themselves.
    pub(super) fn rebuild(&self, index: &mut RepositoryIndex) -> Result<()> {
        index.forget(&self.options)?;
        let mut containers = self.containers()?;
        let condemned = condemned::containers(&condemned::lists(&*self.objects)?);
        containers.retain(|id| condemned.binary_search(id).is_err());
        self.tell_durably(index, &containers, &mut |_, _| {})
    }

    /// Tells the index of containers, makes that durable, and lists those that could be read as told: all anew where
    /// others threw the index away meanwhile, for what was durable before that is no longer known.
    pub(crate) fn tell_durably(
        &self,
        index: &mut RepositoryIndex,
        ids: &[ContainerId],
        each: &mut dyn FnMut(ContainerId, &ContainerTable),
    ) -> Result<()> {
        loop {
            let seen = index.times_forgotten();
            let told = self.tell(index, ids, each)?;
            index.checkpoint()?;
            if index.times_forgotten() == seen {
                return Ok(index.ingested().add(&told)?);
            }
        }
    }

    /// Tells the index of containers, and returns those that could be read; `each` hears of each of those. All of them
    /// are durable then, whoever put them: the index names no others.
    pub(crate) fn tell(
        &self,
        index: &mut RepositoryIndex,
        ids: &[ContainerId],
        each: &mut dyn FnMut(ContainerId, &ContainerTable),
    ) -> Result<Vec<ContainerId>> {
        let objects: Vec<_> = ids.iter().copied().map(container::object_name).collect();
        self.objects.keep(&objects)?;
        let mut told = Vec::with_capacity(ids.len());
        self.open_many(ids, &mut |id, opened| {
            // Nothing can refer to a container that is damaged, unreadable or just deleted. `check` reports it.
            let opened = tolerate(opened, |error| {
                tracing::warn!("{error}: left out of the index");
            })?;
            if let Some(opened) = opened {
                insert_table(&mut **index, id, &opened.table)?;
                each(id, &opened.table);
                told.push(id);
            }
            Ok(())
        })?;
        Ok(told)
    }

    /// Reads headers and tables of containers, several at once where the place takes that, and gives them in order.
    pub(crate) fn open_many(
        &self,
        ids: &[ContainerId],
        each: &mut dyn FnMut(ContainerId, Result<Opened>) -> Result<()>,
    ) -> Result<()> {
        if !self.place.ways.is_dear() {
            return ids
                .iter()
                .try_for_each(|id| each(*id, Opened::read(self, *id)));
        }
        for some in ids.chunks(self.place.ways.gets_at_once) {
            let opened: Vec<_> = std::thread::scope(|scope| {
                let reading = some
                    .iter()
                    .map(|id| scope.spawn(|| Opened::read(self, *id)));
                let reading: Vec<_> = reading.collect();
                let joined = reading.into_iter().map(|read| read.join());
                joined
                    .map(|read| read.expect("reading does not panic"))
                    .collect()
            });
            for (id, opened) in some.iter().zip(opened) {
                each(*id, opened)?;
            }
        }
        Ok(())
    }

    /// All catalogs, of which this machine keeps copies.
    fn catalogs(&self) -> Copies<'_> {
        Copies {
            objects: &*self.objects,
            keys: &self.keys,
            local_cache: self.local_cache.as_ref(),
        }
    }

    /// Containers that sweeps wrote, by those whose living chunks are in them.
    pub(crate) fn forwarding(&self) -> Result<Forwarding> {
        let mut forwarding = Forwarding::default();
        self.catalogs().for_each(&mut |catalog| {
            forwarding.add(&catalog);
            Ok(())
        })?;
        Ok(forwarding)
    }

    /// Those of `ids` that no catalog names.
    pub(crate) fn in_no_catalog(&self, ids: &[ContainerId]) -> Result<Vec<ContainerId>> {
        let mut named = HashSet::new();
        self.catalogs().for_each(&mut |catalog| {
            named.extend(catalog.entries.iter().map(|entry| entry.container));
            Ok(())
        })?;
        let left = ids.iter().filter(|id| !named.contains(id));
        Ok(left.copied().collect())
    }

    /// Tells the index the hooks of those of `missed`, sorted, that a catalog names, and makes that durable. Gives
    /// those that none names.
    pub(crate) fn tell_hooks(
        &self,
        index: &mut RepositoryIndex,
        missed: &[ContainerId],
    ) -> Result<Vec<ContainerId>> {
        let (mut named, mut order) = (HashSet::new(), Vec::new());
        self.catalogs().for_each(&mut |catalog| {
            for entry in catalog.entries {
                let id = entry.container;
                if missed.binary_search(&id).is_ok() && named.insert(id) {
                    index.insert(&entry.locations())?;
                    order.push(id);
                }
            }
            Ok(())
        })?;
        let objects: Vec<_> = order.iter().copied().map(container::object_name).collect();
        self.objects.keep(&objects)?;
        index.checkpoint()?;
        index.hooked().add(&order)?;
        let left = missed.iter().filter(|id| !named.contains(id));
        Ok(left.copied().collect())
    }
}

/// Where a folder cannot be listed: for who only reads, and goes on with the others.
pub(crate) fn warn_of_loss(error: Error) -> Result<()> {
    if error.is_loss() {
        tracing::warn!("{error}: what is in there counts as missing");
        Ok(())
    } else {
        Err(error)
    }
}
