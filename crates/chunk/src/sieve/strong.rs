//! The strong hash of a window, by which candidates compete.

use aes::Aes128;
use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::WINDOW;

/// Fractional digits of π, as constants that nobody chose.
const PI: [u64; 5] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
];

/// A hash of 32 bytes to 64 bits.
#[derive(Clone)]
pub enum Strong {
    /// Two folded 128-bit products, and a third of their sum, with fixed constants, so that equal data is cut alike
    /// everywhere.
    Fold,
    /// AES-128 in CBC-MAC: a pseudo-random function of the fixed-length window.
    Aes(Box<Aes128>),
}

impl Strong {
    pub fn unkeyed() -> Self {
        Self::Fold
    }

    pub fn keyed(key: &[u8; 32]) -> Self {
        let own = blake3::derive_key("onefold v1 sieve cut points", key);
        Self::Aes(Box::new(
            Aes128::new_from_slice(&own[..16]).expect("16 bytes are a key"),
        ))
    }

    /// Appends to `hashes` the hash of the window before each of `ends`, all of them at least a window long.
    pub fn hash_all(&self, data: &[u8], ends: impl Iterator<Item = usize>, hashes: &mut Vec<u64>) {
        let windows = ends.map(|end| data[..end].last_chunk::<WINDOW>().expect("a window"));
        match self {
            Self::Fold => hashes.extend(windows.map(fold_window)),
            Self::Aes(cipher) => mac_all(cipher, windows, hashes),
        }
    }
}

/// Number of windows encrypted side by side: one encryption takes as long as many that overlap.
const LANES: usize = 64;

fn fold_window(window: &[u8; WINDOW]) -> u64 {
    let (words, _) = window.as_chunks::<8>();
    let word = |i: usize| u64::from_le_bytes(words[i]) ^ PI[i];
    let mixed = fold(word(0), word(1)).rotate_left(29) ^ fold(word(2), word(3));
    fold(mixed ^ PI[0], PI[4])
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn mac_all<'a>(
    cipher: &Aes128,
    mut windows: impl Iterator<Item = &'a [u8; WINDOW]>,
    hashes: &mut Vec<u64>,
) {
    let mut blocks = [Block::<Aes128>::default(); LANES];
    let mut seconds = [[0u8; 16]; LANES];
    loop {
        let mut count = 0;
        for ((block, second), window) in blocks.iter_mut().zip(&mut seconds).zip(&mut windows) {
            let (halves, _) = window.as_chunks();
            *block = halves[0].into();
            *second = halves[1];
            count += 1;
        }
        let blocks = &mut blocks[..count];
        cipher.encrypt_blocks(blocks);
        for (block, second) in blocks.iter_mut().zip(&seconds) {
            // A copy of its own: the compiler then handles sixteen bytes at once, since nothing else can change it.
            let first: [u8; 16] = (*block).into();
            *block = core::array::from_fn::<_, 16, _>(|i| first[i] ^ second[i]).into();
        }
        cipher.encrypt_blocks(blocks);
        hashes.extend(
            blocks
                .iter()
                .map(|block| u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))),
        );
        if count < LANES {
            return;
        }
    }
}
