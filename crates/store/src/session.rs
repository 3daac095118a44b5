//! Sessions: a running backup, restore or check, and what it may refer to.
//!
//! Invariant: a session refers only to containers that existed after it became visible and were not condemned then,
//! and to none after one of its own readers found it damaged.

mod learning;
pub(crate) mod sealing;
pub(crate) mod writer;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::GatePass;
use onefold_keys::{Fingerprinter, Keys};
use parking_lot::Mutex;

use crate::container::building::Building;
use crate::container::opened::Opened;
use crate::container::{self, ContainerTable, StreamKind};
use crate::error::tolerate;
use crate::index::catalog::{self, Catalog, CatalogEntry, Forwarding};
use crate::index::hooked::Hooked;
use crate::index::imagined::Imagined;
use crate::index::insert_table;
use crate::objects::ObjectStore;
use crate::objects::local_cache::LocalCache;
use crate::protocol::{self, Sorted};
use crate::reader::elsewhere::Elsewhere;
use crate::reader::{self, ChunkReader};
use crate::registry::Pin;
use crate::repository::place::Ways;
use crate::repository::{OpenOptions, RepositoryState};
use crate::session::writer::ChunkWriter;
use crate::sweep::condemned::ListId;
use crate::{ChunkRef, Error, Result};

/// Purpose of a session; others see it while they wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionKind {
    /// Writes chunks.
    Backup,
    /// Only reads: does without a pin where it can have none.
    Read,
    /// Only reads what a [`Hold`](crate::Hold) keeps, and has no pin of its own.
    Held,
    /// Reads, and counts on its pin: puts a root that refers to what another does, or a key, or tells the index of what
    /// is there.
    Pinned,
}

/// A running backup, restore or check. While it lives, the sweep deletes nothing that it may refer to.
pub struct Session {
    state: Arc<SessionState>,
}

impl Session {
    pub(crate) fn new(state: SessionState) -> Self {
        Self {
            state: Arc::new(state),
        }
    }

    /// Returns the function that fingerprints chunks.
    pub fn fingerprinter(&self) -> Fingerprinter {
        self.state.shared.keys.fingerprinter()
    }

    /// Whether what is written is only counted, and cannot be read again.
    pub fn is_dry_run(&self) -> bool {
        self.state.options().dry_run
    }

    /// A writer of one stream. A session may have several at once, one a stream.
    ///
    /// # Errors
    /// [`Error::Machine`]: no memory for a compressor.
    pub fn writer(&self, stream: StreamKind) -> Result<ChunkWriter> {
        ChunkWriter::new(Arc::clone(&self.state), stream)
    }

    /// A reader of chunks with a cache of its own: 36 MiB, for metadata that several backups stored.
    ///
    /// # Errors
    /// [`Error::Machine`]: no memory for a decompressor.
    pub fn reader(&self) -> Result<ChunkReader> {
        self.reader_that_keeps(reader::METADATA_CACHE_BYTES)
    }

    /// A reader of chunks with a cache of 16 MiB: for data, and for one of several that read at once.
    ///
    /// # Errors
    /// Those of [`reader`](Self::reader).
    pub fn data_reader(&self) -> Result<ChunkReader> {
        self.reader_that_keeps(reader::DATA_CACHE_BYTES)
    }

    /// A reader of chunks with a cache of 2 MiB: for what is read in order, once.
    ///
    /// # Errors
    /// Those of [`reader`](Self::reader).
    pub fn small_reader(&self) -> Result<ChunkReader> {
        self.reader_that_keeps(reader::SMALL_CACHE_BYTES)
    }

    fn reader_that_keeps(&self, bytes: usize) -> Result<ChunkReader> {
        let state = &self.state;
        let elsewhere = Arc::clone(&state.elsewhere);
        let found_damaged = Arc::clone(&state.found_damaged);
        ChunkReader::new(Arc::clone(&state.shared), elsewhere, found_damaged, bytes)
    }

    /// Whether the chunk can be referred to again as it is: its container is there, not condemned, and nobody in this
    /// session found it damaged.
    pub fn holds(&self, chunk: &ChunkRef) -> bool {
        self.state.may_refer_to(chunk.container).unwrap_or(false)
    }

    /// The chunk where it is now, if a sweep or a repair moved it and this session may refer to it there.
    pub fn relocate(&self, chunk: &ChunkRef) -> Option<ChunkRef> {
        let look_up = || {
            let mut found = [None];
            self.state.lookup(&[chunk.fingerprint], &mut found).ok()?;
            let moved = ChunkRef {
                container: found[0]?.container,
                ..*chunk
            };
            self.holds(&moved).then_some(moved)
        };
        look_up().or_else(|| match self.state.follow(chunk.container) {
            Ok(true) => look_up(),
            _ => None,
        })
    }

    /// Whether a lookup could lead to the chunk where it is said to be: [`holds`](Self::holds), and the index was told
    /// of all that its container has. It is told of no container that cannot be read.
    pub fn vouches_for(&self, chunk: &ChunkRef) -> bool {
        self.holds(chunk)
            && (self.state.is_indexed(chunk.container) || self.state.has_learned(chunk.container))
    }

    /// The session's place in the registry, by which it may put roots.
    pub(crate) fn pin(&self) -> Result<&dyn Pin> {
        let none = || Error::Machine("no sweep sees this session: it puts no root".into());
        self.state.pin.as_deref().ok_or_else(none)
    }

    /// For a sweep and a repair, which write what takes the place of what they delete: whether no other took them for
    /// dead, and went on in their place.
    ///
    /// # Errors
    /// [`Error::Overtaken`].
    pub(crate) fn confirm_not_overtaken(&self) -> Result<()> {
        let Some(pin) = &self.state.pin else {
            return Ok(()); // it wrote nothing
        };
        pin.confirm().map_err(|error| match error {
            Error::PinLost { object } => Error::Overtaken { object },
            error => error,
        })
    }

    /// The name of its pin, if it has one.
    pub(crate) fn pin_name(&self) -> Option<&str> {
        self.state.pin.as_deref().map(Pin::name)
    }

    /// Takes note of a container whose living chunks this session has copied.
    pub(crate) fn copied(&self, source: ContainerId) {
        self.state.copied(&[source]);
    }

    /// Makes what the index was told durable.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.state.checkpoint()
    }

    pub(crate) fn shared(&self) -> &RepositoryState {
        &self.state.shared
    }

    /// Bytes of containers are added to `counter` as soon as they are stored. Asked for once a session.
    pub fn count_stored(&self, counter: Arc<AtomicU64>) {
        let _ = self.state.counter.set(counter);
    }

    /// Makes what the index was told durable and ends the session. Writers must have finished.
    ///
    /// # Errors
    /// [`Error::Index`] or [`Error::Io`] where the index cannot be made durable, nor one anew in its place. What was
    /// stored is durable; the next session tells the index of it.
    pub fn finish(self) -> Result<()> {
        self.state.checkpoint()
    }
}

/// The machine of a session that has begun its work.
pub(crate) type Granted = protocol::SessionMachine<Sorted<ContainerId>, Sorted<ListId>>;

/// State that a session's writers and threads share.
pub struct SessionState {
    shared: Arc<RepositoryState>,
    /// Containers that the session may refer to: those that were listed after it became visible, less the condemned.
    granted: Granted,
    /// Containers that came up since, in the index or from this session, and exist.
    newer: Mutex<HashSet<ContainerId>>,
    pending: Mutex<HashMap<Fingerprint, ContainerId>>,
    /// Containers that this session has stored and told the index of.
    told: Mutex<HashSet<ContainerId>>,
    /// Containers of others that the index has learned whole.
    learned: Mutex<HashSet<ContainerId>>,
    /// In a dry run: what would be stored by now, and what is stored where no index can be opened.
    imagined: Mutex<Imagined>,
    counter: OnceLock<Arc<AtomicU64>>,
    /// Containers that the index knew when this was first asked.
    indexed: OnceLock<Vec<ContainerId>>,
    /// Times that the index had forgotten everything when the session began.
    times_forgotten: u64,
    /// Search for chunks that are missing from their container. Chunks that a sweep moves from now on stay in their old
    /// container, too, until this session ends.
    elsewhere: Arc<Mutex<Elsewhere>>,
    /// Containers that did not give one of their chunks to a reader of this session, whatever the index says of them.
    found_damaged: Arc<Mutex<HashSet<ContainerId>>>,
    /// Containers of which the index has only the hooks.
    hooked: Hooked,
    /// Held while the index learns the rest of some of them, so that nobody goes on with a hook alone.
    learning: Mutex<()>,
    /// Where the chunks of containers went that are gone, once that is asked for.
    forwarding: OnceLock<Forwarding>,
    /// Entries that stand in no catalog yet.
    uncataloged: Mutex<Catalog>,
    pin: Option<Box<dyn Pin>>,
}

impl SessionState {
    pub(crate) fn new(
        shared: Arc<RepositoryState>,
        granted: Granted,
        pin: Option<Box<dyn Pin>>,
    ) -> Self {
        let times_forgotten = shared.index.read().times_forgotten();
        Self {
            shared,
            granted,
            newer: Mutex::default(),
            pending: Mutex::default(),
            told: Mutex::default(),
            learned: Mutex::default(),
            imagined: Mutex::default(),
            counter: OnceLock::new(),
            indexed: OnceLock::new(),
            times_forgotten,
            elsewhere: Arc::new(Mutex::new(Elsewhere::new(pin.is_some()))),
            found_damaged: Arc::default(),
            hooked: Hooked::default(),
            learning: Mutex::default(),
            forwarding: OnceLock::new(),
            uncataloged: Mutex::default(),
            pin,
        }
    }

    /// With containers of which the index has only the `hooked` ones' hooks, and others that are in no catalog yet.
    pub(crate) fn with_catalog(self, hooked: Hooked, entries: Vec<CatalogEntry>) -> Self {
        let sources = Vec::new();
        Self {
            hooked,
            uncataloged: Mutex::new(Catalog { sources, entries }),
            ..self
        }
    }

    pub(crate) fn options(&self) -> &OpenOptions {
        &self.shared.options
    }

    pub(crate) fn ways(&self) -> Ways {
        self.shared.place.ways
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        &*self.shared.objects
    }

    /// Copies in this machine's own folder, where there are any.
    pub(crate) fn local_cache(&self) -> Option<&LocalCache> {
        self.shared.local_cache.as_ref()
    }

    pub(crate) fn block_bytes(&self, stream: StreamKind) -> usize {
        let options = self.options();
        options
            .block_bytes
            .unwrap_or(options.compression.block_bytes(stream))
    }

    pub(crate) fn begin_container(
        &self,
        stream: StreamKind,
        bytes: Vec<u8>,
        place: GatePass,
    ) -> Result<Building> {
        let keys: &Keys = &self.shared.keys;
        Building::begin(stream, bytes, place, keys, &self.options().entropy)
    }

    pub(crate) fn fingerprint(&self, data: &[u8]) -> Fingerprint {
        self.shared.keys.fingerprinter().fingerprint(data)
    }

    /// Whether the session may refer to this container: not to one of which it knows damage. What it has of such a one
    /// is stored again, or who restores it would miss what was there when it was backed up. One that is newer than the
    /// session's list was made while the session was visible, so whoever condemns it waits for the session: it is
    /// enough that it exists, durably.
    pub(crate) fn may_refer_to(&self, container: ContainerId) -> Result<bool> {
        if self.found_damaged.lock().contains(&container) {
            return Ok(false);
        }
        if self.granted.live().contains(&container) || self.newer.lock().contains(&container) {
            return Ok(true);
        }
        if self.granted.condemned().contains(&container) {
            return Ok(false);
        }
        let object = container::object_name(container);
        match self.objects().len(&object) {
            Ok(_) => {
                self.objects().keep(&[object])?;
                self.newer.lock().insert(container);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the index had been told of this container when that was first asked. Where nobody can say, it was not.
    fn is_indexed(&self, container: ContainerId) -> bool {
        let listed = || self.shared.index.read().ingested().read();
        let indexed = self.indexed.get_or_init(|| listed().unwrap_or_default());
        indexed.binary_search(&container).is_ok()
    }

    pub(crate) fn pending(&self, fingerprint: &Fingerprint) -> Result<Option<ContainerId>> {
        let pending = self.pending.lock().get(fingerprint).copied();
        match pending {
            None => self.imagined(fingerprint),
            found => Ok(found),
        }
    }

    pub(crate) fn stored(&self, bytes: u64) {
        if let Some(counter) = self.counter.get() {
            counter.fetch_add(bytes, Relaxed);
        }
    }

    fn imagined(&self, fingerprint: &Fingerprint) -> Result<Option<ContainerId>> {
        if !self.options().dry_run {
            return Ok(None);
        }
        let known = self.imagined.lock().contains(fingerprint)?;
        Ok(known.then_some(ContainerId(0)))
    }

    /// Takes note of a container that would be stored now.
    pub(crate) fn imagine(&self, table: &ContainerTable) -> Result<()> {
        let (mut imagined, mut pending) = (self.imagined.lock(), self.pending.lock());
        for (fingerprint, _) in &table.chunks {
            imagined.insert(fingerprint)?;
            pending.remove(fingerprint);
        }
        Ok(())
    }

    /// Whether this very session has stored the chunk.
    pub(crate) fn has_stored(&self, fingerprint: &Fingerprint) -> Result<bool> {
        if self.pending(fingerprint)?.is_some() {
            return Ok(true);
        }
        let mut found = [None];
        // Nothing is learned for that: a sweep would learn of the very containers that it is about to delete.
        self.shared.look_up(&[*fingerprint], &mut found)?;
        Ok(found[0].is_some_and(|location| self.told.lock().contains(&location.container)))
    }

    /// For a dry run where no index can be opened, since nothing may be written: takes note of all that is stored, from
    /// the containers' tables.
    pub(crate) fn imagine_stored(&self) -> Result<()> {
        self.granted.live().as_slice().iter().try_for_each(|id| {
            // Nothing can refer to a container that is damaged, unreadable or just deleted.
            let opened = tolerate(Opened::read(&self.shared, *id), |error| {
                tracing::warn!("{error}: what is in it counts as new");
            })?;
            opened.map_or(Ok(()), |opened| self.imagine(&opened.table))
        })
    }

    pub(crate) fn all_pending(&self, keys: &[Fingerprint], found: &mut Vec<Option<ContainerId>>) {
        let pending = self.pending.lock();
        found.extend(keys.iter().map(|key| pending.get(key).copied()));
    }

    pub(crate) fn set_pending(&self, fingerprint: Fingerprint, container: ContainerId) {
        self.pending.lock().insert(fingerprint, container);
    }

    /// Tells the index of a container that is durable now.
    pub(crate) fn tell_index(&self, id: ContainerId, table: &ContainerTable) -> Result<()> {
        self.newer.lock().insert(id);
        self.shared
            .with_index(|index| insert_table(&mut **index, id, table))?;
        self.told.lock().insert(id);
        if self.ways().is_dear() {
            self.uncataloged
                .lock()
                .entries
                .push(CatalogEntry::of(id, table));
            self.catalog(catalog::CONTAINERS_MAX);
        }
        let mut pending = self.pending.lock();
        for (fingerprint, _) in &table.chunks {
            if pending.get(fingerprint) == Some(&id) {
                pending.remove(fingerprint);
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        self.catalog(1);
        let mut told: Vec<_> = self.told.lock().drain().collect();
        told.extend(self.learned.lock().drain());
        if told.is_empty() {
            return Ok(());
        }
        let mut known = self.times_forgotten;
        self.shared.with_index(|index| {
            loop {
                let seen = index.times_forgotten();
                if seen > known {
                    // The new index was told of all containers, in any order. Of a chunk that a sweep has moved, it
                    // must know the new container.
                    self.shared.tell(index, &told, &mut |_, _| {})?;
                    known = seen;
                }
                index.checkpoint()?;
                if index.times_forgotten() == seen {
                    return Ok(index.ingested().add(&told)?);
                }
            }
        })
    }
}
