//! The Bloom filter in RAM that the engine itself uses: one whose bits for a key lie in one cache line (Putze, Sanders,
//! Singler 2007).

use onefold_chunk::Fingerprint;

use crate::{Error, Filter, Result};

/// Words of a block: a cache line.
const BLOCK_WORDS: usize = 8;
/// The largest filter: 2^36 bits, 8 GiB.
const BITS_MAX: f64 = (1u64 << 36) as f64;
/// The most hashes of a key.
const HASHES_MAX: u32 = 64;

/// A Bloom filter of cache-line blocks: one memory access a key, for some percent more bits at the same rate.
pub struct BlockedBloom {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    hashes: u32,
}

impl BlockedBloom {
    /// A filter for `keys` keys at about the false-positive rate `rate`, with 10 % more bits than the classic Bloom
    /// filter, because blocks fill unequally.
    ///
    /// # Errors
    /// [`Error::Budget`] for more than 8 GiB.
    pub fn new(keys: u64, rate: f64) -> Result<BlockedBloom> {
        let ln2 = std::f64::consts::LN_2;
        let bits = (-(keys.max(1) as f64) * rate.ln() / (ln2 * ln2) * 1.1).max(512.0);
        // the file format allows at most 64 hashes
        let hashes = (-rate.log2()).round().clamp(1.0, HASHES_MAX.into()) as u32;
        let blocks = words(bits)?.len().div_ceil(BLOCK_WORDS);
        Ok(BlockedBloom {
            blocks: vec![[0; BLOCK_WORDS]; blocks],
            hashes,
        })
    }

    /// A filter of `bytes` bytes, with the number of hashes that is best for `keys` keys.
    ///
    /// # Errors
    /// [`Error::Budget`] for more than 8 GiB.
    pub fn with_bytes(bytes: usize, keys: u64) -> Result<BlockedBloom> {
        let bits = (bytes as f64 * 8.0).max(512.0);
        let hashes = (bits / keys.max(1) as f64 * std::f64::consts::LN_2).round();
        Ok(BlockedBloom {
            blocks: vec![[0; BLOCK_WORDS]; words(bits)?.len() / BLOCK_WORDS],
            hashes: hashes.clamp(1.0, 12.0) as u32,
        })
    }

    /// The blocks of the filter and the number of bits that a key sets: the arguments of
    /// [`from_blocks`](Self::from_blocks).
    pub fn blocks(&self) -> (&[[u64; BLOCK_WORDS]], u32) {
        (&self.blocks, self.hashes)
    }

    /// The filter with these blocks (at least one) and `hashes` bits for a key (1 to 64); `None` where either number is
    /// out of range.
    pub fn from_blocks(blocks: Vec<[u64; BLOCK_WORDS]>, hashes: u32) -> Option<BlockedBloom> {
        let is_one = !blocks.is_empty() && (1..=HASHES_MAX).contains(&hashes);
        is_one.then_some(BlockedBloom { blocks, hashes })
    }

    fn block_of(&self, key: &Fingerprint) -> usize {
        ((u128::from(word(key, 0)) * self.blocks.len() as u128) >> 64) as usize
    }

    fn bits(&self, key: &Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let (start, step) = (word(key, 1), word(key, 2) | 1);
        (0..u64::from(self.hashes))
            .map(move |i| (start.wrapping_add(i.wrapping_mul(step)) >> 55) as usize)
    }
}

impl Filter for BlockedBloom {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        for (key, present) in keys.iter().zip(present) {
            let block = &self.blocks[self.block_of(key)];
            *present = self
                .bits(key)
                .all(|bit| block[bit / 64] >> (bit % 64) & 1 == 1);
        }
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        for key in keys {
            let bits = self.bits(key);
            let block = self.block_of(key);
            bits.for_each(|bit| self.blocks[block][bit / 64] |= 1 << (bit % 64));
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_WORDS * 8
    }
}

fn words(bits: f64) -> Result<Vec<u64>> {
    if bits > BITS_MAX {
        return Err(Error::Budget {
            budget_bytes: (BITS_MAX / 8.0) as usize,
            what: format!("a filter of {bits:.0} bits"),
        });
    }
    Ok(vec![0; (bits as usize).div_ceil(64)])
}

/// Eight of the fingerprint's 32 bytes. Fingerprints are uniform, so each eight bytes serve as a hash of their own.
fn word(key: &Fingerprint, number: usize) -> u64 {
    let bytes = &key.0[number * 8..number * 8 + 8];
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
