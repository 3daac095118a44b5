//! The linear store: 8 bytes for each key that there can be, PBN + 1, or 0 where the key is not mapped.

use super::Cache;
use crate::page_cache::PAGE_BYTES;
use crate::{Key, Pbn, Result};

const VALUES_IN_PAGE: u64 = PAGE_BYTES as u64 / 8;

/// Where the values lie.
pub(super) struct DiskLinear {
    first_page: u64,
    keys: u64,
}

impl DiskLinear {
    pub fn new(first_page: u64, keys: u64) -> Self {
        Self { first_page, keys }
    }

    pub fn end_page(&self) -> u64 {
        self.first_page + self.keys.div_ceil(VALUES_IN_PAGE)
    }

    pub fn get(&self, cache: &mut Cache, key: u64) -> Result<Option<Pbn>> {
        let (page, at) = self.place(key);
        Ok(value_at(cache.read(page)?, at))
    }

    /// Whether the key was not mapped before.
    pub fn insert(&self, cache: &mut Cache, key: u64, pbn: Pbn) -> Result<bool> {
        self.replace(cache, key, pbn.0 + 1)
            .map(|before| before.is_none())
    }

    /// Whether the key was mapped.
    pub fn remove(&self, cache: &mut Cache, key: u64) -> Result<bool> {
        match self.get(cache, key)? {
            None => Ok(false),
            Some(_) => self.replace(cache, key, 0).map(|_| true),
        }
    }

    pub fn iterate(
        &self,
        cache: &mut Cache,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<()> {
        for first in (0..self.keys).step_by(VALUES_IN_PAGE as usize) {
            let page = cache.read(self.place(first).0)?;
            let keys = first..self.keys.min(first + VALUES_IN_PAGE);
            for (key, at) in keys.zip((0..).step_by(8)) {
                if let Some(pbn) = value_at(page, at) {
                    visit(Key::Linear(key), pbn)?;
                }
            }
        }
        Ok(())
    }

    fn replace(&self, cache: &mut Cache, key: u64, value: u64) -> Result<Option<Pbn>> {
        let (page, at) = self.place(key);
        let bytes = cache.change(page)?;
        let before = value_at(bytes, at);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        Ok(before)
    }

    /// Page and offset in it.
    fn place(&self, key: u64) -> (u64, usize) {
        let at = (key % VALUES_IN_PAGE) as usize * 8;
        (self.first_page + key / VALUES_IN_PAGE, at)
    }
}

fn value_at(page: &[u8], at: usize) -> Option<Pbn> {
    let mut value = [0; 8];
    value.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(value).checked_sub(1).map(Pbn)
}
