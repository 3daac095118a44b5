//! Tests of the page cache, against maps of the standard library.

use std::collections::BTreeMap;

use onefold_io::{MemDisk, Random};

use super::*;

/// Pages carry their number, and what is read must have it.
struct Numbered;

impl PageFormat for Numbered {
    fn check(&self, page: u64, bytes: &[u8]) -> Result<()> {
        assert!(bytes[..8] == page.to_le_bytes(), "page {page} is another");
        Ok(())
    }

    fn seal(&self, page: u64, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&page.to_le_bytes());
    }
}

#[test]
fn pages_are_what_was_written_whatever_is_evicted() {
    for pages in [16, 20, 300] {
        let disk = Arc::new(MemDisk::new());
        let budget = (pages * PAGE_BYTES) as u64;
        let mut cache = PageCache::new(disk.clone(), Numbered, budget);
        let mut twin: BTreeMap<u64, u8> = BTreeMap::new();
        let mut random = Random(pages as u64);
        for n in 0..20_000_u32 {
            let page = random.below(100);
            let byte = n as u8;
            match (random.below(20), twin.get(&page)) {
                (0, Some(_)) => {
                    cache.forget(page);
                    twin.remove(&page);
                }
                (1, _) => cache.write_back().expect("RAM"),
                (2..8, Some(found)) => {
                    let bytes = cache.change(page).expect("RAM");
                    assert_eq!(bytes[100], *found);
                    bytes[100] = byte;
                    twin.insert(page, byte);
                }
                (_, Some(found)) => assert_eq!(cache.read(page).expect("RAM")[100], *found),
                (_, None) => {
                    cache.make(page).expect("RAM")[100] = byte;
                    twin.insert(page, byte);
                }
            }
            assert!(cache.ram_bytes() <= budget, "more RAM than was given");
            assert!(cache.dirty * 4 <= pages * 3, "more than 75 % are dirty");
        }
        cache.write_back().expect("RAM");
        assert_eq!(cache.dirty, 0);
        let mut bytes = vec![0; PAGE_BYTES];
        for (page, byte) in twin {
            let offset = page * PAGE_BYTES as u64;
            disk.read_at(&mut bytes, offset).expect("it was written");
            assert_eq!(bytes[100], byte);
        }
    }
}

/// The page that was used longest ago goes, alone; nothing is written before 75 % are dirty.
#[test]
fn the_oldest_page_goes_and_dirty_ones_wait_for_75_percent() {
    let disk = Arc::new(MemDisk::new());
    disk.set_len(1 << 20).expect("RAM");
    let mut cache = PageCache::new(disk, Numbered, 16 * PAGE_BYTES as u64);
    for page in 0..12 {
        cache.make(page).expect("RAM");
    }
    assert_eq!(cache.writes(), 0, "12 of 16 are 75 %");
    cache.make(12).expect("RAM");
    assert_eq!(cache.writes(), 12, "a thirteenth has the others written");
    for page in 13..16 {
        cache.make(page).expect("RAM");
    }
    cache.read(0).expect("it is there");
    cache.make(16).expect("RAM");
    assert_eq!((cache.writes(), cache.reads()), (12, 0), "page 1 was clean");
    cache.read(0).expect("it is there");
    assert_eq!(cache.reads(), 0);
    cache.read(1).expect("it was written");
    assert_eq!(cache.reads(), 1);
}
