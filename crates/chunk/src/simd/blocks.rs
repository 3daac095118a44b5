//! The searches in blocks of bytes, without a branch for each byte: compilers make vectors of them that every such CPU
//! has. For CPUs without a version of their own.

use super::{scalar, value_at};

/// Number of bytes compared at once.
const BLOCK: usize = 64;
/// Number of blocks whose largest bytes are combined before the test for 255.
const BLOCKS: usize = 8;

/// The search of [`super::Simd::largest`].
pub fn largest(data: &[u8]) -> u8 {
    let mut found = 0;
    for part in data.chunks(BLOCK * BLOCKS) {
        let (blocks, rest) = part.as_chunks::<BLOCK>();
        let mut lanes = [0; BLOCK];
        for block in blocks {
            lanes = core::array::from_fn(|i| lanes[i].max(block[i]));
        }
        let of_blocks = lanes.iter().fold(0, |largest, byte| (*byte).max(largest));
        let of_rest = rest.iter().fold(0, |largest, byte| (*byte).max(largest));
        found = of_blocks.max(of_rest).max(found);
        if found == u8::MAX {
            break;
        }
    }
    found
}

/// The search of [`super::Simd::position_from`].
pub fn position_from(data: &[u8], least: u8) -> Option<usize> {
    let (blocks, _) = data.as_chunks::<BLOCK>();
    let whole = blocks.iter().position(|block| has(block, least));
    let at = whole.unwrap_or(blocks.len()) * BLOCK;
    Some(at + scalar::position_from(&data[at..], least)?)
}

/// The search of [`super::Simd::position_above`]. A value above `than` begins with a byte that is at least its first.
pub fn position_above(data: &[u8], than: u64) -> Option<usize> {
    let first = than.to_be_bytes()[0];
    let (blocks, _) = data[..data.len().saturating_sub(7)].as_chunks::<BLOCK>();
    for (at, block) in blocks.iter().enumerate() {
        if has(block, first) {
            let positions = at * BLOCK..(at + 1) * BLOCK;
            let found = positions
                .into_iter()
                .find(|at| data[*at] >= first && value_at(data, *at) > than);
            if found.is_some() {
                return found;
            }
        }
    }
    scalar::position_above(data, than, blocks.len() * BLOCK)
}

fn has(block: &[u8; BLOCK], least: u8) -> bool {
    block.iter().fold(0, |largest, byte| (*byte).max(largest)) >= least
}
