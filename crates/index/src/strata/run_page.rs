//! A page of a run: some 500 pairs of a hash and what the log says of it, sorted by hash, in packed bits.
//!
//! Always holds: hashes rise strictly within a page and from page to page. A page that had no room for all hashes that belong to it has
//! the overflow flag, and the next page begins with the rest.

use super::bits;
use super::page::{PAGE_BYTES, check_page, seal_page};
use crate::{Error, Result};

/// checksum:u64 base:u64 count:u16 rest_bits:u8 value_bits:u8 flags:u8 zero[3]
const HEADER_BYTES: usize = 24;
const OVERFLOW: u8 = 1;

/// A record of a run: a hash of [`HASH_BITS`](super::run::HASH_BITS) bits, and where in the log its fingerprint stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunRecord {
    /// The upper bits of the fingerprint.
    pub hash: u64,
    /// The log page, counted from the first that the run speaks of.
    pub page: u32,
    /// That record removes the fingerprint.
    pub removed: bool,
}

/// What a page knows of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// This record.
    Found(RunRecord),
    /// Nothing, and no other page does.
    Absent,
    /// Ask the next page.
    Next,
}

/// How records are packed into the pages of one partition.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Bits for a hash less the first hash of its page.
    pub rest_bits: u32,
    /// Bits for the page and the removed bit.
    pub value_bits: u32,
}

impl Packing {
    /// How many records fit into a page.
    pub fn records_a_page(&self) -> usize {
        ((PAGE_BYTES - HEADER_BYTES) * 8 - 7) / (self.rest_bits + self.value_bits) as usize
    }

    /// Whether a page that begins with `base` can say `hash`.
    pub fn reaches(&self, base: u64, hash: u64) -> bool {
        hash - base <= bits::mask(self.rest_bits)
    }

    /// Appends a page of `records` to `out`; it will be page `number` of its file.
    pub fn write(&self, records: &[RunRecord], overflow: bool, number: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + PAGE_BYTES, 0);
        let page = &mut out[start..];
        let base = records.first().map_or(0, |record| record.hash);
        page[8..16].copy_from_slice(&base.to_le_bytes());
        page[16..18].copy_from_slice(&(records.len() as u16).to_le_bytes());
        page[18] = self.rest_bits as u8;
        page[19] = self.value_bits as u8;
        page[20] = if overflow { OVERFLOW } else { 0 };
        let (rests, values) = (self.rest_bits as usize, self.value_bits as usize);
        let body = &mut page[HEADER_BYTES..];
        let values_at = (records.len() * rests).div_ceil(8) * 8;
        for (i, record) in records.iter().enumerate() {
            bits::put(body, i * rests, self.rest_bits, record.hash - base);
            let value = u64::from(record.page) << 1 | u64::from(record.removed);
            bits::put(body, values_at + i * values, self.value_bits, value);
        }
        seal_page(page, number);
    }
}

/// A page that was checked.
#[derive(Clone, Copy)]
pub struct RunPage<'a> {
    base: u64,
    len: usize,
    packing: Packing,
    overflow: bool,
    body: &'a [u8],
}

impl<'a> RunPage<'a> {
    /// Checks checksum and shape; `page` counts within the file `path`.
    pub fn check(bytes: &'a [u8], path: &str, page: u32) -> Result<RunPage<'a>> {
        check_page(bytes, path, page)?;
        let len = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
        let packing = Packing {
            rest_bits: bytes[18].into(),
            value_bits: bytes[19].into(),
        };
        let sane = (1..=bits::WIDTH_MAX).contains(&packing.rest_bits)
            && (1..=32).contains(&packing.value_bits);
        if !sane || len > packing.records_a_page() {
            let what = format!(
                "run page with {len} records of {} + {} bits",
                packing.rest_bits, packing.value_bits
            );
            return Err(Error::damaged(
                path,
                u64::from(page) * PAGE_BYTES as u64,
                what,
            ));
        }
        let base = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        Ok(RunPage {
            base,
            len,
            packing,
            overflow: bytes[20] & OVERFLOW != 0,
            body: &bytes[HEADER_BYTES..],
        })
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Record `i`.
    pub fn record(&self, i: usize) -> RunRecord {
        let values_at = (self.len * self.packing.rest_bits as usize).div_ceil(8) * 8;
        let value = bits::get(
            self.body,
            values_at + i * self.packing.value_bits as usize,
            self.packing.value_bits,
        );
        RunRecord {
            hash: self.hash(i),
            page: (value >> 1) as u32,
            removed: value & 1 == 1,
        }
    }

    /// Looks for `hash`.
    pub fn ask(&self, hash: u64) -> Asked {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = (low + high) / 2;
            match self.hash(middle).cmp(&hash) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Asked::Found(self.record(middle)),
            }
        }
        if low == self.len && self.overflow {
            Asked::Next
        } else {
            Asked::Absent
        }
    }

    fn hash(&self, i: usize) -> u64 {
        self.base.wrapping_add(bits::get(
            self.body,
            i * self.packing.rest_bits as usize,
            self.packing.rest_bits,
        ))
    }
}
