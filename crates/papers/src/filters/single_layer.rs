//! `flash-single`: one layer of page-sized Bloom filters, from the beginning as many as the most keys need
//! (dissertation §3.2.2).

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Disk};

use super::bit_layer::BitLayer;
use super::buffering::BufferOptions;
use super::page_shape::{PageShape, page_of};
use super::saved::{self, Saved, put_checksum, put_counts, put_shape};
use onefold_index::{Filter, Result};

/// The filter `flash-single`: one layer of page-sized Bloom filters, for a set of known size; the rate rises where more
/// keys are inserted.
pub struct SingleLayer {
    disk: Arc<dyn Disk>,
    shape: PageShape,
    layer: BitLayer,
}

impl SingleLayer {
    /// A filter for `keys` keys in pages of `shape`, with a buffer for updates in RAM, flushed by `group_pages`, on an
    /// empty disk.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io): the disk has no room for all pages.
    pub fn new(
        disk: Arc<dyn Disk>,
        keys: u64,
        shape: PageShape,
        buffer: BufferOptions,
        group_pages: u32,
    ) -> Result<SingleLayer> {
        let pages = keys.div_ceil(u64::from(shape.keys)).max(1) as u32;
        Ok(SingleLayer {
            disk: Arc::clone(&disk),
            shape,
            layer: BitLayer::new(disk, 0, pages, group_pages, shape, buffer)?,
        })
    }

    /// Writes buffered updates to flash, and saves the rest as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) where written
    /// pages are missing; the name then belongs to the old content or to the whole new one.
    pub fn save(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
        self.layer.flush()?;
        self.disk.sync()?;
        let mut body = Vec::new();
        put_shape(&mut body, self.shape);
        put_counts(&mut body, self.layer.keys());
        put_checksum(&mut body, &*self.disk, self.layer.pages().into())?;
        saved::save(dir, name, Saved::Single, &body)
    }

    /// Loads the filter that was saved as file `name` of `dir` and has its pages on `disk`. The buffering is chosen
    /// anew.
    ///
    /// # Errors
    /// [`Error::Damaged`](onefold_index::Error::Damaged) where the file is not whole or holds another kind of filter,
    /// or the pages on `disk` have changed; [`Error::Io`](onefold_index::Error::Io), also where there is no file.
    pub fn load(
        disk: Arc<dyn Disk>,
        dir: &dyn Dir,
        name: &str,
        buffer: BufferOptions,
        group_pages: u32,
    ) -> Result<SingleLayer> {
        saved::load(dir, name, Saved::Single, |reader| {
            let shape = saved::shape(reader)?;
            let keys = saved::counts(reader)?;
            let pages = saved::check_pages(reader, &*disk)?;
            if pages == 0 || pages != keys.len() as u64 {
                return Err(reader
                    .damaged(format!("{pages} pages, {} counts", keys.len()))
                    .into());
            }
            let most = pages * u64::from(shape.keys);
            let mut filter = SingleLayer::new(disk, most, shape, buffer, group_pages)?;
            filter.layer.restore_keys(keys);
            Ok(filter)
        })
    }

    /// Writes all buffered updates.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) where a page is
    /// missing; groups before it are written.
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
        for (present, answer) in present.iter_mut().zip(self.layer.ask(&asked)?) {
            *present = answer.is_present;
        }
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
