//! A modelled flash: the costs of the papers' structures on a device that reads and writes pages and erases blocks.
//!
//! A flash wraps a folder, whose disks keep the bytes, and keeps the account. Pages of 4 KiB, erase blocks of 128 KiB,
//! 25 µs a page read, 200 µs a page write, 1500 µs an erase (Lu's dissertation, §3.2.1 and §4.3), all settable.
//! Underneath works a page-mapped translation layer, as the dissertation describes it: an update in place goes to a
//! clean page and makes the old one invalid; when clean blocks run out, the block with the fewest valid pages is
//! emptied (reads and writes of these pages) and erased.
//!
//! Invariant: every page that is read, written or moved, and every erase, is counted once. With one channel
//! `modelled_us` is their sum: the device does one thing at a time. With more, pages lie across the channels in turn,
//! and the pages of one call (`read_many_at`, `write_many_at`, or a read or write of several pages) go to their
//! channels side by side, at most `queue_depth` under way at once; calls follow each other, as for a caller that waits.
//! Neighbours in one call are one command, which may cost something itself. Moves and erases of the translation layer
//! occupy one channel, which is that part of the device. Nothing sleeps. Syncs cost nothing. A write to part of a page
//! that has other bytes reads the page first.

mod ftl;
mod model;
mod queue;

use self::ftl::Flash;
pub use self::model::{FlashCounts, FlashModel};
use self::queue::ChannelQueue;
use crate::modelled::{ModelledDir, ModelledDisk};
use crate::{Disk, Error, ErrorKind, ReadAt, Result, WriteAt};

/// A folder on a modelled flash. Clones share the flash.
pub type FlashDir = ModelledDir<Flash>;

/// A disk on a modelled flash.
type FlashDisk = ModelledDisk<Flash>;

impl FlashDisk {
    fn count_reads<'a>(&self, reads: impl Iterator<Item = (u64, &'a [u8])>) {
        let mut flash = self.account.lock();
        let (page, number) = (flash.model.page_bytes, self.number);
        let pages = reads.filter(|(_, buf)| !buf.is_empty());
        let pages = pages.flat_map(|(at, buf)| at / page..=(at + buf.len() as u64 - 1) / page);
        flash.read_pages(pages.map(|page| (number, page)));
    }

    fn count_writes(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        let mut flash = self.account.lock();
        let page_bytes = flash.model.page_bytes;
        let mut queue = ChannelQueue::new(&flash.model);
        let mut before = None;
        for write in writes.iter().filter(|write| !write.data.is_empty()) {
            let offset = write.offset;
            let Some(end) = offset.checked_add(write.data.len() as u64) else {
                // The disk refuses it.
                continue;
            };
            if before != Some(offset) {
                flash.counts.modelled_us += flash.model.write_command_us;
            }
            before = Some(end);
            for page in offset / page_bytes..=(end - 1) / page_bytes {
                let whole = offset <= page * page_bytes && end >= (page + 1) * page_bytes;
                if !whole && flash.places.contains_key(&(self.number, page)) {
                    flash.read_pages(std::iter::once((self.number, page)));
                }
                if !flash.write((self.number, page)) {
                    let what = format!("{} pages are all in use", flash.model.capacity_pages);
                    let error = Error::new("write", "flash", ErrorKind::NoSpace, what);
                    return Err(error.at(page * page_bytes));
                }
                queue.put(flash.channel_of((self.number, page)), flash.model.write_us);
            }
        }
        flash.counts.modelled_us += queue.end();
        Ok(())
    }
}

impl Disk for FlashDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read_at(buf, offset)?;
        self.count_reads(std::iter::once((offset, &*buf)));
        Ok(())
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        self.disk.read_many_at(reads)?;
        self.count_reads(reads.iter().map(|read| (read.offset, &*read.buf)));
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.count_writes(&[WriteAt { offset, data }])?;
        self.disk.write_at(data, offset)
    }

    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        self.count_writes(writes)?;
        self.disk.write_many_at(writes)
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
        let mut flash = self.account.lock();
        let page_bytes = flash.model.page_bytes;
        let end = offset.saturating_add(len);
        // the last page is written as a whole where no bytes follow
        let behind = if end >= there {
            there.div_ceil(page_bytes)
        } else {
            end / page_bytes
        };
        (offset.div_ceil(page_bytes)..behind).for_each(|page| flash.forget((self.number, page)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Dir, MemDir};

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
        // three page writes, one of them with a read before it, and two page reads
        let counts = dir.counts();
        assert_eq!((counts.page_writes, counts.page_reads), (3, 3));
        assert_eq!(counts.modelled_us, 3.0 * 200.0 + 3.0 * 25.0);
        assert_eq!(counts.block_erases, 0);
    }

    #[test]
    fn pages_and_blocks_have_the_sizes_that_they_are_given() {
        let model = FlashModel {
            page_bytes: 2048,
            block_pages: 64,
            capacity_pages: 640,
            spare_blocks: 2,
            ..FlashModel::with_capacity(0)
        };
        let dir = FlashDir::new(Arc::new(MemDir::new()), model);
        let disk = dir.create("a").unwrap();
        for _ in 0..3 {
            disk.write_at(&vec![1; 640 * 2048], 0).unwrap();
        }
        let mut buf = [0; 2050];
        disk.read_at(&mut buf, 2047).unwrap();
        let counts = dir.counts();
        assert_eq!((counts.page_writes, counts.page_reads), (3 * 640, 3));
        // 30 blocks were filled, and there are 12; one of them is always clean
        assert!(
            (18..=22).contains(&counts.block_erases) && counts.page_moves == 0,
            "{counts:?}"
        );
    }

    #[test]
    fn channels_serve_a_batch_side_by_side_and_a_chain_of_calls_one_by_one() {
        let model = FlashModel::with_capacity(1000 * 4096);
        let read_us = |model: FlashModel, batch: usize| {
            let dir = FlashDir::new(Arc::new(MemDir::new()), model);
            let disk = dir.create("a").unwrap();
            disk.write_at(&vec![0; 600 * 4096], 0).unwrap();
            let before = dir.counts().modelled_us;
            let mut bytes = vec![vec![0; 4096]; 480];
            for (number, batch) in bytes.chunks_mut(batch).enumerate() {
                let first = number * batch.len();
                let read = |(i, buf): (usize, _)| ReadAt {
                    offset: (first + i) as u64 * 4096,
                    buf,
                };
                let mut reads: Vec<ReadAt<'_>> = Vec::new();
                for (i, buf) in batch.iter_mut().enumerate() {
                    reads.push(read((i, buf)));
                }
                disk.read_many_at(&mut reads).unwrap();
            }
            assert_eq!(dir.counts().page_reads, 480);
            dir.counts().modelled_us - before
        };
        assert_eq!(read_us(model, 480), 480.0 * 25.0);
        assert_eq!(read_us(model.sata(), 480), 48.0 * 25.0);
        assert_eq!(read_us(model.sata(), 5), 96.0 * 25.0);
        assert_eq!(read_us(model.sata(), 1), 480.0 * 25.0);
        let shallow = FlashModel {
            queue_depth: 2,
            ..model.sata()
        };
        assert_eq!(read_us(shallow, 480), 240.0 * 25.0);
    }

    #[test]
    fn neighbours_of_one_call_are_one_command() {
        let cost = |writes: &[u64], reads: &[u64]| {
            let dir = FlashDir::new(Arc::new(MemDir::new()), FlashModel::x25_m(1 << 24));
            let disk = dir.create("a").unwrap();
            disk.set_len(1 << 20).unwrap();
            let write = |page: &u64| WriteAt {
                offset: *page * 4096,
                data: &[1; 4096],
            };
            let writes: Vec<_> = writes.iter().map(write).collect();
            disk.write_many_at(&writes).unwrap();
            let mut bytes = vec![[0; 4096]; reads.len()];
            let mut all: Vec<ReadAt<'_>> = Vec::new();
            for (page, buf) in reads.iter().zip(&mut bytes) {
                all.push(ReadAt {
                    offset: *page * 4096,
                    buf,
                });
            }
            disk.read_many_at(&mut all).unwrap();
            dir.counts().modelled_us
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.01, "{found}");
        near(cost(&[3], &[]), 1e6 / 8_600.0);
        near(cost(&[], &[3]), 1e6 / 35_000.0);
        near(cost(&[3, 9], &[]), 2e6 / 8_600.0);
        near(cost(&[3, 4], &[]), 1e6 / 8_600.0 + 4096.0 / 100.0);
        near(cost(&[], &[3, 4, 6]), 2e6 / 35_000.0 + 4096.0 / 250.0);
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
        // a full flash: blocks are rewritten as a whole in one case, and in pieces in the other
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
