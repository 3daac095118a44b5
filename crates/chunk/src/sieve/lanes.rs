//! The linear pass over blocks of 64 positions, with any vectors that compute their linear bits.
//!
//! Most steps have no candidate, at most one step in three has one, and nothing tells in advance which: the first
//! candidate of a block is therefore written without a branch, which would be mispredicted half the time.

use super::linear::{self, REACH};
use super::positions::{Area, FOUND_MAX, Positions, STEP};

/// A kind of vectors. All methods are inlined into functions that have the instructions.
pub trait Lanes {
    /// Lanes that go on behind the word `before`; `mask` as in [`Area`].
    ///
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn new(before: u64, mask: u8) -> Self;

    /// For the next 64 positions: those whose linear bits are zero, and those whose masked linear bits are.
    ///
    /// # Safety
    /// The CPU has the instructions, and 64 bytes lie at `at`.
    unsafe fn block(&mut self, at: *const u8) -> (u64, u64);

    /// Prefetches the line of memory at `at`, which may be any address.
    fn prefetch(at: *const u8);
}

/// Bytes ahead that are prefetched: the hardware's own prefetch stops at pages.
const PREFETCH_BYTES: usize = 4096;
/// Number of positions of a [`Lanes::block`].
pub const BLOCK: usize = 64;

/// # Safety
/// The CPU has the instructions of `L`; at least 16 bytes lie before `area`, which lies within `data`.
#[inline(always)]
pub unsafe fn scan_with<L: Lanes>(data: &[u8], area: Area, found: &mut Positions) -> usize {
    let Area { from, to, mask } = area;
    let before = data[from - REACH..].first_chunk().expect("a word");
    // SAFETY: the CPU has the instructions.
    let mut lanes = unsafe { L::new(u64::from_le_bytes(*before), mask) };
    let mut carry = u64::from(linear::bits_at(data, from - 1) & mask == 0);
    let mut t = from;
    while t + STEP <= to {
        let at = data.as_ptr().wrapping_add(t);
        // SAFETY: `STEP` is two blocks, and `t + STEP ≤ to ≤ data.len()`.
        let ((zero, masked), (zero_2, masked_2)) = unsafe {
            let ahead = at.wrapping_add(PREFETCH_BYTES);
            L::prefetch(ahead);
            L::prefetch(ahead.wrapping_add(BLOCK));
            (lanes.block(at), lanes.block(at.add(BLOCK)))
        };
        push(zero & (masked << 1 | carry), t, found);
        push(zero_2 & (masked_2 << 1 | masked >> 63), t + BLOCK, found);
        carry = masked_2 >> 63;
        t += STEP;
        if found.is_full() {
            return t;
        }
    }
    while t < to {
        let rest = &data[t..to];
        let mut block = [0; BLOCK];
        let used = rest.len().min(BLOCK);
        block[..used].copy_from_slice(&rest[..used]);
        // SAFETY: a block was just filled.
        let (zero, masked) = unsafe { lanes.block(block.as_ptr()) };
        let inside = u64::MAX >> (BLOCK - used);
        push(zero & (masked << 1 | carry) & inside, t, found);
        carry = masked >> 63;
        t += used;
    }
    t
}

/// Appends the positions of the set bits.
#[inline(always)]
fn push(mut bits: u64, t: usize, found: &mut Positions) {
    const { assert!(STEP == 2 * BLOCK && FOUND_MAX >= STEP) };
    let base = (t - found.base) as u32;
    // SAFETY: a scan pushes while fewer than `FOUND_MAX` are listed, and then no more than `STEP`, for which there is
    // room; where no bit is set, the place written to is one that counts later, or the last. (The two blocks behind the
    // steps push on to fewer than `FOUND_MAX`, too.)
    let next = unsafe { found.positions.as_mut_ptr().cast::<u32>().add(found.count) };
    // SAFETY: as above.
    unsafe { next.write(base + bits.trailing_zeros()) };
    found.count += usize::from(bits != 0);
    bits &= bits.wrapping_sub(1);
    while bits != 0 {
        // SAFETY: as above.
        let next = unsafe { found.positions.as_mut_ptr().cast::<u32>().add(found.count) };
        // SAFETY: as above.
        unsafe { next.write(base + bits.trailing_zeros()) };
        found.count += 1;
        bits &= bits - 1;
    }
}
