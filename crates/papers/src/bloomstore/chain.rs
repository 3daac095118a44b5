//! The chain of Bloom filters of a partition: in RAM one after the other, on flash bit-sliced, so that one AND of rows
//! tests all of them.
//!
//! ```text
//! unit   slice 0 … slice S−1, a page each; written whole, to the other of its two places
//! slice  header 64 │ pointer:u32 × M │ row × R, M bits each: bit i of row r is bit r of the slice's part of filter i
//! ```
//!
//! A key has all its bits in one slice, so a lookup reads one page of a chain and not all of its 2 to 8: the slices are
//! the sub-partitions of the conclusion's hierarchical partitioning, with one write buffer for all of them. Invariant:
//! pointers rise within a unit; of a unit's two places the whole one with the higher generation counts.

use onefold_chunk::Fingerprint;

use crate::filters::word;
use onefold_index::strata::page::{PAGE_BYTES, check_page, seal_page};
use onefold_index::{Error, Result};

const HEADER_BYTES: usize = 64;
/// Bytes of a filter that hold its pointer (§4.4.1).
pub const POINTER_BYTES: usize = 4;

/// The layout of filters, the same for all partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Filters in a chain unit, M.
    pub chain_max: u32,
    /// Bytes of a filter, δ, pointer included.
    pub filter_bytes: u32,
    /// Slices of a unit, S.
    pub slices: u32,
    /// Bits of a filter in one slice, R.
    pub rows: u32,
    /// Bits that a key sets, k.
    pub hashes: u32,
}

impl Shape {
    /// The shape with the fewest slices, or with `slices` of them if that is more. `None` where not even a row fits
    /// beside the pointers, or a unit has no filter.
    pub fn new(
        chain_max: u32,
        filter_bytes: u32,
        keys_a_page: u32,
        slices: u32,
        hashes: Option<u32>,
    ) -> Option<Shape> {
        let bits = filter_bytes
            .checked_sub(POINTER_BYTES as u32)?
            .checked_mul(8)?;
        let row_bytes = chain_max.div_ceil(8);
        let rows_bytes = (PAGE_BYTES as u32)
            .checked_sub(HEADER_BYTES as u32)?
            .checked_sub(chain_max.checked_mul(4)?)?;
        let room = rows_bytes.checked_div(row_bytes)?;
        if room == 0 || bits == 0 {
            return None;
        }
        let slices = bits.div_ceil(room).max(slices).min(bits);
        let ideal = f64::from(bits) / f64::from(keys_a_page) * std::f64::consts::LN_2;
        Some(Shape {
            chain_max,
            filter_bytes,
            slices,
            rows: bits / slices,
            hashes: hashes.unwrap_or(ideal.round().clamp(1.0, 12.0) as u32),
        })
    }

    /// The number of pages that `filters` filters take up one after the other, at least one and at most a unit's.
    pub fn pages_of(&self, filters: u32) -> u32 {
        (filters * self.filter_bytes)
            .div_ceil(PAGE_BYTES as u32)
            .clamp(1, self.slices)
    }

    /// The number of the slice of `key`.
    pub fn slice_of(&self, key: &Fingerprint) -> u32 {
        ((u128::from(word(key, 1)) * u128::from(self.slices)) >> 64) as u32
    }

    /// The rows of `key` in its slice.
    pub fn rows_of(&self, key: &Fingerprint) -> impl Iterator<Item = u32> + use<> {
        let (start, step, rows) = (word(key, 2), word(key, 3) | 1, u64::from(self.rows));
        (0..u64::from(self.hashes)).map(move |i| {
            ((u128::from(start.wrapping_add(i.wrapping_mul(step))) * u128::from(rows)) >> 64) as u32
        })
    }

    /// Adds `key` to a filter in RAM, `filter_bytes` with its pointer first.
    pub fn set(&self, filter: &mut [u8], key: &Fingerprint) {
        let base = self.slice_of(key) * self.rows;
        for row in self.rows_of(key) {
            let bit = (base + row) as usize;
            filter[POINTER_BYTES + bit / 8] |= 1 << (bit % 8);
        }
    }

    /// Whether a filter in RAM may hold `key`.
    pub fn may_hold(&self, filter: &[u8], key: &Fingerprint) -> bool {
        let base = self.slice_of(key) * self.rows;
        self.rows_of(key).all(|row| {
            let bit = (base + row) as usize;
            filter[POINTER_BYTES + bit / 8] >> (bit % 8) & 1 == 1
        })
    }
}

/// The page to which a filter in RAM leads.
pub fn pointer_of(filter: &[u8]) -> u32 {
    u32::from_le_bytes(filter[..POINTER_BYTES].try_into().expect("four bytes"))
}

/// The head of a unit, which each of its slices repeats.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UnitHead {
    /// Number of the partition.
    pub partition: u32,
    /// Position of the unit in its partition's chain, from 0.
    pub ordinal: u32,
    /// Number of the writing, which rises each time.
    pub generation: u64,
    /// Number of filters in the unit.
    pub filters: u32,
    /// First page of the partition that the units before do not cover.
    pub since: u32,
}

/// One page of a unit whose checks succeeded.
pub struct ChainPage {
    bytes: Vec<u8>,
}

impl ChainPage {
    /// Checks the bytes that were read from page `page` of `path`.
    pub fn check(bytes: Vec<u8>, shape: &Shape, path: &str, page: u32) -> Result<ChainPage> {
        check_page(&bytes, path, page)?;
        let slice = ChainPage { bytes };
        if slice.head().filters > shape.chain_max {
            let what = format!("a chain of {} filters", slice.head().filters);
            return Err(Error::damaged(
                path,
                u64::from(page) * PAGE_BYTES as u64,
                what,
            ));
        }
        Ok(slice)
    }

    /// A slice without filters.
    pub fn empty() -> ChainPage {
        ChainPage {
            bytes: vec![0; PAGE_BYTES],
        }
    }

    /// The head of the slice's unit.
    pub fn head(&self) -> UnitHead {
        let four =
            |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"));
        let eight =
            |at: usize| u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"));
        UnitHead {
            partition: four(8),
            ordinal: four(12),
            generation: eight(16),
            filters: four(24),
            since: four(28),
        }
    }

    /// The page to which filter `i` leads.
    pub fn pointer(&self, i: u32) -> u32 {
        let at = HEADER_BYTES + 4 * i as usize;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    /// Appends the pages that may hold `key` to `into`, newest first, by an AND of its rows.
    pub fn ask(&self, shape: &Shape, key: &Fingerprint, into: &mut Vec<u32>) {
        let row_bytes = shape.chain_max.div_ceil(8) as usize;
        let mut all = [0xffu8; PAGE_BYTES / 8];
        for row in shape.rows_of(key) {
            let at = rows_at(shape) + row as usize * row_bytes;
            let bytes = &self.bytes[at..at + row_bytes];
            all.iter_mut()
                .zip(bytes)
                .for_each(|(all, byte)| *all &= byte);
        }
        let filters = self.head().filters;
        let is_set = |i: &u32| all[*i as usize / 8] >> (i % 8) & 1 == 1;
        into.extend((0..filters).rev().filter(is_set).map(|i| self.pointer(i)));
    }

    /// Appends the part of `filter` for slice `number`, as filter `i` of the unit.
    pub fn append(&mut self, shape: &Shape, number: u32, i: u32, filter: &[u8]) {
        let at = HEADER_BYTES + 4 * i as usize;
        self.bytes[at..at + 4].copy_from_slice(&filter[..POINTER_BYTES]);
        let row_bytes = shape.chain_max.div_ceil(8) as usize;
        for row in 0..shape.rows {
            let bit = (number * shape.rows + row) as usize;
            if filter[POINTER_BYTES + bit / 8] >> (bit % 8) & 1 == 1 {
                self.bytes[rows_at(shape) + row as usize * row_bytes + i as usize / 8] |=
                    1 << (i % 8);
            }
        }
    }

    /// Completes the slice as page `page` of its file.
    pub fn seal(&mut self, head: UnitHead, page: u32) -> &[u8] {
        self.bytes[8..12].copy_from_slice(&head.partition.to_le_bytes());
        self.bytes[12..16].copy_from_slice(&head.ordinal.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&head.generation.to_le_bytes());
        self.bytes[24..28].copy_from_slice(&head.filters.to_le_bytes());
        self.bytes[28..32].copy_from_slice(&head.since.to_le_bytes());
        seal_page(&mut self.bytes, page);
        &self.bytes
    }
}

fn rows_at(shape: &Shape) -> usize {
    HEADER_BYTES + 4 * shape.chain_max as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_shape_for_no_filters_and_for_more_than_a_page_takes() {
        for (chain_max, filter_bytes) in [(0, 64), (u32::MAX, 64), (96, u32::MAX), (96, 4)] {
            let shape = Shape::new(chain_max, filter_bytes, 64, 0, None);
            assert_eq!(shape, None, "{chain_max} of {filter_bytes}");
        }
    }

    /// The bit-sliced form gives the same answers as the filters one by one.
    #[test]
    fn slices_answer_as_filters_in_ram_do() {
        for (chain_max, filter_bytes) in [(96, 64), (128, 64), (64, 128), (10, 32), (256, 64)] {
            let shape = Shape::new(chain_max, filter_bytes, 64, 0, None).expect("shape");
            let key = |i: u64| {
                let mut bytes = [0; 32];
                for (j, eight) in bytes.chunks_exact_mut(8).enumerate() {
                    let hash = (i * 4 + j as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    eight.copy_from_slice(
                        &(hash ^ hash >> 29)
                            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
                            .to_le_bytes(),
                    );
                }
                Fingerprint(bytes)
            };
            let mut slices: Vec<ChainPage> =
                (0..shape.slices).map(|_| ChainPage::empty()).collect();
            let filters: Vec<Vec<u8>> = (0..chain_max)
                .map(|i| {
                    let mut filter = vec![0; filter_bytes as usize];
                    filter[..4].copy_from_slice(&(i * 7).to_le_bytes());
                    (0..64).for_each(|j| shape.set(&mut filter, &key(u64::from(i) * 64 + j)));
                    filter
                })
                .collect();
            for (number, slice) in (0..).zip(&mut slices) {
                for (i, filter) in (0..).zip(&filters) {
                    slice.append(&shape, number, i, filter);
                }
                slice.seal(
                    UnitHead {
                        filters: chain_max,
                        ..UnitHead::default()
                    },
                    number,
                );
            }
            for i in 0..u64::from(chain_max) * 80 {
                let mut found = Vec::new();
                slices[shape.slice_of(&key(i)) as usize].ask(&shape, &key(i), &mut found);
                let naive: Vec<u32> = filters
                    .iter()
                    .rev()
                    .filter(|filter| shape.may_hold(filter, &key(i)))
                    .map(|filter| pointer_of(filter))
                    .collect();
                assert_eq!(found, naive);
            }
        }
    }
}
