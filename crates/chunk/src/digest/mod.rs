//! A digest of a long file's bytes, several times as fast as fingerprints: it tells whether a file has changed.
//!
//! NH, the universal hash of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway, CRYPTO 1999, §4; RFC 4418), makes
//! 32 bytes of each block of 4 KiB, as fast as a core reads memory, and keyed BLAKE3 hashes those. Two files of one
//! length that somebody chose without knowing the key have the same digest with a probability of 2⁻¹²⁸ at most, and
//! BLAKE3's own collisions. With the key such files are easy to make: a digest is never a name, and worthless where the
//! key is no secret.

mod nh;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Bytes of a block, NH's input. All parts of a file's data have this length or a multiple of it, except for the last
/// part before a hole or the end.
pub const BLOCK_BYTES: usize = 4096;

/// NH's result for a block.
type Sums = [u64; nh::PASSES];

/// The digest of a file.
///
/// ```
/// use onefold_chunk::digest::Digester;
///
/// let [one, other] = [1, 2].map(|key| Digester::new(&[key; 32]));
/// assert_eq!(one.digest(b"abc"), one.digest(b"abc"));
/// assert_ne!(one.digest(b"abc"), one.digest(b"abd"));
/// assert_ne!(one.digest(b"abc"), other.digest(b"abc"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Digests files under one key.
///
/// ```
/// use onefold_chunk::digest::{BLOCK_BYTES, Digester};
///
/// let digester = Digester::new(&[7; 32]);
/// let file = vec![1; 10 * BLOCK_BYTES + 5];
/// let mut digest = digester.begin();
/// // Each part by any thread; in order.
/// let (head, tail) = file.split_at(3 * BLOCK_BYTES);
/// digest.push(&digester.part(head));
/// digest.push(&digester.part(tail));
/// assert_eq!(digest.finish(), digester.digest(&file));
/// ```
pub struct Digester {
    words: Box<nh::Key>,
    key: [u8; 32],
}

/// The sums of a part of a file's data: 32 bytes for each block.
///
/// ```
/// use onefold_chunk::digest::{BLOCK_BYTES, Digester};
///
/// let digester = Digester::new(&[7; 32]);
/// let file = vec![1; 5 * BLOCK_BYTES + 1];
/// let parts = file.chunks(2 * BLOCK_BYTES).map(|part| digester.part(part));
/// let mut digest = digester.begin();
/// parts.for_each(|part| digest.push(&part));
/// assert_eq!(digest.finish(), digester.digest(&file));
/// ```
pub struct Part {
    sums: Vec<u8>,
    bytes: u64,
}

/// The digest of a file whose parts and holes come in order. A hole and zeros of the same length have different
/// digests.
///
/// ```
/// use onefold_chunk::digest::Digester;
///
/// let digester = Digester::new(&[7; 32]);
/// let mut digest = digester.begin();
/// assert_eq!(digest.finish(), digester.digest(b""));
/// digest.push(&digester.part(b"abc"));
/// assert_eq!(digest.finish(), digester.digest(b"abc"));
/// digest.hole(3);
/// assert_ne!(digest.finish(), digester.digest(b"abc\0\0\0"));
/// ```
#[derive(Clone)]
pub struct InProgress {
    hasher: blake3::Hasher,
    /// Hash of the positions of holes, once there is one.
    places: Option<Box<blake3::Hasher>>,
    key: [u8; 32],
    /// Length of the file so far; `run_bytes` is that of its data since the last hole.
    bytes: u64,
    run_bytes: u64,
}

impl Digester {
    /// A digester with a key that must serve nothing else.
    pub fn new(key: &[u8; 32]) -> Self {
        let mut bytes = [0; size_of::<nh::Key>()];
        let mut stream = blake3::Hasher::new_keyed(key);
        stream.update(b"NH").finalize_xof().fill(&mut bytes);
        let mut words = Box::new([0; nh::KEY_WORDS]);
        let fours = bytes.as_chunks::<4>().0;
        words
            .iter_mut()
            .zip(fours)
            .for_each(|(word, four)| *word = u32::from_le_bytes(*four));
        Self { words, key: *key }
    }

    /// The sums of a part: whole blocks, or the data up to a hole or the file's end.
    pub fn part(&self, data: &[u8]) -> Part {
        let mut sums = Vec::with_capacity(data.len().div_ceil(BLOCK_BYTES) * size_of::<Sums>());
        let mut put = |block: Sums| {
            let words = block.iter().map(|sum| sum.to_le_bytes());
            words.for_each(|word| sums.extend_from_slice(&word));
        };
        let (blocks, rest) = data.as_chunks::<BLOCK_BYTES>();
        nh::sums(&self.words, blocks, &mut put);
        if !rest.is_empty() {
            let mut last = [0; BLOCK_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            nh::sums(&self.words, &[last], &mut put);
        }
        let bytes = data.len() as u64;
        Part { sums, bytes }
    }

    /// Begins the digest of a file.
    pub fn begin(&self) -> InProgress {
        InProgress {
            hasher: blake3::Hasher::new_keyed(&self.key),
            places: None,
            key: self.key,
            bytes: 0,
            run_bytes: 0,
        }
    }

    /// The digest of a file without holes that is in memory.
    pub fn digest(&self, data: &[u8]) -> Digest {
        let mut digest = self.begin();
        digest.push(&self.part(data));
        digest.finish()
    }
}

impl InProgress {
    /// Adds the next part.
    pub fn push(&mut self, part: &Part) {
        debug_assert!(
            self.run_bytes.is_multiple_of(BLOCK_BYTES as u64),
            "a part behind the end"
        );
        self.hasher.update(&part.sums);
        self.bytes += part.bytes;
        self.run_bytes += part.bytes;
    }

    /// Adds a hole of `len` bytes.
    pub fn hole(&mut self, len: u64) {
        let places = self.places.get_or_insert_with(|| {
            let mut places = Box::new(blake3::Hasher::new_keyed(&self.key));
            places.update(b"holes");
            places
        });
        places.update(&self.bytes.to_le_bytes());
        places.update(&len.to_le_bytes());
        self.bytes += len;
        self.run_bytes = 0;
    }

    /// The digest of the file, after all parts and holes were added.
    pub fn finish(&self) -> Digest {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.bytes.to_le_bytes());
        if let Some(places) = &self.places {
            hasher.update(&half(places));
        }
        Digest(half(&hasher))
    }
}

/// The first half of a hash, 16 bytes.
fn half(hasher: &blake3::Hasher) -> [u8; 16] {
    let all = hasher.finalize();
    let (half, _) = all.as_bytes().split_first_chunk().expect("32 bytes");
    *half
}

#[cfg(test)]
mod tests;
