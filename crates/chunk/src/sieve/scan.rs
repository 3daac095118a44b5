//! Finding the candidates: the linear pass, on the best instruction set of the CPU.

use super::linear;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// The instructions that compute the linear bits.
///
/// ```
/// use onefold_chunk::{Chunks, sieve::{Isa, Sieve}};
///
/// let data: Vec<u8> = (0..50_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let chunks = |isa| Chunks::new(Sieve::new(4096).on(isa).unwrap(), &data).count();
/// assert!(Isa::available().into_iter().all(|isa| chunks(isa) == chunks(Isa::Scalar)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// Eight positions at a time in a 64-bit register, on every CPU.
    Scalar,
    /// 128 bits at a time.
    Pclmul,
    /// 256 bits at a time.
    Avx2,
    /// 512 bits at a time.
    Avx512,
    /// 128 bits at a time, on AArch64.
    Neon,
}

impl Isa {
    /// The instruction sets that this CPU has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(feature = "std"), expect(unused_mut))]
        let mut found = vec![Self::Scalar];
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        found.extend(super::x86::available());
        #[cfg(all(feature = "std", target_arch = "aarch64"))]
        found.extend(super::aarch64::available());
        found
    }
}

/// The positions to search, `from..to`, and the linear bits of the position before that must be zero.
#[derive(Clone, Copy)]
pub struct Area {
    pub from: usize,
    pub to: usize,
    pub mask: u8,
}

/// Largest number of candidates of a scan, except for those of the last [`STEP`] positions.
pub const FOUND_MAX: usize = 128;
/// Positions that a scan searches at a time.
pub const STEP: usize = 128;

/// Candidate positions, ascending; there is room for those of one step more than [`FOUND_MAX`].
#[derive(Clone)]
pub struct Positions {
    pub(super) positions: Box<[u32; FOUND_MAX + STEP]>,
    pub(super) base: usize,
    pub(super) count: usize,
}

impl Positions {
    /// An empty list.
    pub fn new() -> Self {
        Self {
            positions: Box::new([0; FOUND_MAX + STEP]),
            base: 0,
            count: 0,
        }
    }

    /// The positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let found = &self.positions[..self.count];
        found.iter().map(|position| self.base + *position as usize)
    }

    pub(super) fn push(&mut self, position: usize) {
        self.positions[self.count] = (position - self.base) as u32;
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= FOUND_MAX
    }
}

/// Lists the candidate positions of `area` and returns the first position not searched: `area.to`, or less where
/// [`FOUND_MAX`] were found.
///
/// At least 16 bytes must lie before `area`, and `area` within `data` and shorter than 4 GiB. `isa` must be one that is
/// available; `Sieve` takes it from nowhere else.
pub fn scan(isa: Isa, data: &[u8], area: Area, found: &mut Positions) -> usize {
    (found.base, found.count) = (area.from, 0);
    assert!(2 * linear::REACH <= area.from && area.from <= area.to && area.to <= data.len());
    match isa {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        Isa::Avx512 | Isa::Avx2 | Isa::Pclmul => super::x86::scan(isa, data, area, found),
        #[cfg(all(feature = "std", target_arch = "aarch64"))]
        Isa::Neon => super::aarch64::scan(data, area, found),
        _ => linear::scan(data, area, found),
    }
}
