//! Finding the candidates: the linear pass, on the best instruction set of the CPU.

use super::isa::SieveIsa;
use super::linear;
use super::positions::{Area, Positions};
use alloc::vec;
use alloc::vec::Vec;

impl SieveIsa {
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

/// Lists the candidate positions of `area` and returns the first position not searched: `area.to`, or less where
/// [`FOUND_MAX`](super::positions::FOUND_MAX) were found.
///
/// At least 16 bytes must lie before `area`, and `area` within `data` and shorter than 4 GiB. `isa` must be one that is
/// available; `Sieve` takes it from nowhere else.
pub fn scan(isa: SieveIsa, data: &[u8], area: Area, found: &mut Positions) -> usize {
    (found.base, found.count) = (area.from, 0);
    assert!(2 * linear::REACH <= area.from && area.from <= area.to && area.to <= data.len());
    match isa {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        SieveIsa::Avx512 | SieveIsa::Avx2 | SieveIsa::Pclmul => {
            super::x86::scan(isa, data, area, found)
        }
        #[cfg(all(feature = "std", target_arch = "aarch64"))]
        SieveIsa::Neon => super::aarch64::scan(data, area, found),
        _ => linear::scan(data, area, found),
    }
}
