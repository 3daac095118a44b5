//! Metadata backends of the engine `dmdedup`: their parameters, as users write them, and how they are made and opened.

use std::sync::Arc;

use onefold_chunk::knobs::{Knob, Knobs, Values, split};
use onefold_io::{Dir, Disk};

use super::config::{Backend, Config, EngineKind, HEAD_BYTES};
use super::is_saved_at_close;
use super::parameters::{CACHE_BYTES_MAX, CACHE_BYTES_MIN, TRANSACTION_WRITES_MAX};
use crate::cbt::{Cbt, CbtOptions};
use crate::dmdedup::{DataArea, Dmdedup};
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

/// Makes the backend's files.
///
/// # Errors
/// The folder's device failed, or has no room.
pub(super) fn create(folder: &dyn Dir, config: &Config, backend: Backend) -> Result<()> {
    match backend {
        Backend::InRam | Backend::InRamSaved => InRam::create_file(folder, config.blocks()),
        Backend::Dtb => Dtb::create(folder, config.blocks()),
        Backend::Cbt => Cbt::create(folder, config.blocks()),
    }
}

/// The beginning of the backend's metadata.
///
/// # Errors
/// The metadata is damaged, or its device failed.
pub(super) fn dump(folder: &dyn Dir, config: &Config, backend: Backend) -> Result<Dump> {
    match backend {
        Backend::InRam | Backend::InRamSaved => crate::inram::dump::dump(folder, config.blocks()),
        Backend::Dtb => crate::dtb::dump::dump(folder),
        Backend::Cbt => crate::cbt::dump::dump(folder),
    }
}

/// Opens the engine over the backend; `ram_bytes` is the cache that is wanted this time.
///
/// # Errors
/// The depot is damaged, or a device failed.
pub(super) fn open(
    folder: &Arc<dyn Dir>,
    config: &Config,
    backend: Backend,
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
            let save_at = match is_saved_at_close(config) {
                true => SaveAt::Close,
                false => SaveAt::Flush,
            };
            InRam::require_file(&**folder)?;
            let inram = InRam::open(Arc::clone(folder), blocks, save_at)?;
            (Box::new(inram), 0)
        }
        Backend::Dtb => (Box::new(Dtb::open(&**folder, blocks, cache_bytes)?), 0),
        Backend::Cbt => {
            let cbt = Cbt::open(&**folder, blocks, CbtOptions::new(cache_bytes))?;
            (Box::new(cbt), config.parameters.transaction_writes)
        }
    };
    let engine = Dmdedup::open(metadata, data, config.lbns())?.committing_every(transaction);
    Ok(match is_inline {
        true => Box::new(engine),
        false => Box::new(engine.write_behind(WRITERS)),
    })
}
