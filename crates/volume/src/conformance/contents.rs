//! Random requests: of any length and alignment, with contents that repeat often.

use std::ops::Range;

use onefold_io::Random;

/// Chooses places and contents.
pub struct Contents {
    random: Random,
    /// Number of different contents of a sector; 0 stands for zeros.
    kinds: u64,
}

/// Contents repeat in units of this many bytes, so that chunks of any size do.
const SECTOR_BYTES: usize = 512;

impl Contents {
    /// A generator for a seed, with `kinds` different contents.
    pub fn new(seed: u64, kinds: u64) -> Self {
        Self {
            random: Random(seed),
            kinds,
        }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// A range within `bytes`, of 1 byte to 1 MiB, mostly short; sometimes aligned.
    pub fn range(&mut self, bytes: u64) -> Range<u64> {
        let longest = [512, 4096, 16 << 10, 128 << 10, 1 << 20][self.below(5) as usize];
        let unit = [1, 512, 4096][self.below(3) as usize];
        let length = (1 + self.below(longest)).next_multiple_of(unit).min(bytes);
        let start = self.below(bytes - length + 1) / unit * unit;
        start..start + length
    }

    /// Bytes for a write at `offset`. Whole sectors of the device repeat what was written elsewhere; now and then a
    /// write is zeros, or the same in each sector.
    pub fn bytes(&mut self, range: &Range<u64>) -> Vec<u8> {
        let fixed = match self.below(8) {
            0 => Some(0),
            1 => Some(self.below(self.kinds)),
            _ => None,
        };
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let skip = (at % SECTOR_BYTES as u64) as usize;
            let kind = match fixed {
                Some(kind) => kind,
                // Neighbouring sectors go together, so that long chunks repeat, too.
                None if skip == 0 && !at.is_multiple_of(64 << 10) => self.random.0 % self.kinds,
                None => self.below(self.kinds),
            };
            let sector = sector(kind);
            let count = (SECTOR_BYTES - skip).min((range.end - at) as usize);
            bytes.extend_from_slice(&sector[skip..skip + count]);
            at += count as u64;
        }
        bytes
    }
}

fn sector(kind: u64) -> Vec<u8> {
    match kind {
        0 => vec![0; SECTOR_BYTES],
        kind => Random(kind).bytes(SECTOR_BYTES),
    }
}
