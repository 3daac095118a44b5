//! How a depot is laid out for the engine `log`, and with what that is opened.

use std::sync::Arc;

use onefold_chunk::fingerprints;
use onefold_index::{ChunkIndex, Strata, StrataOptions};
use onefold_io::{Dir, Disk};

use super::config::{Config, HEAD_BYTES};
use crate::log::{DiskPart, Layout, LogEngine, LogOptions};
use crate::{Engine, Error, Result};

/// The hash index's folder in the depot's.
const INDEX: &str = "index";
/// RAM of the hash index, in bytes: three quarters of a byte a page of the data device, within these.
const INDEX_RAM_MIN: u64 = 16 << 20;
const INDEX_RAM_MAX: u64 = 1 << 30;
/// RAM of the caches of rows and of checks, in bytes each.
const CACHE_BYTES: usize = 8 << 20;
/// Journal that recovery may have to read, in bytes.
const CHECKPOINT_BYTES: u64 = 1 << 30;

/// Bytes of the data device that hold a volume of this size, with room for cleaning: small zones have large tables.
pub fn roomy(volume_bytes: u64) -> u64 {
    volume_bytes
        .saturating_add(volume_bytes / 7)
        .saturating_add(8 << 20)
}

/// Bytes of a zone.
///
/// # Errors
/// [`Error::Invalid`] where the device is too small, or chunks are shorter than a page.
pub fn zone_bytes(config: &Config) -> Result<u64> {
    Ok(Layout::new(config.capacity_bytes, config.chunk_bytes)?.zone_bytes())
}

/// Makes the engine's files.
///
/// # Errors
/// A device failed.
pub fn create(folder: &Arc<dyn Dir>, config: &Config, disk: Arc<dyn Disk>) -> Result<()> {
    Strata::delete(&*folder.subdir(INDEX)?).map_err(index_failed)?;
    let options = options(folder, config, true)?;
    LogEngine::create(
        Arc::clone(folder),
        zones(config, disk),
        config.chunk_bytes,
        options,
    )?;
    Ok(())
}

/// Opens the engine.
///
/// # Errors
/// The depot is damaged, or a device failed.
pub fn open(
    folder: &Arc<dyn Dir>,
    config: &Config,
    disk: Arc<dyn Disk>,
    is_inline: bool,
) -> Result<Box<dyn Engine>> {
    let options = options(folder, config, is_inline)?;
    let engine = LogEngine::open(Arc::clone(folder), zones(config, disk), options)?;
    Ok(Box::new(engine))
}

fn zones(config: &Config, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(DiskPart::new(disk, HEAD_BYTES, config.capacity_bytes))
}

fn options(folder: &Arc<dyn Dir>, config: &Config, is_inline: bool) -> Result<LogOptions> {
    let key = config.hash_key;
    Ok(LogOptions {
        depot: config.depot,
        fingerprint: Arc::new(move |chunks| fingerprints(Some(&key), chunks.iter().copied())),
        index: index(folder, config, is_inline)?,
        cache_bytes: CACHE_BYTES,
        checkpoint_bytes: CHECKPOINT_BYTES,
    })
}

/// The hash index; one that cannot be used is thrown away, and the engine fills a new one from its zones.
fn index(folder: &Arc<dyn Dir>, config: &Config, is_inline: bool) -> Result<Box<dyn ChunkIndex>> {
    let dir = folder.subdir(INDEX)?;
    let pages = config.capacity_bytes / 4096;
    let options = StrataOptions {
        ram_budget_bytes: (pages * 3 / 4).clamp(INDEX_RAM_MIN, INDEX_RAM_MAX) as usize,
        background_merges: !is_inline,
        // A depot has one owner.
        unique: 1,
        lock_wait_ms_max: None,
    };
    let opened = match Strata::open(Arc::clone(&dir), options.clone()) {
        Err(onefold_index::Error::Damaged { .. }) => {
            Strata::delete(&*dir).map_err(index_failed)?;
            Strata::open(dir, options)
        }
        opened => opened,
    };
    Ok(Box::new(opened.map_err(index_failed)?))
}

fn index_failed(error: onefold_index::Error) -> Error {
    match error {
        onefold_index::Error::Io(error) => error.into(),
        other => Error::Damaged {
            place: INDEX.to_string(),
            what: other.to_string(),
        },
    }
}
