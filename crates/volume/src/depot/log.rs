//! How a depot is laid out for the engine `log`, and with what that is opened.

use std::sync::Arc;

use onefold_chunk::fingerprints;
use onefold_index::{ChunkIndex, Strata, StrataOptions};
use onefold_io::{Dir, Disk};

use super::config::{Config, HEAD_BYTES};
use crate::front::Options;
use crate::log::{
    Budget, DEVICE_HEAD_BYTES, DiskPart, Layout, LogEngine, LogOptions, Seals, end_of_zones,
};
use crate::{Engine, Error, HeadInfo, Result};

/// Messages of the engine count the depot's head.
const _: () = assert!(HEAD_BYTES == DEVICE_HEAD_BYTES);

/// The hash index's folder in the depot's.
const INDEX: &str = "index";

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

/// Looks whether the engine can be created so. Nothing is written.
///
/// # Errors
/// [`Error::Invalid`] where `ram_bytes` are too few.
pub fn confirm(config: &Config, ram_bytes: Option<u64>) -> Result<()> {
    let layout = Layout::new(config.capacity_bytes, config.chunk_bytes)?;
    ram_bytes.map_or(Ok(()), |bytes| Budget::divide(bytes, &layout).map(drop))
}

/// Makes the engine's files.
///
/// # Errors
/// [`Error::Invalid`] where `ram_bytes` are too few; a device failed.
pub fn create(
    folder: &Arc<dyn Dir>,
    config: &Config,
    disk: Arc<dyn Disk>,
    ram_bytes: Option<u64>,
    seals: Seals,
) -> Result<()> {
    Strata::delete(&*folder.subdir(INDEX)?).map_err(index_failed)?;
    let options = options(folder, config, true, ram_bytes, seals)?;
    LogEngine::create(
        Arc::clone(folder),
        Arc::new(DiskPart::new(disk, HEAD_BYTES, config.capacity_bytes)),
        config.chunk_bytes,
        options,
    )?;
    Ok(())
}

/// Opens the engine, with a budget of `ram_bytes`, or a byte a page.
///
/// # Errors
/// [`Error::Invalid`] where the budget is too small; the depot is damaged, or a device failed.
pub fn open(
    folder: &Arc<dyn Dir>,
    config: &Config,
    disk: Arc<dyn Disk>,
    front: &Options,
    ram_bytes: Option<u64>,
    seals: Seals,
) -> Result<Box<dyn Engine>> {
    let mut options = options(folder, config, front.inline, ram_bytes, seals)?;
    options.clock = front.clock.clone();
    let engine = LogEngine::open(Arc::clone(folder), zones(config, disk), options)?;
    Ok(Box::new(engine))
}

/// The part of the data device that holds zones. It may have grown since the depot was made; the manifest says how much
/// of it is used.
pub fn zones(config: &Config, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let found = disk.len().unwrap_or(0).saturating_sub(HEAD_BYTES);
    let bytes = config.capacity_bytes.max(found);
    Arc::new(DiskPart::new(disk, HEAD_BYTES, bytes))
}

/// Bytes of the data device behind its head that are the depot's: more than its first capacity where it has grown, by
/// the manifest, or, where that is sealed or damaged, by the zones that are there.
///
/// # Errors
/// The device failed.
pub fn bytes_used(folder: &dyn Dir, config: &Config, disk: &Arc<dyn Disk>) -> Result<u64> {
    let zones = zones(config, Arc::clone(disk));
    let used = match LogEngine::layout_in(folder, &Seals::none()) {
        Ok(Some(layout)) => u64::from(layout.zones) * layout.zone_bytes(),
        _ => end_of_zones(&*zones, config.depot, config.zone_bytes)?,
    };
    Ok(used.clamp(config.capacity_bytes, zones.len()?))
}

fn options(
    folder: &Arc<dyn Dir>,
    config: &Config,
    is_inline: bool,
    ram_bytes: Option<u64>,
    seals: Seals,
) -> Result<LogOptions> {
    let key = config.hash_key;
    let layout = match LogEngine::layout_in(&**folder, &seals)? {
        Some(layout) => layout,
        None => Layout::new(config.capacity_bytes, config.chunk_bytes)?,
    };
    let capacity_bytes = u64::from(layout.zones) * layout.zone_bytes();
    let ram_bytes = ram_bytes.unwrap_or_else(|| Budget::default_bytes(capacity_bytes));
    let budget = Budget::divide(ram_bytes, &layout)?;
    Ok(LogOptions {
        depot: config.depot,
        first: HeadInfo::first(&config.volume, config.lbns()),
        fingerprint: Arc::new(move |chunks| fingerprints(Some(&key), chunks.iter().copied())),
        index: index(folder, budget.index_bytes, is_inline)?,
        sizes: budget.sizes,
        compression: config.compression,
        seals,
        is_inline,
        clock: None,
    })
}

/// The hash index; one that cannot be used is thrown away, and the engine fills a new one from its zones.
fn index(folder: &Arc<dyn Dir>, ram_bytes: u64, is_inline: bool) -> Result<Box<dyn ChunkIndex>> {
    let dir = folder.subdir(INDEX)?;
    let options = StrataOptions {
        ram_budget_bytes: ram_bytes as usize,
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
