//! A repository: made, opened, and what it is asked for first.

use std::sync::Arc;

use onefold_chunk::Chunker;
use onefold_chunk::context::{Context, Rules};
use onefold_index::{ChunkIndex, ContainerId};
use onefold_io::{Dir, ErrorKind, MemDir};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::compression::Compression;
use crate::config::{
    self, CHUNK_BYTES_MEAN_DEFAULT, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, Config, Encryption,
};
use crate::container;
use crate::entropy::Entropy;
use crate::index::{self, RepositoryIndex};
use crate::ingested::Ingested;
use crate::keys::{Fingerprinter, Keys, Secret};
use crate::objects::{LocalObjects, ObjectStore};
use crate::opened::Opened;
use crate::pin::{Pin, PinInfo};
use crate::session::{Session, SessionKind, SessionState, insert_table};
use crate::slots::{KdfCost, SLOT_FOLDER, Slot};
use crate::{Error, Result, condemned};

/// The folder of the fingerprint index.
pub const INDEX_FOLDER: &str = "index";

/// What a new repository is made with.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The chunker of file contents, by name.
    pub chunker: String,
    /// Its mean, in bytes.
    pub chunk_bytes_mean: u32,
    /// What is sealed.
    pub encryption: Encryption,
    /// The fingerprint index: `ram`, or one of [`IndexName`](onefold_index::IndexName)'s names.
    pub index: String,
    /// The cost of the first key slot.
    pub kdf_cost: KdfCost,
    /// Whom the first key slot belongs to.
    pub label: String,
    /// Seconds since 1970.
    pub now_unix_s: u64,
    /// Names, salts, the master key.
    pub entropy: Entropy,
}

impl InitOptions {
    /// The defaults: sieve, AES-256-GCM, strata.
    pub fn new(label: impl Into<String>, now_unix_s: u64) -> Self {
        Self {
            chunker: "sieve".into(),
            chunk_bytes_mean: CHUNK_BYTES_MEAN_DEFAULT,
            encryption: Encryption::Aes256Gcm,
            index: "strata".into(),
            kdf_cost: KdfCost::default(),
            label: label.into(),
            now_unix_s,
            entropy: Entropy::system(),
        }
    }
}

/// How an opened repository works; nothing of it is stored.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// RAM for the index, in bytes.
    pub index_ram_bytes: usize,
    /// Threads that compress. One makes everything run inline and in a fixed order.
    pub threads: usize,
    /// How hard new blocks are compressed.
    pub compression: Compression,
    /// Where a container is closed, in stored bytes.
    pub container_bytes: usize,
    /// Raw bytes a block, where the compression's own choice is not wanted.
    pub block_bytes: Option<usize>,
    /// What sessions say of themselves.
    pub pin: PinInfo,
    /// Names and salts.
    pub entropy: Entropy,
    /// Chunks are looked up, compressed and counted, but no container is stored. Costs some 20 bytes of RAM for each
    /// new chunk, at most 28 MiB; beyond [`DRY_RUN_EXACT_CHUNKS`](crate::DRY_RUN_EXACT_CHUNKS) new ones the counts are approximate.
    pub dry_run: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            index_ram_bytes: 32 << 20,
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            compression: Compression::default(),
            container_bytes: 16 << 20,
            block_bytes: None,
            pin: PinInfo::default(),
            entropy: Entropy::system(),
            dry_run: false,
        }
    }
}

/// What all sessions, readers and writers of an opened repository share.
pub struct Shared {
    pub(crate) root: Arc<dyn Dir>,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) options: OpenOptions,
    pub(crate) index: Mutex<RepositoryIndex>,
    pub(crate) index_dir: Arc<dyn Dir>,
    /// Why its folder cannot be had, in words. Then an empty one in RAM stands in for it, which is enough for whoever reads.
    index_denied: Option<String>,
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
    fn index_is_kept(&self) -> Result<()> {
        let denied = |what: &String| {
            onefold_io::Error::new("open folder", INDEX_FOLDER, ErrorKind::Denied, what).into()
        };
        self.index_denied
            .as_ref()
            .map_or(Ok(()), |what| Err(denied(what)))
    }

    /// Throws the index away and tells a new one of every container that can be read. What others finish meanwhile, they tell it themselves.
    fn rebuild(&self, index: &mut RepositoryIndex) -> Result<()> {
        self.index_is_kept()?;
        index.forget(&self.options)?;
        let told = self.tell(&mut **index, &self.containers()?)?;
        index.checkpoint()?;
        Ingested::new(Arc::clone(&self.index_dir)).add(&told)
    }

    /// Tells the index of containers, and returns those that could be read.
    fn tell(&self, index: &mut dyn ChunkIndex, ids: &[ContainerId]) -> Result<Vec<ContainerId>> {
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

/// An opened repository.
pub struct Repository {
    pub(crate) shared: Arc<Shared>,
    pub(crate) unlocked: Option<Unlocked>,
}

impl Repository {
    /// Makes a repository in `root`, which must be empty.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; [`Error::Option`] for a missing password or an unknown name.
    pub fn init(root: Arc<dyn Dir>, options: &InitOptions, secret: Option<&Secret>) -> Result<()> {
        if let Some(entry) = root.list()?.first() {
            return Err(Error::NotEmpty {
                what: format!("the folder holds \"{}\"", entry.name),
            });
        }
        let config = Config {
            repository: options.entropy.bytes(),
            encryption: options.encryption,
            chunker: options.chunker.clone(),
            chunk_bytes_mean: options.chunk_bytes_mean,
            index: options.index.clone(),
        };
        config.check_chunker()?;
        index::check_name(&config.index)?;
        let objects = LocalObjects::new(Arc::clone(&root), options.entropy.clone());
        if options.encryption != Encryption::None {
            let secret = secret
                .ok_or_else(|| Error::Option("an encrypted repository needs a password".into()))?;
            let master = Zeroizing::new(options.entropy.bytes());
            let slot = Slot::wrap(
                &master,
                &config,
                secret,
                options.kdf_cost,
                &options.label,
                options.now_unix_s,
                &options.entropy,
            )?;
            objects.put_if_absent(&slot_object(&options.entropy), &[&slot.encode()])?;
        }
        for folder in ["containers", "snapshots", "sessions", "locks", INDEX_FOLDER] {
            root.subdir(folder)?;
        }
        root.sync()?;
        // A folder with a configuration is a repository; the copy may be missing.
        let config = config::encode_twice(CONFIG, &config.encode());
        objects.put_if_absent(CONFIG_OBJECT, &[&config])?;
        objects.put_if_absent(CONFIG_COPY_OBJECT, &[&config])
    }

    /// Opens the repository in `root`.
    ///
    /// # Errors
    /// [`Error::NoRepository`], [`Error::WrongPassword`], [`Error::Damaged`].
    pub fn open(root: Arc<dyn Dir>, options: OpenOptions, secret: Option<&Secret>) -> Result<Self> {
        let objects: Arc<dyn ObjectStore> = Arc::new(LocalObjects::new(
            Arc::clone(&root),
            options.entropy.clone(),
        ));
        let config = read_config(&*objects)?;
        let (keys, unlocked) = match config.encryption {
            Encryption::None => (Keys::none(), None),
            Encryption::Aes256Gcm => {
                let secret = secret.ok_or_else(|| {
                    Error::Option("the repository is encrypted: a password is needed".into())
                })?;
                let unlocked = unlock(&*objects, &config, secret)?;
                (Keys::from_master(&unlocked.master), Some(unlocked))
            }
        };
        let (index_dir, index_denied) = index_folder(&*root)?;
        let index = RepositoryIndex::new(&config.index, &index_dir, &options)?;
        let shared = Shared {
            root,
            objects,
            config,
            keys,
            options,
            index: Mutex::new(index),
            index_dir,
            index_denied,
        };
        Ok(Self {
            shared: Arc::new(shared),
            unlocked,
        })
    }

    /// The configuration of the repository in `root`, unopened: whether it is one, and whether a password is needed.
    ///
    /// # Errors
    /// [`Error::NoRepository`], [`Error::Damaged`].
    pub fn config_at(root: &Arc<dyn Dir>) -> Result<Config> {
        read_config(&LocalObjects::new(Arc::clone(root), Entropy::system()))
    }

    /// What never changes after `init`.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The options it was opened with.
    pub fn options(&self) -> &OpenOptions {
        &self.shared.options
    }

    /// What fingerprints chunks; cheap to copy into threads.
    pub fn fingerprinter(&self) -> Fingerprinter {
        self.shared.keys.fingerprinter()
    }

    /// A chunker of file contents.
    pub fn chunker(&self) -> Result<Box<dyn Chunker>> {
        self.shared.config.chunker(self.shared.keys.chunker_key())
    }

    /// The same with rules for types of files.
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

    /// The chunker of the metadata stream.
    pub fn metadata_chunker(&self) -> Result<Box<dyn Chunker>> {
        self.shared
            .config
            .metadata_chunker(self.shared.keys.chunker_key())
    }

    /// Begins a session: makes it visible, then sees what it may refer to, then tells the index what it missed.
    ///
    /// # Errors
    /// [`Error::Locked`] for a backup where the index has one opener, and that is another.
    pub fn session(&self, kind: SessionKind) -> Result<Session> {
        let shared = &self.shared;
        let mut info = shared.options.pin.clone();
        if info.activity.is_empty() {
            info.activity = match kind {
                SessionKind::Backup => "a backup".into(),
                SessionKind::Read => "a reader".into(),
            };
        }
        let pin = match Pin::set(&*shared.root, &info, &shared.options.entropy) {
            Ok(pin) => Some(pin),
            // A read-only place can be read without a pin: nobody can sweep it, either, from here.
            Err(Error::Io(error))
                if kind == SessionKind::Read && error.kind == ErrorKind::Denied =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let condemned = match condemned::read(&*shared.objects) {
            // Who only reads refers to nothing anew.
            Err(error) if kind == SessionKind::Read && error.is_loss() => {
                tracing::warn!("{error}");
                Vec::new()
            }
            other => other?,
        };
        let mut ingested = None;
        if kind == SessionKind::Backup {
            shared.index_is_kept()?;
            // One that begins anew has forgotten what is listed as ingested, and the list with it.
            shared.index.lock().open(&shared.options)?;
            ingested = Some(Ingested::new(Arc::clone(&shared.index_dir)).read()?);
        }
        let mut live = shared.containers()?;
        if let Some(ingested) = ingested {
            self.catch_up(&ingested, &live)?;
        }
        live.retain(|id| condemned.binary_search(id).is_err());
        Ok(Session::new(SessionState::new(
            Arc::clone(shared),
            live,
            condemned,
            pin,
        )))
    }

    /// Tells the index of containers that it missed, and of those that vanished. `ingested` was read before `listed`: a container that others
    /// finish meanwhile is on neither list, or on the second only.
    fn catch_up(&self, ingested: &[ContainerId], listed: &[ContainerId]) -> Result<()> {
        let shared = &self.shared;
        let gone: Vec<_> = ingested
            .iter()
            .copied()
            .filter(|id| listed.binary_search(id).is_err())
            .collect();
        let missed: Vec<_> = listed
            .iter()
            .copied()
            .filter(|id| ingested.binary_search(id).is_err())
            .collect();
        if gone.is_empty() && missed.is_empty() {
            return Ok(());
        }
        let told = shared.with_index(|index| {
            if !gone.is_empty() {
                index.retire(&gone)?;
            }
            let told = shared.tell(index, &missed)?;
            index.checkpoint()?;
            Ok(told)
        })?;
        let list = Ingested::new(Arc::clone(&shared.index_dir));
        if !gone.is_empty() {
            list.remove(&gone)?;
        }
        list.add(&told)
    }

    /// What the fingerprint index takes: RAM now, and on disk, in bytes.
    pub fn index_bytes(&self) -> Result<(usize, u64)> {
        let ram = self.shared.index.lock().ram_bytes();
        Ok((ram, index::folder_bytes(&*self.shared.index_dir)?))
    }

    /// Throws the index away and tells a new one of every container that can be read.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub fn rebuild_index(&self) -> Result<()> {
        self.shared.rebuild(&mut self.shared.index.lock())
    }

    /// Throws the index away; the next session for a backup tells a new one of all containers.
    pub(crate) fn forget_index(&self) -> Result<()> {
        let shared = &self.shared;
        shared.index_is_kept()?;
        shared.index.lock().forget(&shared.options)
    }
}

/// The index's folder; in a repository that may only be read, and where it is missing or closed to the reader, an empty one in RAM, and why.
fn index_folder(root: &dyn Dir) -> Result<(Arc<dyn Dir>, Option<String>)> {
    match root.subdir(INDEX_FOLDER) {
        Ok(dir) => Ok((dir, None)),
        Err(error) if error.kind == ErrorKind::Denied => {
            tracing::info!("{error}: the repository is read without its index");
            Ok((Arc::new(MemDir::new()), Some(error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn slot_object(entropy: &Entropy) -> String {
    format!("{SLOT_FOLDER}/{:016x}", entropy.u64())
}

/// The configuration, from whichever of its copies can be read.
fn read_config(objects: &dyn ObjectStore) -> Result<Config> {
    let first = read_config_object(objects, CONFIG_OBJECT);
    match first {
        Ok(config) => Ok(config),
        Err(error) if error.is_loss() => match read_config_object(objects, CONFIG_COPY_OBJECT) {
            Ok(config) => {
                tracing::warn!("{error}: its copy is used; `onefold repair` restores it");
                Ok(config)
            }
            Err(_) => match error {
                Error::Io(error) if error.kind == ErrorKind::NotFound => Err(Error::NoRepository {
                    what: error.to_string(),
                }),
                other => Err(other),
            },
        },
        Err(error) => Err(error),
    }
}

fn read_config_object(objects: &dyn ObjectStore, name: &str) -> Result<Config> {
    let bytes = objects.get(name)?;
    Config::decode(config::decode_twice(CONFIG, &bytes, name)?.payload)
}

/// What a password opened.
pub(crate) struct Unlocked {
    pub(crate) master: Zeroizing<[u8; 32]>,
    /// The name of the slot that it opened.
    pub(crate) slot: String,
}

/// Tries every slot. The configuration that is sealed in the slot must be the one in the clear.
pub(crate) fn unlock(
    objects: &dyn ObjectStore,
    config: &Config,
    secret: &Secret,
) -> Result<Unlocked> {
    let names = objects.list(SLOT_FOLDER)?;
    let mut damage = None;
    for (name, _) in &names {
        let slot = match objects
            .get(name)
            .and_then(|bytes| Slot::decode(&bytes, name))
        {
            Ok((slot, _)) => slot,
            Err(error) => {
                tracing::warn!("{error}");
                damage = Some(error);
                continue;
            }
        };
        if let Some((master, sealed)) = slot.unwrap(secret)? {
            if sealed != *config {
                return Err(Error::damaged(
                    CONFIG_OBJECT,
                    None,
                    "it differs from the copy sealed in the key slot",
                ));
            }
            let slot = name[SLOT_FOLDER.len() + 1..].to_string();
            return Ok(Unlocked { master, slot });
        }
    }
    match damage {
        Some(error) => Err(error),
        None if names.is_empty() => Err(Error::damaged(SLOT_FOLDER, None, "no key slot is left")),
        None => Err(Error::WrongPassword { slots: names.len() }),
    }
}
