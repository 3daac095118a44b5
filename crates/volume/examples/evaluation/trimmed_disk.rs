//! A disk in RAM that keeps of each page the bytes before its last zeros: chunks that are a number and zeros cost some
//! bytes of RAM, so that a modelled device may be much larger than the RAM here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onefold_io::{Disk, Result};

const PAGE_BYTES: u64 = 4096;

/// A disk of a fixed length.
pub struct TrimmedDisk {
    bytes: u64,
    pages: Mutex<Pages>,
}

type Pages = HashMap<u64, Box<[u8]>>;

impl TrimmedDisk {
    /// A disk of zeros.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            pages: Mutex::default(),
        }
    }

    /// Shows each page that was written, without its last zeros, in any order.
    pub fn visit(&self, see: &mut dyn FnMut(&[u8])) {
        self.pages().values().for_each(|page| see(page));
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pages of a request: number, place within the page, place within the request.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let within = ((offset + at as u64) % PAGE_BYTES) as usize;
        let count = (len - at).min(PAGE_BYTES as usize - within);
        let page = (offset + at as u64) / PAGE_BYTES;
        let piece = (page, within..within + count, at..at + count);
        at += count;
        (count > 0).then_some(piece)
    })
}

fn trimmed(bytes: &[u8]) -> Box<[u8]> {
    let end = bytes.iter().rposition(|byte| *byte != 0);
    bytes[..end.map_or(0, |last| last + 1)].into()
}

impl Disk for TrimmedDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let pages = self.pages();
        for (page, within, at) in pieces(offset, buf.len()) {
            let buf = &mut buf[at];
            buf.fill(0);
            let kept = pages.get(&page).map_or(&[][..], |kept| kept);
            let kept = kept.get(within.start..).unwrap_or_default();
            let count = kept.len().min(buf.len());
            buf[..count].copy_from_slice(&kept[..count]);
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut pages = self.pages();
        for (page, within, at) in pieces(offset, data.len()) {
            let kept = if within.len() as u64 == PAGE_BYTES {
                trimmed(&data[at])
            } else {
                let mut whole = pages.get(&page).map_or(Vec::new(), |kept| kept.to_vec());
                whole.resize(PAGE_BYTES as usize, 0);
                whole[within].copy_from_slice(&data[at]);
                trimmed(&whole)
            };
            pages.insert(page, kept);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_wherever_they_lie() {
        let disk = TrimmedDisk::new(1 << 20);
        let data: Vec<u8> = (0..10_000).map(|at| (at / 100 % 3) as u8).collect();
        disk.write_at(&data, 5000).unwrap();
        disk.write_at(&[7; 10], 8190).unwrap();
        disk.write_at(&[0; 4096], 8192).unwrap();
        let mut expected = vec![0; 1 << 15];
        expected[5000..15_000].copy_from_slice(&data);
        expected[8190..8200].fill(7);
        expected[8192..8192 + 4096].fill(0);
        let mut found = vec![1; 1 << 15];
        disk.read_at(&mut found, 0).unwrap();
        assert!(found == expected);
        let mut part = [1; 3000];
        disk.read_at(&mut part, 7000).unwrap();
        assert_eq!(part, expected[7000..10_000]);
    }
}
