//! `flash-single`: one layer of page-sized Bloom filters, as many as the most keys need from the beginning (dissertation §3.2.2).

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Disk;

use super::bit_layer::{BitLayer, Buffering};
use super::page_shape::{PageShape, page_of};
use crate::{Filter, Result};

/// See the module. For a set whose size is known: the rate rises where more keys come.
pub struct SingleLayer {
    layer: BitLayer,
}

impl SingleLayer {
    /// For `keys` keys in pages of `shape`, with `buffer_bytes` of updates in RAM, flushed by `group_pages`, on an empty disk.
    pub fn new(
        disk: Arc<dyn Disk>,
        keys: u64,
        shape: PageShape,
        buffering: Buffering,
        buffer_bytes: usize,
        group_pages: u32,
    ) -> Result<SingleLayer> {
        let pages = keys.div_ceil(u64::from(shape.keys)).max(1) as u32;
        Ok(SingleLayer {
            layer: BitLayer::new(disk, 0, pages, group_pages, shape, buffering, buffer_bytes)?,
        })
    }

    /// Writes all that is buffered.
    pub fn flush(&mut self) -> Result<()> {
        self.layer.flush()
    }
}

impl Filter for SingleLayer {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        let asked: Vec<_> = keys
            .iter()
            .map(|key| (page_of(key, self.layer.pages()), key))
            .collect();
        present.copy_from_slice(&self.layer.ask(&asked)?);
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        keys.iter()
            .try_for_each(|key| self.layer.insert(page_of(key, self.layer.pages()), key))
    }

    fn ram_bytes(&self) -> usize {
        self.layer.ram_bytes()
    }
}
