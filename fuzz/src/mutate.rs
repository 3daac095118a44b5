//! Seeded mutations of bytes that know frames.

use onefold_io::Random;
use onefold_io::frame::{HEADER_BYTES, TRAILER_BYTES, crc64};

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

/// Makes one input after the other, the same for the same seed.
pub struct Mutator(Random);

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self(Random(seed))
    }

    /// One of `seeds`, changed in some places.
    pub fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let pick = |mutator: &mut Self| match seeds.len() {
            0 => Vec::new(),
            len => seeds[mutator.below(len)].clone(),
        };
        let mut bytes = pick(self);
        let whole = self.below(2) == 0;
        for _ in 0..=self.0.next() % CHANGES_MAX {
            let other = pick(self);
            self.change(&mut bytes, &other);
        }
        if whole {
            mend_frames(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
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

/// Makes the length and checksum of each frame, one after the other from the start, true again. What is no frame stays
/// as it is.
fn mend_frames(bytes: &mut [u8]) {
    let mut at = 0;
    while bytes.len() - at >= HEADER_BYTES + TRAILER_BYTES {
        let there = bytes.len() - at - HEADER_BYTES - TRAILER_BYTES;
        let len_at = at + HEADER_BYTES - 8;
        let mut said = [0; 8];
        said.copy_from_slice(&bytes[len_at..len_at + 8]);
        let len = usize::try_from(u64::from_le_bytes(said)).map_or(there, |said| said.min(there));
        bytes[len_at..len_at + 8].copy_from_slice(&(len as u64).to_le_bytes());
        let end = at + HEADER_BYTES + len;
        let crc = crc64(&bytes[at..end]);
        bytes[end..end + TRAILER_BYTES].copy_from_slice(&crc.to_le_bytes());
        at = end + TRAILER_BYTES;
    }
}
