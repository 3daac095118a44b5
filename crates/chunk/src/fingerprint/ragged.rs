//! Leaves shorter than a KiB of many messages side by side: BLAKE3's compression of one block each, with a length, a
//! counter and flags for each lane.
//!
//! The functions of the crate `blake3` take several inputs only where all are equally long and their last block is
//! full. Without this module these leaves were hashed one by one, a quarter of the time that chunks of 8 KiB took. A
//! chunk of up to 1 KiB is such a leaf, too. Here leaves of the same number of blocks go through vectors (`wide`)
//! together; where the CPU has no vectors, or for few leaves, each is compressed alone. Tests compare all with BLAKE3
//! itself.

use alloc::vec::Vec;
use blake3::platform::Platform;
use blake3::{BLOCK_LEN, CHUNK_LEN};

use super::leaf::{HashLeaf, LANES};
use super::order::longest_first;

/// Fewer leaves than this in a group are not worth a vector.
const LANES_MIN: usize = 3;

/// Compresses all leaves; they come back in another order, without empty ones.
pub fn compress<'a>(
    platform: Platform,
    mode: u8,
    mut leaves: Vec<HashLeaf<'a>>,
) -> Vec<HashLeaf<'a>> {
    leaves.retain(|leaf| !leaf.data.is_empty() && leaf.data.len() <= CHUNK_LEN);
    let mut leaves = longest_first(&leaves, HashLeaf::blocks);
    for group in leaves.chunks_mut(LANES) {
        if group.len() < LANES_MIN || !side_by_side(mode, group) {
            alone(platform, mode, group);
        }
    }
    leaves
}

/// The number of whole leaves that `platform` takes at once without idle lanes: fewer are faster in this module. 1
/// where this CPU has no vectors for them.
pub fn whole_together(platform: Platform) -> usize {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if super::wide::Width::best().is_some() {
        // Eight lanes take half the time of sixteen.
        return platform.simd_degree().min(8);
    }
    let _ = platform;
    1
}

/// Compresses block by block, all leaves in step, so that the processor may overlap them.
fn alone(platform: Platform, mode: u8, leaves: &mut [HashLeaf<'_>]) {
    for step in 0..CHUNK_LEN / BLOCK_LEN {
        for leaf in &mut *leaves {
            if let Some(block) = leaf.block(step, mode) {
                let (length, counter) = (block.length, leaf.counter);
                platform.compress_in_place(
                    &mut leaf.cv,
                    &block.bytes,
                    length,
                    counter,
                    block.flags,
                );
            }
        }
    }
}

/// Compresses the leaves in vectors; `false` where this CPU has none.
fn side_by_side(mode: u8, group: &mut [HashLeaf<'_>]) -> bool {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    return match super::wide::Width::best() {
        Some(width) => {
            super::wide::compress(width, mode, group);
            true
        }
        None => false,
    };
    #[cfg(not(all(feature = "std", target_arch = "x86_64")))]
    {
        let _ = (mode, group);
        false
    }
}

#[cfg(all(test, feature = "std", target_arch = "x86_64"))]
mod tests {
    use super::super::transpose;
    use super::super::wide::{self, Width};
    use super::*;

    #[test]
    fn lanes_compress_as_each_leaf_alone() {
        let data: Vec<u8> = (0..40_000u32).map(|i| ((i * i) >> 5) as u8).collect();
        let leaves = || -> Vec<HashLeaf<'_>> {
            let mut all: Vec<HashLeaf<'_>> = (0..LANES)
                .map(|lane| HashLeaf {
                    data: &data[lane * 1024..][..1 + (lane * 397 + lane) % 1024],
                    counter: (lane as u64) << 29 | 5,
                    last: lane as u8 & 8,
                    cv: [lane as u32; 8],
                    number: lane,
                })
                .collect();
            all.sort_unstable_by_key(|leaf| core::cmp::Reverse(leaf.blocks()));
            all
        };
        let cvs = |leaves: &[HashLeaf<'_>]| -> Vec<_> {
            leaves.iter().map(|leaf| (leaf.number, leaf.cv)).collect()
        };
        let mut one_by_one = leaves();
        alone(Platform::detect(), 16, &mut one_by_one);
        let run = |way: &dyn Fn(&mut [HashLeaf<'_>])| {
            let mut side_by_side = leaves();
            way(&mut side_by_side);
            assert_eq!(cvs(&side_by_side), cvs(&one_by_one));
        };
        run(&|leaves| wide::lanes(16, leaves, transpose::plain));
        // Every width that this CPU has is tested, not only the widest.
        for width in [Width::Avx2, Width::Avx512] {
            if width.is_there() {
                run(&|leaves| wide::compress(width, 16, leaves));
            }
        }
    }
}
