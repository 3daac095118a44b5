//! Creation of a depot. Everything is checked before anything of a device is written, and a creation that fails later
//! leaves its devices as they were.

use std::sync::Arc;

use onefold_io::{Dir, if_there};
use onefold_keys::Entropy;

use super::config::{Backend, Config, EngineKind, HEAD_BYTES};
use super::data::{self, BytesBefore, OpenDevice, system_devices};
use super::parameters::Parameters;
use super::unlock::{self, NewPassword};
use super::{CONFIG, CONFIG_COPY, Depot, backends, lock, log, read_config, write_config};
use crate::{Compression, Error, Result};

/// Options of a new depot.
#[derive(Clone)]
pub struct CreateOptions {
    /// Engine behind the front.
    pub engine: EngineKind,
    /// Parameters of its backend.
    pub parameters: Parameters,
    /// How new chunks are packed: by the engine `log`, and where chunks have 4 KiB.
    pub compression: Compression,
    /// Bytes of a chunk: a power of two, 512 to 65,536.
    pub chunk_bytes: u32,
    /// Name of the volume.
    pub volume: String,
    /// Its size in bytes; rounded up to whole chunks.
    pub volume_bytes: u64,
    /// Bytes of chunks that are stored at most; rounded up to whole chunks. `None`: what a device has room for; of a
    /// file 6 % more than the volume.
    pub capacity_bytes: Option<u64>,
    /// Path of a data device; `None` makes a file in the folder.
    pub data_path: Option<String>,
    /// Path of a metadata device, of the backends `dtb` and `cbt`; `None` makes a file in the folder.
    pub metadata_path: Option<String>,
    /// Use a device of which the first or last MiB is not all zeros.
    pub overwrite: bool,
    /// RAM of the engine `log` in bytes, as in [`OpenOptions`](super::OpenOptions): too little is refused.
    pub ram_bytes: Option<u64>,
    /// The password of a depot in which everything is sealed: of the engine `log` alone. `None`: nothing is.
    pub encryption: Option<NewPassword>,
    /// Where keys and salts come from.
    pub entropy: Entropy,
    /// The depot's name: random.
    pub depot: [u8; 16],
    /// Key of the fingerprints: random, and secret.
    pub hash_key: [u8; 32],
    /// How devices are opened.
    pub devices: OpenDevice,
}

impl CreateOptions {
    /// A volume named `main` of so many bytes, in chunks of 4 KiB; `depot` and `hash_key` are random.
    pub fn new(volume_bytes: u64, depot: [u8; 16], hash_key: [u8; 32]) -> Self {
        Self {
            engine: EngineKind::Dmdedup(Backend::InRam),
            parameters: Parameters::default(),
            compression: Compression::None,
            chunk_bytes: 4096,
            volume: "main".into(),
            volume_bytes,
            capacity_bytes: None,
            data_path: None,
            metadata_path: None,
            overwrite: false,
            ram_bytes: None,
            encryption: None,
            entropy: Entropy::system(),
            depot,
            hash_key,
            devices: system_devices(),
        }
    }

    /// Rounds bytes up to whole chunks.
    fn whole(&self, bytes: u64) -> u64 {
        let chunk = u64::from(self.chunk_bytes).max(1);
        bytes.checked_next_multiple_of(chunk).unwrap_or(u64::MAX)
    }

    /// Bytes of chunks that were asked for, or that a file in the folder gets; `None`: all that a device has.
    fn capacity_wanted(&self) -> Option<u64> {
        let volume_bytes = self.whole(self.volume_bytes);
        let roomy = || match self.engine {
            EngineKind::Log => log::roomy(volume_bytes),
            EngineKind::Dmdedup(_) => volume_bytes.saturating_add(volume_bytes / 100 * 6),
        };
        let is_file = self.data_path.is_none();
        let wanted = self.capacity_bytes.or_else(|| is_file.then(roomy));
        wanted.map(|bytes| self.whole(bytes))
    }

    /// The configuration, as far as it is known before the data device is open.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no depot can be so.
    fn config(&self) -> Result<Config> {
        let config = Config {
            depot: self.depot,
            engine: self.engine,
            parameters: self.parameters,
            compression: self.compression,
            chunk_bytes: self.chunk_bytes,
            hash_key: self.hash_key,
            slots: Vec::new(),
            volume: self.volume.clone(),
            volume_bytes: self.whole(self.volume_bytes),
            capacity_bytes: self
                .capacity_wanted()
                .unwrap_or(u64::from(self.chunk_bytes)),
            zone_bytes: 0,
            data_path: self.data_path.clone().unwrap_or_default(),
            metadata_path: self.metadata_path.clone().unwrap_or_default(),
        };
        config.check()?;
        if self.encryption.is_some() && config.engine != EngineKind::Log {
            return Err(Error::Invalid {
                what: format!(
                    "the backend {} cannot be encrypted: use log, or a disk that is encrypted below the depot",
                    config.engine.name()
                ),
            });
        }
        Ok(config)
    }
}

impl Depot {
    /// Makes a depot in `folder`, which holds none.
    ///
    /// # Errors
    /// [`Error::Exists`] where one is there, or the data device holds something; [`Error::Held`] where another has it;
    /// [`Error::Invalid`]; [`Error::Unsupported`] for an engine that is not built yet; a device failed.
    pub fn create(folder: &Arc<dyn Dir>, options: &CreateOptions) -> Result<Config> {
        let _lock = lock(&**folder)?;
        if if_there(folder.open(CONFIG))?.is_some() || if_there(folder.open(CONFIG_COPY))?.is_some()
        {
            return Err(Error::Exists {
                place: "the folder".into(),
                what: "it holds a depot already".into(),
            });
        }
        let mut config = options.config()?;
        let data = data::create(
            &**folder,
            &options.devices,
            &config.data_path,
            options.capacity_wanted(),
            options.overwrite,
        )?;
        let chunk = u64::from(config.chunk_bytes);
        config.capacity_bytes = data.capacity_bytes / chunk * chunk;
        if config.engine == EngineKind::Log {
            config.zone_bytes = log::zone_bytes(&config)?;
        }
        let (new, entropy) = (options.encryption.as_ref(), &options.entropy);
        let (config, seals) = unlock::lock_up(config, new, entropy)?;
        config.check()?;
        if config.engine == EngineKind::Log {
            log::confirm(&config, options.ram_bytes)?;
        }
        let metadata = backends::confirm_metadata(&config, &options.devices, options.overwrite)?;
        let before = BytesBefore::read(&data.disk, HEAD_BYTES)?;
        // Whatever can be refused was, before anything of a device is written.
        let write_all = || {
            let disk = Arc::clone(&data.disk);
            data::write_head(&*disk, &config)?;
            match config.engine {
                EngineKind::Log => log::create(folder, &config, disk, options.ram_bytes, seals)?,
                EngineKind::Dmdedup(backend) => {
                    backends::create(&**folder, &config, backend, metadata.as_ref())?;
                }
            }
            write_config(&**folder, &config.encode())
        };
        let written: Result<()> = write_all();
        if written.is_err() && matches!(read_config(&**folder), Err(Error::NoDepot { .. })) {
            before.put_back();
            if let Some(metadata) = &metadata {
                metadata.put_back();
            }
        }
        written.map(|()| config)
    }
}
