//! Metadata backends of the engine `dmdedup`: their parameters, as users write them, and how they are made and opened.

use std::sync::Arc;

use onefold_chunk::knobs::{Knob, Knobs, Values, split};
use onefold_io::{Dir, Disk};

use super::config::{Backend, Config, EngineKind, HEAD_BYTES};
use super::metadata_device::{self, NewMetadata};
use super::parameters::{CACHE_BYTES_MAX, CACHE_BYTES_MIN, TRANSACTION_WRITES_MAX};
use super::{OpenDevice, is_saved_at_close};
use crate::cbt::{Cbt, CbtOptions};
use crate::dmdedup::{DataArea, Dmdedup, HASH_KEY_BYTES};
use crate::dtb::Dtb;
use crate::dump::Dump;
use crate::inram::{InRam, SaveAt};
use crate::{Engine, Error, MetadataBackend, Result};

pub use super::parameters::Parameters;

/// Threads that write data: the device has the next write when one ends.
const WRITERS: usize = 2;
const CACHE: Knob = Knob {
    key: "cache",
    values: Values::Bytes(CACHE_BYTES_MIN, CACHE_BYTES_MAX),
    default: "64M",
    about: "bytes of metadata pages in RAM (report §3.6.2)",
};
const TRANSACTION: Knob = Knob {
    key: "transaction",
    values: Values::Whole(0, TRANSACTION_WRITES_MAX),
    default: "1000",
    about: "writes after which metadata is committed, besides at each flush; 0: at flushes alone (report §3.6.3)",
};

/// The parameters that a backend has.
pub fn knobs_of(backend: &str) -> &'static [Knob] {
    match backend {
        "dtb" => &[CACHE],
        "cbt" => &[CACHE, TRANSACTION],
        _ => &[],
    }
}

/// A backend and its parameters, from `NAME` or `NAME:key=value,…`.
///
/// # Errors
/// [`Error::Invalid`] with the names, keys and values that there are.
pub fn parse(text: &str) -> Result<(EngineKind, Parameters)> {
    let (name, rest) = split(text);
    let kind = EngineKind::by_name(name)?;
    let knobs = Knobs::parse(name, rest, knobs_of(name));
    let knobs = knobs.map_err(|error| Error::Invalid {
        what: error.to_string(),
    })?;
    let default = Parameters::default();
    let whole = |key: &str, default| knobs.whole(key).unwrap_or(default);
    Ok((
        kind,
        Parameters {
            cache_bytes: whole(CACHE.key, default.cache_bytes),
            transaction_writes: whole(TRANSACTION.key, default.transaction_writes),
        },
    ))
}

/// Looks whether the metadata device can be taken, where there is to be one. Nothing is written.
///
/// # Errors
/// Those of a metadata device.
pub(super) fn confirm_metadata(
    config: &Config,
    devices: &OpenDevice,
    overwrite: bool,
) -> Result<Option<NewMetadata>> {
    if config.metadata_path.is_empty() {
        Ok(None)
    } else {
        metadata_device::confirm(devices, config, overwrite).map(Some)
    }
}

/// Makes the backend's files, or takes the metadata device.
///
/// # Errors
/// The folder's device failed, or has no room; those of a metadata device.
pub(super) fn create(
    folder: &dyn Dir,
    config: &Config,
    backend: Backend,
    metadata: Option<&NewMetadata>,
) -> Result<()> {
    let blocks = config.blocks();
    match (backend, metadata) {
        (Backend::InRam | Backend::InRamSaved, _) => InRam::create_file(folder, blocks),
        (Backend::Dtb, None) => Dtb::create(folder, blocks),
        (Backend::Cbt, None) => Cbt::create(folder, blocks),
        (Backend::Dtb, Some(device)) => create_tables(&device.take(config)?, config),
        (Backend::Cbt, Some(device)) => Cbt::create_on(&*device.take(config)?, blocks),
    }
}

/// Lays out all tables at once: there is room for them now.
fn create_tables(device: &Arc<dyn Disk>, config: &Config) -> Result<()> {
    Dtb::create_on(&**device, config.blocks())?;
    let mut dtb = Dtb::open_on(Arc::clone(device), config.blocks(), CACHE_BYTES_MIN)?;
    dtb.create_linear(config.lbns())?;
    dtb.create_sparse(HASH_KEY_BYTES, config.blocks())?;
    Box::new(dtb).close()
}

/// The metadata device of a depot that has one, for its owner alone.
///
/// # Errors
/// Those of a metadata device.
pub(super) fn metadata(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
    opening_tag: [u8; 8],
) -> Result<Option<Arc<dyn Disk>>> {
    if config.metadata_path.is_empty() {
        Ok(None)
    } else {
        metadata_device::open(folder, devices, config, opening_tag).map(Some)
    }
}

/// The beginning of the backend's metadata.
///
/// # Errors
/// The metadata is damaged, or its device failed.
pub(super) fn dump(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
    backend: Backend,
) -> Result<Dump> {
    let device = || metadata_device::look(devices, config);
    match (backend, config.metadata_path.is_empty()) {
        (Backend::InRam | Backend::InRamSaved, _) => {
            crate::inram::dump::dump(folder, config.blocks())
        }
        (Backend::Dtb, true) => crate::dtb::dump::dump(folder),
        (Backend::Cbt, true) => crate::cbt::dump::dump(folder),
        (Backend::Dtb, false) => crate::dtb::dump::dump_disk(&*device()?),
        (Backend::Cbt, false) => crate::cbt::dump::dump_disk(&*device()?),
    }
}

/// Opens the engine over the backend, with its metadata device where it has one; `ram_bytes` is the cache that is wanted
/// this time.
///
/// # Errors
/// The depot is damaged, or a device failed.
pub(super) fn open(
    folder: &Arc<dyn Dir>,
    config: &Config,
    (backend, device): (Backend, Option<Arc<dyn Disk>>),
    disk: Arc<dyn Disk>,
    is_inline: bool,
    ram_bytes: Option<u64>,
) -> Result<Box<dyn Engine>> {
    let mut data = DataArea::new(disk, HEAD_BYTES, config.chunk_bytes, config.blocks());
    if config.data_path.is_empty() {
        data = data.keeping_room();
    }
    let blocks = config.blocks();
    let cache_bytes = ram_bytes.unwrap_or(config.parameters.cache_bytes);
    let (metadata, transaction): (Box<dyn MetadataBackend>, u64) = match backend {
        Backend::InRam | Backend::InRamSaved => {
            let save_at = if is_saved_at_close(config) {
                SaveAt::Close
            } else {
                SaveAt::Flush
            };
            InRam::require_file(&**folder)?;
            let inram = InRam::open(Arc::clone(folder), blocks, save_at)?;
            (Box::new(inram), 0)
        }
        Backend::Dtb => {
            let dtb = match device {
                None => Dtb::open(&**folder, blocks, cache_bytes),
                Some(device) => Dtb::open_on(device, blocks, cache_bytes),
            };
            (Box::new(dtb?), 0)
        }
        Backend::Cbt => {
            let options = CbtOptions::new(cache_bytes);
            let cbt = match device {
                None => Cbt::open(&**folder, blocks, options),
                Some(device) => Cbt::open_on(device, blocks, options),
            };
            (Box::new(cbt?), config.parameters.transaction_writes)
        }
    };
    let engine = Dmdedup::open(metadata, data, config.lbns())?.committing_every(transaction);
    Ok(if is_inline {
        Box::new(engine)
    } else {
        Box::new(engine.write_behind(WRITERS))
    })
}
