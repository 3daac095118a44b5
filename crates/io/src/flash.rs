//! A modelled flash: what the papers' structures cost on a device that reads and writes pages and erases blocks.
//!
//! Wraps a folder, whose disks keep the bytes; the flash keeps the account. Pages of 4 KiB, erase blocks of 128 KiB, 25 µs a page read, 200 µs a page
//! write, 1500 µs an erase (Lu's dissertation, §3.2.1 and §4.3), all settable. Underneath works a page-mapped translation layer, as the
//! dissertation describes it: an update in place goes to a clean page and leaves the old one invalid; when clean blocks run out, the
//! block with the fewest valid pages is emptied (reads and writes of those that are valid) and erased.
//!
//! Always holds: every page that is read, written or moved, and every erase, is counted once, and `modelled_us` is their sum, as if the
//! device did one thing at a time. Nothing sleeps. Syncs, names and locks cost nothing. A write of a part of a page that holds bytes already
//! reads it first.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, ReadAt, Result};

/// What a flash is made of, and what it costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashModel {
    /// Bytes a page.
    pub page_bytes: u64,
    /// Pages a block.
    pub block_pages: u32,
    /// Pages that users can write.
    pub capacity_pages: u32,
    /// Blocks that the translation layer has beside those, at least 2: room to move pages.
    pub spare_blocks: u32,
    /// Microseconds a page read.
    pub read_us: f64,
    /// Microseconds a page write.
    pub write_us: f64,
    /// Microseconds a block erase.
    pub erase_us: f64,
}

impl FlashModel {
    /// The papers' flash, of this capacity and 7 % of spare blocks.
    pub fn with_capacity(bytes: u64) -> Self {
        let (page_bytes, block_pages) = (4096, 32);
        let capacity_pages = bytes.div_ceil(page_bytes) as u32;
        Self {
            page_bytes,
            block_pages,
            capacity_pages,
            spare_blocks: (capacity_pages / block_pages * 7 / 100).max(2),
            read_us: 25.0,
            write_us: 200.0,
            erase_us: 1500.0,
        }
    }
}

/// What a flash did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FlashCounts {
    /// Pages read, those that were moved included.
    pub page_reads: u64,
    /// Pages written, those that were moved included.
    pub page_writes: u64,
    /// Of both, pages that the translation layer moved.
    pub page_moves: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// The time that all of it takes.
    pub modelled_us: f64,
}

/// A page of a disk: the disk's number and the page's.
type Logical = (u64, u64);

/// The translation layer: where each page is.
struct Flash {
    model: FlashModel,
    counts: FlashCounts,
    places: HashMap<Logical, u32>,
    pages: Vec<Option<Logical>>,
    valid: Vec<u32>,
    clean: Vec<u32>,
    /// Full blocks, by how many of their pages are valid.
    full: BTreeSet<(u32, u32)>,
    open: u32,
    /// Pages of the open block that are written.
    used: u32,
    disks: HashMap<String, u64>,
    next_disk: u64,
}

impl Flash {
    fn new(model: FlashModel) -> Self {
        let blocks = model.capacity_pages.div_ceil(model.block_pages) + model.spare_blocks.max(2);
        Self {
            model,
            counts: FlashCounts::default(),
            places: HashMap::new(),
            pages: vec![None; (blocks * model.block_pages) as usize],
            valid: vec![0; blocks as usize],
            clean: (1..blocks).rev().collect(),
            full: BTreeSet::new(),
            open: 0,
            used: 0,
            disks: HashMap::new(),
            next_disk: 0,
        }
    }

    fn read(&mut self) {
        self.counts.page_reads += 1;
        self.counts.modelled_us += self.model.read_us;
    }

    /// Writes a page anew, wherever it was. `false`: the flash is full.
    fn write(&mut self, page: Logical) -> bool {
        if !self.places.contains_key(&page)
            && self.places.len() >= self.model.capacity_pages as usize
        {
            return false;
        }
        self.forget(page);
        self.append(page);
        while self.clean.is_empty() {
            self.collect();
        }
        true
    }

    fn append(&mut self, page: Logical) {
        let place = self.open * self.model.block_pages + self.used;
        self.pages[place as usize] = Some(page);
        self.places.insert(page, place);
        self.valid[self.open as usize] += 1;
        self.used += 1;
        self.counts.page_writes += 1;
        self.counts.modelled_us += self.model.write_us;
        if self.used == self.model.block_pages {
            self.full
                .insert((self.valid[self.open as usize], self.open));
            self.open = self
                .clean
                .pop()
                .expect("a clean block is kept at all times");
            self.used = 0;
        }
    }

    fn forget(&mut self, page: Logical) {
        let Some(place) = self.places.remove(&page) else {
            return;
        };
        self.pages[place as usize] = None;
        let block = place / self.model.block_pages;
        let valid = self.valid[block as usize];
        self.valid[block as usize] -= 1;
        if self.full.remove(&(valid, block)) {
            self.full.insert((valid - 1, block));
        }
    }

    /// Empties and erases the block with the fewest valid pages.
    fn collect(&mut self) {
        let (_, block) = self.full.pop_first().expect("more blocks than capacity");
        let first = block * self.model.block_pages;
        let moved: Vec<Logical> = (first..first + self.model.block_pages)
            .filter_map(|place| self.pages[place as usize].take())
            .collect();
        // erased in the account before its pages are written elsewhere: they stand in a spare buffer meanwhile
        self.valid[block as usize] = 0;
        self.clean.push(block);
        self.counts.block_erases += 1;
        self.counts.modelled_us += self.model.erase_us;
        for page in moved {
            self.read();
            self.counts.page_moves += 1;
            self.append(page);
        }
    }

    fn number_of(&mut self, name: &str) -> u64 {
        let next = self.next_disk;
        let number = *self.disks.entry(name.to_owned()).or_insert(next);
        self.next_disk += u64::from(number == next);
        number
    }

    fn drop_disk(&mut self, name: &str) {
        if let Some(number) = self.disks.remove(name) {
            let pages: Vec<Logical> = self
                .places
                .keys()
                .filter(|(disk, _)| *disk == number)
                .copied()
                .collect();
            pages.into_iter().for_each(|page| self.forget(page));
        }
    }
}

/// A folder on a modelled flash. Clones share the flash.
#[derive(Clone)]
pub struct FlashDir {
    dir: Arc<dyn Dir>,
    flash: Arc<Mutex<Flash>>,
    /// Leads the names within, so that two folders' disks are two.
    path: String,
}

impl FlashDir {
    /// Keeps bytes in `dir`, which is empty, and the account by `model`.
    pub fn new(dir: Arc<dyn Dir>, model: FlashModel) -> Self {
        let flash = Arc::new(Mutex::new(Flash::new(model)));
        Self {
            dir,
            flash,
            path: String::new(),
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> FlashCounts {
        self.flash.lock().counts
    }

    fn disk(&self, name: &str, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let number = self.flash.lock().number_of(&format!("{}{name}", self.path));
        Arc::new(FlashDisk {
            disk,
            number,
            flash: Arc::clone(&self.flash),
        })
    }

    fn folder(&self, name: &str, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        let path = format!("{}{name}/", self.path);
        Arc::new(Self {
            dir,
            flash: Arc::clone(&self.flash),
            path,
        })
    }

    fn renamed(&self, from: &str, to: &str) {
        let mut flash = self.flash.lock();
        let (from, to) = (format!("{}{from}", self.path), format!("{}{to}", self.path));
        flash.drop_disk(&to);
        if let Some(number) = flash.disks.remove(&from) {
            flash.disks.insert(to, number);
        }
    }
}

/// A disk on a modelled flash.
struct FlashDisk {
    disk: Arc<dyn Disk>,
    number: u64,
    flash: Arc<Mutex<Flash>>,
}

impl FlashDisk {
    fn count_read(&self, offset: u64, len: usize) {
        let mut flash = self.flash.lock();
        let page = flash.model.page_bytes;
        if len > 0 {
            let pages = offset / page..=(offset + len as u64 - 1) / page;
            pages.for_each(|_| flash.read());
        }
    }
}

impl Disk for FlashDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read_at(buf, offset)?;
        self.count_read(offset, buf.len());
        Ok(())
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        self.disk.read_many_at(reads)?;
        reads
            .iter()
            .for_each(|read| self.count_read(read.offset, read.buf.len()));
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let Some(end) = offset.checked_add(data.len() as u64) else {
            return self.disk.write_at(data, offset);
        };
        if data.is_empty() {
            return Ok(());
        }
        let mut flash = self.flash.lock();
        let page_bytes = flash.model.page_bytes;
        for page in offset / page_bytes..=(end - 1) / page_bytes {
            let whole = offset <= page * page_bytes && end >= (page + 1) * page_bytes;
            if !whole && flash.places.contains_key(&(self.number, page)) {
                flash.read();
            }
            if !flash.write((self.number, page)) {
                let what = format!("{} pages are all in use", flash.model.capacity_pages);
                return Err(
                    Error::new("write", "flash", ErrorKind::NoSpace, what).at(page * page_bytes)
                );
            }
        }
        drop(flash);
        self.disk.write_at(data, offset)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let before = self.disk.len()?;
        self.discard(len, before.saturating_sub(len))?;
        self.disk.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let there = self.disk.len()?;
        self.disk.discard(offset, len)?;
        let mut flash = self.flash.lock();
        let page_bytes = flash.model.page_bytes;
        let end = offset.saturating_add(len);
        // the last page goes whole where nothing lies behind it
        let behind = if end >= there {
            there.div_ceil(page_bytes)
        } else {
            end / page_bytes
        };
        (offset.div_ceil(page_bytes)..behind).for_each(|page| flash.forget((self.number, page)));
        Ok(())
    }
}

impl Dir for FlashDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.open(name)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.open_write(name)?))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)?;
        self.renamed(from, to);
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename_new(from, to)?;
        self.renamed(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)?;
        self.flash.lock().drop_disk(&format!("{}{name}", self.path));
        Ok(())
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.folder(name, self.dir.subdir(name)?))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.folder(name, self.dir.open_subdir(name)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir.lock(name, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDir;

    fn flash(pages: u64) -> FlashDir {
        FlashDir::new(
            Arc::new(MemDir::new()),
            FlashModel::with_capacity(pages * 4096),
        )
    }

    #[test]
    fn pages_cost_what_the_papers_say() {
        let dir = flash(1000);
        let disk = dir.create("a").unwrap();
        disk.write_at(&[1; 8192], 0).unwrap();
        disk.write_at(&[2; 10], 4000).unwrap();
        let mut buf = [0; 200];
        disk.read_at(&mut buf, 4000).unwrap();
        assert_eq!(buf[..12], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
        // two pages, one read and written again, two read
        let counts = dir.counts();
        assert_eq!((counts.page_writes, counts.page_reads), (3, 3));
        assert_eq!(counts.modelled_us, 3.0 * 200.0 + 3.0 * 25.0);
        assert_eq!(counts.block_erases, 0);
    }

    #[test]
    fn updates_at_random_cost_moves_and_updates_in_order_none() {
        let (random, ordered) = (flash(3200), flash(3200));
        for (dir, step) in [(&random, 1663), (&ordered, 1)] {
            let disk = dir.create("a").unwrap();
            for i in 0..32_000u64 {
                disk.write_at(&[0; 4096], i * step % 3200 * 4096).unwrap();
            }
        }
        // a full flash: each block is rewritten as a whole in one case, and in pieces in the other
        let (random, ordered) = (random.counts(), ordered.counts());
        assert_eq!(ordered.page_moves, 0);
        assert!(ordered.block_erases >= (32_000 - 3200) / 32 - 10);
        assert_eq!(random.page_writes, 32_000 + random.page_moves);
        assert!(random.modelled_us >= ordered.modelled_us);
    }

    #[test]
    fn a_full_flash_has_no_space_until_something_is_removed() {
        let dir = flash(64);
        let disk = dir.create("a").unwrap();
        disk.write_at(&[0; 64 * 4096], 0).unwrap();
        let other = dir.create("b").unwrap();
        assert_eq!(
            other.write_at(&[0; 1], 0).unwrap_err().kind,
            ErrorKind::NoSpace
        );
        disk.write_at(&[0; 64 * 4096], 0).unwrap();
        dir.remove("a").unwrap();
        other.write_at(&[0; 64 * 4096], 0).unwrap();
    }
}
