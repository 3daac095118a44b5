//! What the engine's writer and its readers share.
//!
//! Lock order: `open_group` → `maps` → `zones` → `open_checks`. No lock is held over I/O.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_io::Disk;
use parking_lot::RwLock;

use super::extent_map::ExtentMap;
use super::layout::{Address, Layout, ZoneId};
use super::tables::Tables;
use super::zones::Zones;
use crate::HeadId;

/// Everything a reader needs to find and prove a chunk.
pub struct Shared {
    /// Sizes of zones and chunks.
    pub layout: Layout,
    /// The data device.
    pub data: Arc<dyn Disk>,
    /// The block maps.
    pub maps: RwLock<HashMap<HeadId, ExtentMap>>,
    /// The zones.
    pub zones: RwLock<Zones>,
    /// The group that is not written yet.
    pub open_group: RwLock<OpenGroup>,
    /// Checks of zones that have no table yet, by page.
    pub open_checks: RwLock<HashMap<ZoneId, Vec<u32>>>,
    /// Rows and checks of the others.
    pub tables: Tables,
}

/// Data of the group that is not written yet. Its chunks have pending addresses.
pub struct OpenGroup {
    /// The group's number.
    pub sequence: u64,
    /// Data pages.
    pub data: Vec<u8>,
}

impl Shared {
    /// Maps chunks of a head, and returns how many were mapped before.
    pub fn map(&self, head: HeadId, lbn: u64, chunks: u64, target: Option<Address>) -> u64 {
        let mut maps = self.maps.write();
        let map = maps.entry(head).or_default();
        map.set(lbn, chunks, target, self.layout.chunk_pages)
    }
}
