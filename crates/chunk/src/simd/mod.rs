//! The searches of the chunkers that compare bytes instead of hashing them, many bytes at a time.
//!
//! [`Simd`] is the only way in: one exists only for an instruction set that this CPU has, so its methods are safe.
//! Every search gives the result of the loop over single bytes on every instruction set; [`Isa::Scalar`] is that loop,
//! and the tests compare the others with it. The idea of finding extrema with packed maxima instead of byte by byte is
//! VectorCDC's (Udayashankar et al., FAST 2025, §4).

mod blocks;
mod scalar;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod vector;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod x86;

use alloc::vec::Vec;
use core::ops::Range;

/// The instructions that compare bytes.
///
/// ```
/// use onefold_chunk::{Chunks, ram::{Isa, Ram}};
///
/// let data: Vec<u8> = (0..50_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let chunks = |isa| Chunks::new(Ram::new(4096).on(isa).unwrap(), &data).count();
/// assert!(Isa::available().into_iter().all(|isa| chunks(isa) == chunks(Isa::Scalar)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// One byte after the other, on every CPU.
    Scalar,
    /// 64 bytes at a time by portable code, which compilers make vectors of, on every CPU.
    Blocks,
    /// 16 bytes at a time.
    Sse2,
    /// 32 bytes at a time, with BMI2.
    Avx2,
    /// 64 bytes at a time, with BMI2.
    Avx512,
}

impl Isa {
    /// The instruction sets that this CPU has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        let own = x86::available();
        #[cfg(not(all(feature = "std", target_arch = "x86_64")))]
        let own = Vec::new();
        [Self::Scalar, Self::Blocks]
            .into_iter()
            .chain(own)
            .collect()
    }
}

/// The searches, on an instruction set that this CPU has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simd(Isa);

/// The state that a search for monotone sequences carries from byte to byte (see [`crate::seqcdc`]).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Slopes {
    /// Directions of the latest steps that were not level, the latest lowest: 1 is up.
    pub ups: u64,
    /// Number of steps down since the last skip.
    pub downs: u32,
}

/// The place where a search for monotone sequences stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlopeEnd {
    /// The position of the last step of a sequence.
    Sequence(usize),
    /// The position of the step down that triggers a skip.
    Downs(usize),
    /// The end of the data: neither was found.
    Nothing,
}

impl Simd {
    /// The searches on the fastest instruction set of this CPU.
    pub fn best() -> Self {
        Self(Isa::available().pop().expect("scalar is always there"))
    }

    /// The searches on `isa`, if the CPU has it.
    pub fn on(isa: Isa) -> Option<Self> {
        Isa::available().contains(&isa).then_some(Self(isa))
    }

    /// The largest byte, 0 without bytes. The search ends at the first 255: nothing is larger.
    pub fn largest(self, data: &[u8]) -> u8 {
        match self.0 {
            Isa::Scalar => scalar::largest(data),
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            Isa::Sse2 | Isa::Avx2 | Isa::Avx512 => x86::largest(self.0, data),
            _ => blocks::largest(data),
        }
    }

    /// The first byte that is at least `least`.
    pub fn position_from(self, data: &[u8], least: u8) -> Option<usize> {
        match self.0 {
            Isa::Scalar => scalar::position_from(data, least),
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            Isa::Sse2 | Isa::Avx2 | Isa::Avx512 => x86::position_from(self.0, data, least),
            _ => blocks::position_from(data, least),
        }
    }

    /// The first position whose eight bytes, as a big-endian number, are more than `than`. The last seven positions are
    /// not searched.
    pub fn position_above(self, data: &[u8], than: u64) -> Option<usize> {
        match self.0 {
            Isa::Scalar => scalar::position_above(data, than, 0),
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            Isa::Sse2 | Isa::Avx2 | Isa::Avx512 => x86::position_above(self.0, data, than),
            _ => blocks::position_above(data, than),
        }
    }

    /// Continues from the step to `data[from]`, `from ≥ 1`, until `length` steps up in succession, or the `trigger`-th
    /// step down. Level steps do not count. `length` is 1 to 16, `trigger` more than `slopes.downs`.
    pub fn slopes(
        self,
        data: &[u8],
        from: usize,
        slopes: &mut Slopes,
        length: u32,
        trigger: u32,
    ) -> SlopeEnd {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        if matches!(self.0, Isa::Avx2 | Isa::Avx512) {
            return x86::slopes(self.0, data, from, slopes, length, trigger);
        }
        scalar::slopes(data, from, slopes, length, trigger)
    }

    /// Prefetches the bytes of `range`; it may reach beyond the end.
    pub fn prefetch(self, data: &[u8], range: Range<usize>) {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        if !matches!(self.0, Isa::Scalar | Isa::Blocks) {
            x86::prefetch(data, range.clone());
        }
        let _ = (data, range);
    }
}

/// Bytes ahead that a search prefetches: more than chunkers of the usual means leap over, and few enough to still be
/// cached when they are reached.
const AHEAD_BYTES: usize = 2560;

/// Prefetches the cache line `AHEAD_BYTES` behind the beginning of `line`; it may lie beyond the data.
#[inline(always)]
pub(crate) fn prefetch_ahead(line: &[u8; 64]) {
    prefetch(line, AHEAD_BYTES..AHEAD_BYTES + 1);
}

/// Prefetches the bytes of `range`; it may reach beyond the end.
#[inline(always)]
pub(crate) fn prefetch(data: &[u8], range: Range<usize>) {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    x86::prefetch(data, range.clone());
    let _ = (data, range);
}

/// The eight bytes from `at` on as a big-endian number.
pub(crate) fn value_at(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}
