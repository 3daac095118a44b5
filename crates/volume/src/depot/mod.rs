//! A depot: a folder, and a file or device for data, in which volumes share every chunk. One process owns it.
//!
//! ```text
//! config, config.copy   what never changes, framed
//! lock                  held by the owner
//! data                  chunks, unless a device was given
//! meta                  metadata of the backends `dtb` and `cbt`; what `inram` saved
//! manifest, map/, zones-*, relocations-*, index/        map, zones and hash index of the engine `log`
//! damaged               chunks of the engine `log` that are known to be damaged
//! openings              how often the depot was opened, where a device was given
//! unsaved               there while a depot is open of which a crash loses what was not saved
//! ```

pub mod backends;
mod changes;
mod check;
pub mod config;
mod create;
mod data;
mod delete;
mod dump;
mod heads;
mod hinting;
mod keys;
mod log;
pub mod metadata_device;
pub mod openings;
mod parameters;
mod unlock;

use std::sync::Arc;

use onefold_io::{
    Dir, Disk, ErrorKind, LockGuard, LockKind, if_there, remove_if_there, replace_file,
};

use onefold_keys::{Entropy, Secret};
use parking_lot::RwLock;

pub use self::changes::{Comparison, Piece};
pub use self::check::{CheckProgress, CheckReport, DamagedStretch};
use self::config::{Backend, Config, EngineKind, HEAD_BYTES};
pub use self::create::CreateOptions;
pub use self::data::{Access, OpenDevice, system_devices};
pub use self::dump::Structure;
pub use self::keys::DepotKeys;
pub use self::unlock::NewPassword;
use crate::front::{Front, FrontStats, Options};
use crate::log::Seals;
use crate::{
    BlockDevice, Collected, Effort, Engine, EngineStats, Error, FreeSpace, HeadId, Result,
};

const CONFIG: &str = "config";
const CONFIG_COPY: &str = "config.copy";
const TEMPORARY: &str = "config.new";
const LOCK: &str = "lock";
const UNSAVED: &str = "unsaved";

/// A volume or snapshot of a depot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Its number in the depot.
    pub id: HeadId,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it takes writes: a volume does, a snapshot does not.
    pub is_writable: bool,
    /// Time at which it was made, in seconds since 1970; 0 where nobody said.
    pub created: u64,
}

/// An open depot. Dropped without [`close`](Depot::close), it is as if the program had died.
pub struct Depot {
    folder: Arc<dyn Dir>,
    config: Box<Config>,
    front: Front,
    heads: RwLock<Vec<Head>>,
    devices: OpenDevice,
    lost_unsaved: bool,
    _data_claim: Option<Box<dyn LockGuard>>,
    _lock: Box<dyn LockGuard>,
}

impl Depot {
    /// Opens the depot in `folder`, alone.
    ///
    /// # Errors
    /// [`Error::NoDepot`]; [`Error::NoPassword`] and [`Error::WrongPassword`], before anything is written;
    /// [`Error::Held`]; [`Error::Damaged`]; [`Error::Unsupported`] where this program cannot use it:
    /// an engine that is not built yet, another depot's data device, one that was written with another copy of the
    /// folder.
    pub fn open(folder: Arc<dyn Dir>, options: OpenOptions) -> Result<Self> {
        let config = read_config(&*folder)?;
        let (password, entropy) = (options.password.as_ref(), &options.entropy);
        let (config, seals) = unlock::unlock(config, password, entropy)?;
        let lock = lock(&*folder)?;
        let data = data::open(&*folder, &options.devices, &config)?;
        if !config.data_path.is_empty() {
            let tag = options.entropy.try_bytes()?;
            openings::DATA.count(&*folder, &*data.disk, tag)?;
        }
        let lost_unsaved = if_there(folder.open(UNSAVED))?.is_some();
        let engine = open_engine(&folder, &config, data.disk, &options, seals)?;
        if is_saved_at_close(&config) && !lost_unsaved {
            folder.create(UNSAVED)?;
            folder.sync()?;
        }
        let heads = heads::known_heads(engine.heads(), &config);
        let front = Options {
            // A journal's copy of metadata makes the write to its place a duplicate, which costs a log next to nothing.
            infer: options.front.infer && config.engine != EngineKind::Log,
            ..options.front
        };
        Ok(Self {
            heads: RwLock::new(heads),
            devices: options.devices,
            front: Front::new(engine, config.chunk_bytes, config.hash_key, front),
            folder,
            config: Box::new(config),
            lost_unsaved,
            _data_claim: data.claim,
            _lock: lock,
        })
    }

    /// Returns the properties that never change.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the depot was open when its process or the machine died, and holds what was saved before that alone.
    pub fn lost_unsaved(&self) -> bool {
        self.lost_unsaved
    }

    /// A head as a block device; `None` where there is no such head. All devices share one front.
    pub fn device(&self, head: HeadId) -> Option<Arc<dyn BlockDevice>> {
        let heads = self.heads();
        let head = heads.iter().find(|found| found.id == head)?;
        Some(
            self.front
                .device(head.id, &head.name, head.bytes, head.is_writable),
        )
    }

    /// Everything that was answered before survives a crash, as far as the engine goes.
    ///
    /// # Errors
    /// The devices have failed.
    pub fn commit(&self) -> Result<()> {
        self.front.commit()
    }

    /// Saves what is in RAM alone (backend `inram`), or makes a checkpoint.
    ///
    /// # Errors
    /// The devices have failed.
    pub fn save(&self) -> Result<()> {
        self.front.checkpoint()
    }

    /// Makes the next opening short, where that costs only what changed. A process that has a depot open does it now and
    /// then.
    ///
    /// # Errors
    /// The devices have failed.
    pub fn settle(&self) -> Result<()> {
        match self.config.engine {
            EngineKind::Log => self.front.checkpoint(),
            EngineKind::Dmdedup(_) => Ok(()),
        }
    }

    /// Collects garbage now.
    ///
    /// # Errors
    /// A device failed.
    pub fn collect(&self, effort: Effort) -> Result<Collected> {
        self.front.collect(effort)
    }

    /// Pages of the data device, as the engine told last. Waits for nobody.
    pub fn space(&self) -> FreeSpace {
        self.front.space()
    }

    /// Counters of front and engine, and the pages of the data device.
    ///
    /// # Errors
    /// The depot is closed.
    pub fn stats(&self) -> Result<DepotStats> {
        let (engine, space) = self.front.engine_stats()?;
        Ok(DepotStats {
            front: self.front.stats(),
            engine,
            space,
            chunk_bytes: self.config.chunk_bytes,
        })
    }

    /// One piece of work: for simulations ([`Options::inline`]).
    pub fn step(&self) -> bool {
        self.front.step()
    }

    /// Writes what is staged, saves, and ends.
    ///
    /// # Errors
    /// The devices have failed: what was acknowledged and not flushed may be lost.
    pub fn close(self) -> Result<()> {
        self.front.close()?;
        remove_if_there(&*self.folder, UNSAVED)?;
        Ok(self.folder.sync()?)
    }
}

/// How a depot is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// How its front works.
    pub front: Options,
    /// RAM of hash index, map and caches of the engine `log`, in bytes; `None`: a byte for each 4 KiB of the data device,
    /// and 64 MiB at least. With `dtb` and `cbt` the cache; `None`: as the depot was made.
    pub ram_bytes: Option<u64>,
    /// The password of an encrypted depot.
    pub password: Option<Secret>,
    /// Where salts and tags of openings come from.
    pub entropy: Entropy,
    /// How devices are opened.
    pub devices: OpenDevice,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            front: Options::default(),
            ram_bytes: None,
            password: None,
            entropy: Entropy::system(),
            devices: system_devices(),
        }
    }
}

/// Counters of a depot, and sizes of what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DepotStats {
    /// The front's counters.
    pub front: FrontStats,
    /// The engine's counters.
    pub engine: EngineStats,
    /// Pages of the data device.
    pub space: FreeSpace,
    /// Bytes of a chunk, in which pages are counted.
    pub chunk_bytes: u32,
}

fn lock(folder: &dyn Dir) -> Result<Box<dyn LockGuard>> {
    let held = folder.lock(LOCK, LockKind::Exclusive)?;
    held.ok_or_else(|| Error::Held {
        place: "the depot".into(),
    })
}

/// Replaces the configuration and its copy.
///
/// # Errors
/// The folder failed.
fn write_config(folder: &dyn Dir, encoded: &[u8]) -> Result<()> {
    // The copy first: `config` counts where it is there.
    replace_file(folder, TEMPORARY, CONFIG_COPY, encoded)?;
    Ok(replace_file(folder, TEMPORARY, CONFIG, encoded)?)
}

fn read_config(folder: &dyn Dir) -> Result<Config> {
    let mut damage = None;
    for name in [CONFIG, CONFIG_COPY] {
        let disk = match folder.open(name) {
            Ok(disk) => disk,
            Err(error) if error.kind == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; disk.len()?.min(HEAD_BYTES) as usize];
        disk.read_at(&mut bytes, 0)?;
        match Config::decode(&bytes, name) {
            Err(error @ Error::Damaged { .. }) => damage = Some(error),
            other => return other,
        }
    }
    Err(damage.unwrap_or_else(|| Error::NoDepot {
        place: "the folder".into(),
    }))
}

/// A file of the folder that is not there is damage of the depot.
fn missing_is_damage(error: Error) -> Error {
    match error {
        Error::Io(error) if error.kind == ErrorKind::NotFound => Error::Damaged {
            place: error.path.clone(),
            what: "it is missing".into(),
        },
        error => error,
    }
}

fn is_saved_at_close(config: &Config) -> bool {
    config.engine == EngineKind::Dmdedup(Backend::InRam)
}

fn open_engine(
    folder: &Arc<dyn Dir>,
    config: &Config,
    disk: Arc<dyn Disk>,
    options: &OpenOptions,
    seals: Seals,
) -> Result<Box<dyn Engine>> {
    let (is_inline, ram_bytes) = (options.front.inline, options.ram_bytes);
    match config.engine {
        EngineKind::Log => log::open(folder, config, disk, &options.front, ram_bytes, seals)
            .map_err(missing_is_damage),
        EngineKind::Dmdedup(backend) => {
            let devices = &options.devices;
            let tag = options.entropy.try_bytes()?;
            let metadata = backends::metadata(&**folder, devices, config, tag)?;
            backends::open(
                folder,
                config,
                (backend, metadata),
                disk,
                is_inline,
                ram_bytes,
            )
        }
    }
}
