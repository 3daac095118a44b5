//! A page of a run: some 240 records in packed bits, sorted by hash. A record is a hash, a proof, and the place in the
//! log where its fingerprint stands.
//!
//! Hash and proof are the first 16 bytes of the fingerprint: a lookup that finds both needs no other page to know that
//! they match. Invariant: hashes rise strictly within a page and from page to page. A page that had no room for all
//! hashes that belong to it has the overflow flag, and the next page begins with the rest.

use onefold_chunk::Fingerprint;

use super::bits;
use super::page::{PAGE_BYTES, check_page_of, seal_page_of};
use crate::{Error, Result};

/// checksum:u64 base:u64 count:u16 rest_bits:u8 value_bits:u8 flags:u8 zero[3]
const HEADER_BYTES: usize = 24;
const OVERFLOW: u8 = 1;

/// Bytes of a fingerprint behind its hash that a run keeps: with the hash they are its first 16.
pub const PROOF_BYTES: usize = 9;
/// Largest number of records on a page: each takes a bit of rest, three of value and its proof.
pub const PAGE_RECORDS_MAX: u64 = (PAGE_BYTES * 8 / (1 + 3 + PROOF_BYTES * 8)) as u64;
/// Bits of a value besides the log page: two for the span, one for a removal.
const VALUE_FLAG_BITS: u32 = 3;
/// Span number for a span too far behind in its log page: the page must be read to know the container.
pub const SPAN_UNKNOWN: u8 = 3;

/// The proof of a fingerprint: the [`PROOF_BYTES`] bytes behind the hash.
#[inline]
pub fn proof_of(key: &Fingerprint) -> [u8; PROOF_BYTES] {
    key.0[7..16].try_into().expect("nine bytes")
}

/// A record of a run: a hash of [`HASH_BITS`](super::run::HASH_BITS) bits, and where in the log its fingerprint stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunRecord {
    /// The upper bits of the fingerprint.
    pub hash: u64,
    /// Number of the log page, counted from the first that the run speaks of.
    pub page: u32,
    /// Number of the span in the page that the record belongs to; [`SPAN_UNKNOWN`] for the fourth and all behind it.
    pub span: u8,
    /// Whether the log's record removes the fingerprint.
    pub removed: bool,
    /// The bytes of the fingerprint behind the hash, see [`proof_of`].
    pub proof: [u8; PROOF_BYTES],
}

/// The answer of a page to a question for a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageAnswer {
    /// The record of the hash.
    Found(RunRecord),
    /// No page of the run holds the hash.
    Absent,
    /// The next page must be asked, because this one overflowed.
    Next,
}

/// How records are packed into the pages of one partition.
#[derive(Clone, Copy, Debug)]
pub struct RecordPacking {
    /// Bits for the difference between a hash and the first hash of its page.
    pub rest_bits: u32,
    /// Bits for the page, the span and the removed bit.
    pub value_bits: u32,
}

/// Bits of a value where log pages are numbered below `log_pages`.
pub fn value_bits(log_pages: u32) -> u32 {
    bits::width_of(u64::from(log_pages.max(1) - 1)) + VALUE_FLAG_BITS
}

impl RecordPacking {
    /// The number of records that fit into a page.
    pub fn records_a_page(&self) -> usize {
        ((PAGE_BYTES - HEADER_BYTES) * 8 - 14)
            / (self.rest_bits as usize + self.value_bits as usize + PROOF_BYTES * 8)
    }

    /// Whether `rest_bits` can express `hash` on a page whose first hash is `base`.
    pub fn reaches(&self, base: u64, hash: u64) -> bool {
        hash - base <= bits::mask(self.rest_bits)
    }

    /// Appends a page of `records` to `out`; it will be page `number` of the file that has this mark.
    pub fn write(
        &self,
        records: &[RunRecord],
        overflow: bool,
        (mark, number): (u64, u32),
        out: &mut Vec<u8>,
    ) {
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
        let (values_at, proofs_at) = self.places(records.len());
        for (i, record) in records.iter().enumerate() {
            bits::put(body, i * rests, self.rest_bits, record.hash - base);
            let value = u64::from(record.page) << VALUE_FLAG_BITS
                | u64::from(record.span) << 1
                | u64::from(record.removed);
            bits::put(body, values_at * 8 + i * values, self.value_bits, value);
            let at = proofs_at + i * PROOF_BYTES;
            body[at..at + PROOF_BYTES].copy_from_slice(&record.proof);
        }
        seal_page_of(page, mark, number);
    }

    /// The offsets in the page's body of the values and of the proofs of `records` records.
    fn places(&self, records: usize) -> (usize, usize) {
        let values_at = (records * self.rest_bits as usize).div_ceil(8);
        (
            values_at,
            values_at + (records * self.value_bits as usize).div_ceil(8),
        )
    }
}

/// A page of a run whose checksum and shape were checked.
#[derive(Clone, Copy)]
pub struct RunPage<'a> {
    base: u64,
    len: usize,
    packing: RecordPacking,
    overflow: bool,
    body: &'a [u8],
}

impl<'a> RunPage<'a> {
    /// Checks checksum and shape of a page; `page` counts within the file `path`, which has this mark.
    pub fn check(bytes: &'a [u8], mark: u64, path: &str, page: u32) -> Result<RunPage<'a>> {
        check_page_of(bytes, mark, path, page)?;
        let len = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
        let packing = RecordPacking {
            rest_bits: bytes[18].into(),
            value_bits: bytes[19].into(),
        };
        let sane = (1..=bits::WIDTH_MAX).contains(&packing.rest_bits)
            && (VALUE_FLAG_BITS..=31 + VALUE_FLAG_BITS).contains(&packing.value_bits);
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

    /// The number of records on the page.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Decodes record `i`.
    pub fn record(&self, i: usize) -> RunRecord {
        let (values_at, proofs_at) = self.packing.places(self.len);
        let value = bits::get(
            self.body,
            values_at * 8 + i * self.packing.value_bits as usize,
            self.packing.value_bits,
        );
        let at = proofs_at + i * PROOF_BYTES;
        RunRecord {
            hash: self.hash(i),
            page: (value >> VALUE_FLAG_BITS) as u32,
            span: (value >> 1) as u8 & 3,
            removed: value & 1 == 1,
            proof: self.body[at..at + PROOF_BYTES]
                .try_into()
                .expect("nine bytes"),
        }
    }

    /// Searches the page for `hash`.
    pub fn ask(&self, hash: u64) -> PageAnswer {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = (low + high) / 2;
            match self.hash(middle).cmp(&hash) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return PageAnswer::Found(self.record(middle)),
            }
        }
        if low == self.len && self.overflow {
            PageAnswer::Next
        } else {
            PageAnswer::Absent
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
