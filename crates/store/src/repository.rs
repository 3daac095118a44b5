//! A repository: made, opened, and what it is asked for first.

mod catch_up;
pub mod config;
mod lost_config;
mod options;
pub(crate) mod place;
pub mod replica;
pub(crate) mod replica_mark;
pub(crate) mod secrets;
pub mod slots;
mod state;
mod stored;
mod unlock;

use std::sync::Arc;

use onefold_chunk::Chunker;
use onefold_chunk::context::{Context, Rules};
use onefold_chunk::digest::Digester;
use onefold_io::ErrorKind;
use onefold_keys::{Entropy, Fingerprinter, Keys, NewSlot, Secret};
use parking_lot::{Mutex, RwLock};
use zeroize::Zeroizing;

use crate::container::CONTAINER_FOLDER;
pub use crate::index::INDEX_FOLDER;
use crate::index::{self, RepositoryIndex};
use crate::objects::ObjectStore;
use crate::objects::local_cache::LocalCache;
use crate::protocol;
use crate::registry::{Held, Lock};
use crate::repository::config::{
    CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, Encryption, RepositoryConfig,
};
use crate::repository::place::{IntoPlace, Place, Ways};
use crate::roots::ROOT_FOLDER;
use crate::session::{Granted, Session, SessionKind, SessionState};
use crate::sweep::condemned;
use crate::{Error, Result};

pub use options::{InitOptions, OpenOptions};
pub use state::RepositoryState;
pub(crate) use state::warn_of_loss;
pub use stored::Stored;
use unlock::read_config;
pub(crate) use unlock::{Unlocked, read_slot, unlock};

/// An opened repository.
pub struct Repository {
    pub(crate) shared: Arc<RepositoryState>,
    pub(crate) unlocked: Option<Unlocked>,
}

impl Repository {
    /// Makes a repository in `place`, which must be empty, but for what one left that was interrupted while it was
    /// made.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; [`Error::Locked`]; [`Error::Option`] for a missing password or an unknown name.
    pub fn init(
        place: impl IntoPlace,
        options: &InitOptions,
        secret: Option<&Secret>,
    ) -> Result<()> {
        Self::init_with(place, options, secret, None)
    }

    /// Makes a repository that fingerprints and cuts as this one does, under a password of its own: what has one of the
    /// two keys can read both. Chunker and encryption are this one's, whatever `options` says.
    ///
    /// # Errors
    /// Those of [`init`](Self::init).
    pub fn init_like(
        &self,
        place: impl IntoPlace,
        options: &InitOptions,
        secret: Option<&Secret>,
    ) -> Result<()> {
        let config = self.config();
        let options = InitOptions {
            chunker: config.chunker.clone(),
            chunk_bytes_mean: config.chunk_bytes_mean,
            encryption: config.encryption,
            ..options.clone()
        };
        let master = self.unlocked.as_ref().map(|unlocked| &unlocked.master);
        Self::init_with(place, &options, secret, master)
    }

    fn init_with(
        place: impl IntoPlace,
        options: &InitOptions,
        secret: Option<&Secret>,
        master: Option<&Zeroizing<[u8; 32]>>,
    ) -> Result<()> {
        let place = place.into_place(&options.entropy);
        let config = RepositoryConfig {
            repository: options.entropy.try_bytes()?,
            encryption: options.encryption,
            chunker: options.chunker.clone(),
            chunk_bytes_mean: options.chunk_bytes_mean,
            index: options.index.clone(),
        };
        config.check_chunker()?;
        index::kind(&config.index, options.indexes)?;
        let _lock = begin(&place)?;
        let objects = &*place.objects;
        if options.encryption != Encryption::None {
            let secret = secret
                .ok_or_else(|| Error::Option("an encrypted repository needs a password".into()))?;
            let master = match master {
                Some(master) => master.clone(),
                None => Zeroizing::new(options.entropy.try_bytes()?),
            };
            let new = NewSlot {
                cost: options.kdf_cost,
                label: &options.label,
                created_unix_s: options.now_unix_s,
            };
            let slot = slots::wrap(&master, &config, secret, &new, &options.entropy)?;
            let object = slots::new_object(&options.entropy)?;
            objects.put_if_absent(&object, &[&slot.encode()])?;
        }
        place.registry.init()?;
        place.own.subdir(INDEX_FOLDER)?;
        for folder in [CONTAINER_FOLDER, ROOT_FOLDER] {
            objects.make_folder(folder)?;
        }
        // A folder with a configuration is a repository; the copy may be missing.
        let config = config::encode_twice(CONFIG, &config.encode());
        objects.put_if_absent(CONFIG_OBJECT, &[&config])?;
        objects.put_if_absent(CONFIG_COPY_OBJECT, &[&config])
    }

    /// Opens the repository in `place`.
    ///
    /// # Errors
    /// [`Error::NoRepository`], [`Error::WrongPassword`], [`Error::Damaged`]; [`Error::Option`] where a password is
    /// missing, or is given and nothing is encrypted.
    pub fn open(
        place: impl IntoPlace,
        options: OpenOptions,
        secret: Option<&Secret>,
    ) -> Result<Self> {
        let place = place.into_place(&options.entropy);
        let config = Self::config_at(&place)?;
        Self::open_agreed(place, config, options, secret)
    }

    /// Opens the repository in `place` as `config` says, which the caller has read ([`config_at`](Self::config_at)) and
    /// agrees to: what somebody makes of it since then counts for nothing.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_agreed(
        place: impl IntoPlace,
        config: RepositoryConfig,
        options: OpenOptions,
        secret: Option<&Secret>,
    ) -> Result<Self> {
        let place = place.into_place(&options.entropy);
        let objects = Arc::clone(&place.objects);
        let open_index = || RepositoryIndex::new(&config.index, &place.own, &options);
        let (unlocked, index) = match config.encryption {
            Encryption::None => {
                refuse_secret(secret)?;
                refuse_slots(&*objects)?;
                (None, open_index()?)
            }
            Encryption::Aes256Gcm => {
                let secret = secret.ok_or_else(|| {
                    Error::Option("the repository is encrypted: a password is needed".into())
                })?;
                let unlock = || unlock(&*objects, &config, secret);
                let (unlocked, index) = side_by_side(options.threads, unlock, open_index)?;
                (Some(unlocked), index)
            }
        };
        let keys = match &unlocked {
            Some(unlocked) => Keys::from_master(&unlocked.master),
            None => Keys::none(),
        };
        let local_cache_bytes = if place.ways.is_dear() {
            options.local_cache_bytes
        } else {
            0
        };
        let stored = Stored {
            objects,
            keys,
            tail_bytes: place.ways.tail_bytes,
            local_cache: LocalCache::new(&place.own, local_cache_bytes, &options.entropy),
        };
        let shared = RepositoryState {
            place,
            stored,
            config,
            options,
            index: RwLock::new(index),
            recovered: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            unlocked,
        })
    }

    /// The configuration of the repository in `place`, unopened: whether it is one, and whether a password is needed.
    ///
    /// # Errors
    /// [`Error::NoRepository`], [`Error::Damaged`].
    pub fn config_at(place: impl IntoPlace) -> Result<RepositoryConfig> {
        read_config(&*objects_in(place))
    }

    /// The configuration of the repository in `place`, where neither it nor its copy can be read, from a key slot that
    /// `secret` opens: a [`repair`](Self::repair) writes it anew.
    ///
    /// # Errors
    /// [`Error::WrongPassword`]; [`Error::Damaged`] where a slot that opens is not this repository's.
    pub fn config_in_slots(place: impl IntoPlace, secret: &Secret) -> Result<RepositoryConfig> {
        lost_config::from_slots(&*objects_in(place), secret)
    }

    /// Whether the repository in `place` has key slots, which are made with encryption alone.
    ///
    /// # Errors
    /// [`Error::Io`]: the folder of slots cannot be listed.
    pub fn has_slots(place: impl IntoPlace) -> Result<bool> {
        Ok(!slots::listed(&*objects_in(place))?.is_empty())
    }

    /// Returns the configuration, which never changes after `init`.
    pub fn config(&self) -> &RepositoryConfig {
        &self.shared.config
    }

    /// The options it was opened with.
    pub fn options(&self) -> &OpenOptions {
        &self.shared.options
    }

    /// Returns the limits and preferences of the repository's place, such as requests at once.
    pub fn ways(&self) -> Ways {
        self.shared.place.ways
    }

    /// Returns the function that fingerprints chunks; it is cheap to copy into threads.
    pub fn fingerprinter(&self) -> Fingerprinter {
        self.shared.keys.fingerprinter()
    }

    /// Returns the function that digests whole files, if the repository has a secret key.
    pub fn digester(&self) -> Option<Digester> {
        self.shared.keys.digester()
    }

    /// A chunker of file contents.
    ///
    /// # Errors
    /// [`Error::Option`]: this version has no chunker of the repository's name and mean.
    pub fn chunker(&self) -> Result<Box<dyn Chunker>> {
        self.shared.config.chunker(self.shared.keys.chunker_key())
    }

    /// A chunker of file contents that goes by `rules` for types of files.
    ///
    /// # Errors
    /// The repository's chunker does not go by types.
    pub fn context_chunker(&self, rules: &Arc<Rules>) -> Result<Box<dyn Chunker>> {
        let config = &self.shared.config;
        if config.chunker != "context" {
            return Err(Error::Option(format!(
                "rules are for the chunker \"context\"; this repository's is \"{}\"",
                config.chunker
            )));
        }
        let (mean, key) = (config.chunk_bytes_mean as usize, &self.shared.keys);
        let chunker = Context::new(mean, key.chunker_key(), Arc::clone(rules));
        Ok(Box::new(chunker))
    }

    /// Begins a session: makes it visible, then sees what it may refer to, then tells the index what it missed.
    ///
    /// # Errors
    /// [`Error::Locked`] for a backup where the index has one opener, and that is another.
    pub fn session(&self, kind: SessionKind) -> Result<Session> {
        let shared = &self.shared;
        if matches!(kind, SessionKind::Backup | SessionKind::Pinned) {
            replica_mark::refuse(&*shared.objects)?;
        }
        let mut info = shared.options.pin.clone();
        if info.activity.is_empty() {
            info.activity = match kind {
                SessionKind::Backup => "a backup".into(),
                SessionKind::Read | SessionKind::Held | SessionKind::Pinned => "a reader".into(),
            };
        }
        let begun = match kind {
            SessionKind::Held => None,
            _ => Some(shared.place.registry.begin(&info, &[])),
        };
        let pin = match begun.transpose() {
            Ok(pin) => pin,
            // A read-only place can be read without a pin: nobody can sweep it, either, from here. So can one without
            // room even for an empty file. A dry run of a backup stores nothing there.
            Err(Error::Io(error))
                if (kind == SessionKind::Read || shared.options.dry_run)
                    && matches!(error.kind, ErrorKind::Denied | ErrorKind::NoSpace) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        if kind == SessionKind::Backup {
            // Before anything is stored that could then not be acknowledged.
            shared.require_folder(ROOT_FOLDER)?;
        }
        let mut protocol = Granted::new(protocol::ProtocolRules::default());
        protocol.begun();
        self.read_lists(kind, &mut protocol)?;
        if let Some(pin) = &pin {
            let read = protocol.read().as_slice().iter();
            let read: Vec<_> = read.filter_map(|list| list.registered()).collect();
            pin.saw(&read)?;
        }
        protocol.lists_told();
        let ingested = match kind {
            SessionKind::Backup if pin.is_some() => Some(shared.open_index()?),
            _ => None,
        };
        let listed = match kind {
            SessionKind::Backup => shared.containers()?,
            SessionKind::Read | SessionKind::Pinned => shared.containers_past(&mut warn_of_loss)?,
            // This kind of session refers to nothing anew.
            SessionKind::Held => Vec::new(),
        };
        let catching_up = ingested.map(|ingested| {
            let condemned = protocol.condemned();
            self.catch_up(&ingested, &listed, condemned)
        });
        let (hooked, unnamed) = catching_up.transpose()?.unwrap_or_default();
        protocol.containers_listed(listed.into());
        let is_without_index = kind == SessionKind::Backup && pin.is_none();
        let state = SessionState::new(Arc::clone(shared), protocol, pin);
        let state = state.with_catalog(hooked, unnamed);
        if is_without_index {
            state.imagine_stored()?;
        }
        Ok(Session::new(state))
    }

    /// Reads the lists of the condemned. Who only reads refers to nothing anew, and does without.
    fn read_lists(&self, kind: SessionKind, protocol: &mut Granted) -> Result<()> {
        let lists = match condemned::lists(&*self.shared.objects) {
            Err(error) if kind != SessionKind::Backup && error.is_unusable() => {
                tracing::warn!("{error}");
                Vec::new()
            }
            other => other?,
        };
        let names: Vec<_> = lists.iter().map(|(id, _)| *id).collect();
        protocol.lists_read(names.into(), condemned::containers(&lists).into());
        Ok(())
    }

    /// Returns the size of the fingerprint index: in RAM and on disk, in bytes. A closed index is opened for it; the
    /// RAM is `None` where that cannot be done: another process may have it, or the place may not be written.
    ///
    /// # Errors
    /// [`Error::Io`]: the index's folder cannot be listed.
    pub fn index_bytes(&self) -> Result<(Option<usize>, u64)> {
        let mut index = self.shared.index.write();
        let disk_bytes = index.disk_bytes()?;
        let is_there = index.is_open() || disk_bytes > 0 && index.is_persistent();
        if is_there && let Err(error) = index.open(&self.shared.options) {
            tracing::info!("{error}: how much RAM the index takes is not known");
            return Ok((None, disk_bytes));
        }
        Ok((Some(index.ram_bytes()), disk_bytes))
    }

    /// Why the index cannot be had, so that reading goes on without it; `None` where it can, or nobody has tried yet.
    pub fn index_out_of_reach(&self) -> Option<String> {
        self.shared.index.read().out_of_reach().map(str::to_owned)
    }

    /// From now on reads nothing from this machine's copies of what the store has: for callers that look whether it is
    /// still there, and whole.
    pub fn read_the_store_itself(&self) {
        self.shared.read_the_store_itself();
    }

    /// Throws the index away and tells a new one of every container that can be read.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub fn rebuild_index(&self) -> Result<()> {
        // A sweep waits for it: what is told last of a chunk is not to be what is just being deleted.
        let session = self.session(SessionKind::Pinned)?;
        let shared = &self.shared;
        // An index that others throw away meanwhile is begun anew.
        let mut is_new = false;
        shared.with_index(|index| {
            if std::mem::replace(&mut is_new, true) {
                Ok(())
            } else {
                shared.rebuild(index)
            }
        })?;
        session.finish()
    }

    /// Throws the index away; the next session for a backup tells a new one of all containers, those for reading do
    /// without.
    pub(crate) fn forget_index(&self) -> Result<()> {
        let shared = &self.shared;
        shared.index.write().forget(&shared.options)
    }
}

/// Makes sure that nothing is lost by making a repository in `place`, and that nobody else makes one meanwhile. Key
/// slots that are left there open nothing: without a configuration there was no repository yet.
fn begin(place: &Place) -> Result<Box<dyn Held>> {
    let objects = &*place.objects;
    // Before anything is made there.
    objects.left_over()?;
    let lock = place.registry.lock(Lock::Init)?;
    // Only what was judged goes: somebody may put a file there meanwhile. Durably: with a slot that came back, a
    // repository without encryption would be one whose configuration was changed.
    objects.delete_all(&objects.left_over()?)?;
    Ok(lock)
}

fn objects_in(place: impl IntoPlace) -> Arc<dyn ObjectStore> {
    place.into_place(&Entropy::system()).objects
}

/// Refuses a password for a repository that is not encrypted: its user expects that data is sealed by it.
fn refuse_secret(secret: Option<&Secret>) -> Result<()> {
    secret.map_or(Ok(()), |_| {
        let what = "a password is given, and the repository says that nothing is encrypted";
        Err(Error::Option(what.into()))
    })
}

/// Refuses key slots in a repository that says it was never encrypted: its configuration was changed, so that data
/// stored next would be in the clear.
fn refuse_slots(objects: &dyn ObjectStore) -> Result<()> {
    let slots = slots::listed(objects)?.len();
    if slots == 0 {
        return Ok(());
    }
    let what = format!(
        "it says that nothing is encrypted, and there are {slots} key slots: it is not the one that the repository was made with"
    );
    Err(Error::damaged(CONFIG_OBJECT, None, what))
}

/// Both; with several threads, where the system has one, the second meanwhile, which has much to wait for: the index
/// needs no password, and trying one takes as long as reading its files. The first's error is told if both fail.
fn side_by_side<A, B: Send>(
    threads: usize,
    first: impl FnOnce() -> Result<A>,
    second: impl FnOnce() -> Result<B> + Send,
) -> Result<(A, B)> {
    let second = Mutex::new(Some(second));
    let second = || second.lock().take().expect("it is called once")();
    std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, second);
        let Some(Ok(thread)) = (threads > 1).then(spawn) else {
            return Ok((first()?, second()?));
        };
        let first = first();
        let second = thread.join().expect("its own mistakes are ours");
        Ok((first?, second?))
    })
}
