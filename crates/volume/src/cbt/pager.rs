//! Pages with copy on write: a page that the last superblock leads to is never changed. The first change of a page in a
//! transaction copies it to another place, its *shadow*; later ones change the shadow.

use std::sync::Arc;

use onefold_io::Disk;

use super::page::{self, CbtFormat, CbtPageHead};
use super::space::Space;
use crate::page_cache::{PAGE_BYTES, PageCache, PageFormat};
use crate::{Error, Result};

/// Room on the host's file system is taken for this many pages at once, or for fewer where it has less.
const ROOM_PAGES: u64 = 256;

/// The pages of one device, in the transaction that is under way.
pub(super) struct Pager {
    cache: PageCache<CbtFormat>,
    space: Space,
    transaction: u64,
    /// The device or file system has room for the pages below.
    room_end: u64,
    /// Whether there was no room for more when this transaction asked.
    is_full: bool,
    /// Pages of bits and superblocks, which do not go through the cache.
    other_writes: u64,
}

impl Pager {
    /// Pages of `disk` behind a cache of `cache_bytes`; `transaction` is the one that begins now.
    pub fn new(disk: Arc<dyn Disk>, space: Space, cache_bytes: u64, transaction: u64) -> Self {
        let format = CbtFormat {
            transaction_max: transaction,
        };
        Self {
            cache: PageCache::new(disk, format, cache_bytes),
            room_end: space.end(),
            is_full: false,
            space,
            transaction,
            other_writes: 0,
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    pub fn transaction(&self) -> u64 {
        self.transaction
    }

    pub fn page_reads(&self) -> u64 {
        self.cache.reads()
    }

    pub fn page_writes(&self) -> u64 {
        self.cache.writes() + self.other_writes
    }

    pub fn ram_bytes(&self) -> u64 {
        self.cache.ram_bytes() + self.space.ram_bytes()
    }

    /// Pages that can be made or copied before the next commit: as many as there is room for, if it is short of these.
    ///
    /// # Errors
    /// The device failed.
    pub fn pages_left(&mut self) -> Result<u64> {
        if self.space.left(self.room_end) < ROOM_PAGES {
            self.take_room()?;
        }
        Ok(self.space.left(self.room_end))
    }

    /// The page, which has to be like this.
    ///
    /// # Errors
    /// [`Error::Damaged`]; the device failed.
    pub fn read(&mut self, number: u64, head: CbtPageHead) -> Result<&[u8]> {
        let bytes = self.read_any(number)?;
        page::expect(bytes, number, head)?;
        Ok(bytes)
    }

    /// The page, whatever it is.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn read_any(&mut self, number: u64) -> Result<&[u8]> {
        if number < self.space.end() {
            self.cache.read(number)
        } else {
            Err(page::damaged(
                number,
                format!("it lies behind the last page {}", self.space.end()),
            ))
        }
    }

    /// A page of this transaction, to be changed.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the page is not of this transaction, as where two pages lead to it. The device failed.
    pub fn change(&mut self, number: u64) -> Result<&mut [u8]> {
        let transaction = self.transaction;
        let found = page::transaction(self.read_any(number)?);
        if found != transaction {
            let what = format!("expected transaction {transaction}, found {found}");
            return Err(page::damaged(number, what));
        }
        self.cache.change(number)
    }

    /// A new page of this transaction.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the device failed.
    pub fn make(&mut self, head: CbtPageHead) -> Result<u64> {
        let number = self.allocate()?;
        page::begin(self.cache.make(number)?, head, self.transaction);
        Ok(number)
    }

    /// The page in this transaction: itself, or a copy in its place.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NoSpace`]; the device failed.
    pub fn shadow(&mut self, number: u64, head: CbtPageHead) -> Result<u64> {
        let transaction = self.transaction;
        let bytes = self.read(number, head)?;
        if page::transaction(bytes) == transaction {
            return Ok(number);
        }
        let copy = bytes.to_vec();
        let shadow = self.allocate()?;
        let bytes = self.cache.make(shadow)?;
        bytes.copy_from_slice(&copy);
        page::set_transaction(bytes, transaction);
        // Until the next commit nobody reads the original.
        self.cache.forget(number);
        self.space.release_later(number);
        Ok(shadow)
    }

    /// Nothing leads to the page any more.
    ///
    /// # Errors
    /// The device failed.
    pub fn free(&mut self, number: u64) -> Result<()> {
        if page::transaction(self.read_any(number)?) == self.transaction {
            self.cache.forget(number);
            self.space.release(number);
        } else {
            self.space.release_later(number);
        }
        Ok(())
    }

    /// Makes the transaction durable, and begins the next. `superblock` gives the superblock's page and its place, once
    /// the space is known.
    ///
    /// # Errors
    /// The device failed: the transaction is durable or not, and nothing may be changed any more.
    pub fn commit(
        &mut self,
        superblock: impl FnOnce(&Space) -> Result<(u64, Vec<u8>)>,
    ) -> Result<()> {
        self.cache.write_back()?;
        for (place, mut bytes) in self.space.commit(self.transaction) {
            self.cache.format_mut().seal(place, &mut bytes);
            self.write_past(place, &bytes)?;
        }
        self.cache.disk().sync()?;
        let (place, bytes) = superblock(&self.space)?;
        self.write_past(place, &bytes)?;
        self.cache.disk().sync()?;
        self.transaction += 1;
        self.cache.format_mut().transaction_max = self.transaction;
        self.is_full = false;
        Ok(())
    }

    fn write_past(&mut self, place: u64, bytes: &[u8]) -> Result<()> {
        self.other_writes += 1;
        Ok(self
            .cache
            .disk()
            .write_at(bytes, place * PAGE_BYTES as u64)?)
    }

    fn allocate(&mut self) -> Result<u64> {
        while self.space.wants_more_than(self.room_end) && !self.is_full {
            self.take_room()?;
        }
        self.space.allocate(self.room_end)
    }

    /// Takes room for more pages, by halves where there is not enough for all: the last ones are worth it.
    fn take_room(&mut self) -> Result<()> {
        let mut pages = if self.is_full { 0 } else { ROOM_PAGES };
        while pages > 0 {
            match self.take_room_for(pages) {
                Err(Error::NoSpace { .. }) => pages /= 2,
                taken => return taken,
            }
        }
        self.is_full = true;
        Ok(())
    }

    fn take_room_for(&mut self, pages: u64) -> Result<()> {
        let page_bytes = PAGE_BYTES as u64;
        let (start, end) = (self.room_end, self.room_end + pages);
        let disk = self.cache.disk();
        if disk.len()? < end * page_bytes {
            disk.set_len(end * page_bytes)?;
        }
        disk.allocate(start * page_bytes, pages * page_bytes)?;
        self.room_end = end;
        Ok(())
    }
}
