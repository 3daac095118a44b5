//! The classic Bloom filter in RAM (Bloom 1970).

use onefold_chunk::Fingerprint;

use onefold_io::Dir;
use onefold_io::varint::put_varint;

use super::page_shape::word;
use super::saved::{self, Saved, number, put_words};
use onefold_index::{Error, Filter, Result};

/// The largest filter: 2^36 bits, 8 GiB.
const BITS_MAX: f64 = (1u64 << 36) as f64;

/// The classic Bloom filter: a key sets k bits anywhere in it.
pub struct Bloom {
    words: Vec<u64>,
    hashes: u32,
}

impl Bloom {
    /// A filter for `keys` keys at the false-positive rate `rate`: M = −N·ln f/(ln 2)² bits, k = M/N·ln 2.
    ///
    /// # Errors
    /// [`Error::Budget`] for more than 8 GiB.
    pub fn new(keys: u64, rate: f64) -> Result<Bloom> {
        let ln2 = std::f64::consts::LN_2;
        Bloom::with_bits(-(keys.max(1) as f64) * rate.ln() / (ln2 * ln2), keys)
    }

    /// A filter of `bytes` bytes, with the number of hashes that is best for `keys` keys.
    ///
    /// # Errors
    /// [`Error::Budget`] for more than 8 GiB.
    pub fn with_bytes(bytes: usize, keys: u64) -> Result<Bloom> {
        Bloom::with_bits(bytes as f64 * 8.0, keys)
    }

    fn with_bits(bits: f64, keys: u64) -> Result<Bloom> {
        let bits = bits.max(64.0);
        let hashes = bits / keys.max(1) as f64 * std::f64::consts::LN_2;
        Ok(Bloom {
            words: words(bits)?,
            // the file format allows at most 64 hashes
            hashes: hashes.round().clamp(1.0, 64.0) as u32,
        })
    }

    /// Saves the filter as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]; the name then belongs to the old content or to the whole new one.
    pub fn save(&self, dir: &dyn Dir, name: &str) -> Result<()> {
        let mut body = Vec::new();
        put_varint(&mut body, self.hashes.into());
        put_words(&mut body, self.words.iter());
        saved::save(dir, name, Saved::Bloom, &body)
    }

    /// Loads the filter that was saved as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the file is not whole or holds another kind of filter; [`Error::Io`], also where there
    /// is none.
    pub fn load(dir: &dyn Dir, name: &str) -> Result<Bloom> {
        saved::load(dir, name, Saved::Bloom, |reader| {
            let hashes = number(reader, 1, 64)? as u32;
            let words = saved::words(reader, 1)?;
            Ok(Bloom { words, hashes })
        })
    }

    fn bits(&self, key: &Fingerprint) -> impl Iterator<Item = u64> + use<> {
        let (start, step, bits) = (
            word(key, 0),
            word(key, 1) | 1,
            self.words.len() as u128 * 64,
        );
        (0..u64::from(self.hashes)).map(move |i| {
            ((u128::from(start.wrapping_add(i.wrapping_mul(step))) * bits) >> 64) as u64
        })
    }
}

impl Filter for Bloom {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        for (key, present) in keys.iter().zip(present) {
            *present = self
                .bits(key)
                .all(|bit| self.words[bit as usize / 64] >> (bit % 64) & 1 == 1);
        }
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        for key in keys {
            for bit in self.bits(key) {
                self.words[bit as usize / 64] |= 1 << (bit % 64);
            }
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        self.words.capacity() * 8
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
