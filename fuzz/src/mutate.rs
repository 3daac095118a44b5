//! Seeded mutations of bytes.

use onefold_io::Random;

use crate::mend::PAGE_BYTES;
use crate::targets::Target;

const INTERESTING: &[u64] = &[
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Changes to one input.
const CHANGES_MAX: u64 = 4;
/// Bytes at each end of an input that describe the rest.
const ENDS_BYTES: usize = 512;
/// The same of a page.
const HEAD_BYTES: usize = 64;

/// Makes one input after the other, the same for the same seed.
pub struct Mutator(Random);

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self(Random(seed))
    }

    /// One of the target's seeds, changed in some places, and half of the time made to look whole again.
    pub fn mutate(&mut self, target: &Target) -> Vec<u8> {
        let mut bytes = self.changed(target);
        let looks_whole = self.below(2) == 0;
        if let Some(mend) = target.mend.as_ref().filter(|_| looks_whole) {
            mend(&mut bytes);
        }
        bytes
    }

    /// The same as it comes out of the changes.
    pub fn changed(&mut self, target: &Target) -> Vec<u8> {
        let mut bytes = self.pick(&target.seeds);
        for _ in 0..=self.0.next() % CHANGES_MAX {
            let other = self.pick(&target.seeds);
            if target.in_pages {
                self.change_in_page(&mut bytes, &other)
            } else {
                self.change(&mut bytes, &other)
            }
        }
        bytes
    }

    fn pick(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        match seeds.len() {
            0 => Vec::new(),
            len => seeds[self.below(len)].clone(),
        }
    }

    /// A change within one page, which leaves all others at their places; seldom a page of `other` in its place, or
    /// none any more. What tells of a page's records stands at its beginning.
    fn change_in_page(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let start = self.below(bytes.len().div_ceil(PAGE_BYTES).max(1)) * PAGE_BYTES;
        let end = (start + PAGE_BYTES).min(bytes.len());
        match self.below(24) {
            0 => bytes.truncate(start),
            1 => {
                let pages = other.chunks_exact(PAGE_BYTES);
                let from = self.below(pages.len().max(1));
                if let Some(page) = pages.into_iter().nth(from)
                    && end - start == PAGE_BYTES
                {
                    bytes[start..end].copy_from_slice(page);
                }
            }
            place => {
                let end = if place % 2 == 0 {
                    end.min(start + HEAD_BYTES)
                } else {
                    end
                };
                let mut part = bytes[start..end].to_vec();
                self.change(&mut part, other);
                part.resize(end - start, 0);
                bytes[start..end].copy_from_slice(&part);
            }
        }
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.place(bytes.len());
        let len = 1 << self.below(5);
        match self.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 if at < bytes.len() => bytes[at] = self.0.next() as u8,
            3 | 4 => self.number(bytes, at),
            5 => {
                bytes.drain(at..(at + len).min(bytes.len()));
            }
            6 => {
                let from = self.below(other.len() + 1);
                let piece = &other[from..(from + len * 4).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            7 if self.below(4) == 0 => bytes.truncate(at),
            _ => bytes.push(self.0.next() as u8),
        }
    }

    /// Anywhere, but half of the time near an end: headers, tables and footers are short, what they tell of is long.
    fn place(&mut self, len: usize) -> usize {
        match self.below(4) {
            0 => self.below(len.min(ENDS_BYTES) + 1),
            1 => len - self.below(len.min(ENDS_BYTES) + 1),
            _ => self.below(len + 1),
        }
    }

    /// A number at a bound, 1 to 8 bytes or a varint wide.
    fn number(&mut self, bytes: &mut [u8], at: usize) {
        let value = INTERESTING[self.below(INTERESTING.len())];
        let mut written = value.to_le_bytes().to_vec();
        written.truncate([1, 2, 4, 8][self.below(4)]);
        if self.below(3) == 0 {
            written.clear();
            onefold_io::varint::put_varint(&mut written, value);
        }
        for (place, byte) in bytes[at..].iter_mut().zip(written) {
            *place = byte;
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
}
