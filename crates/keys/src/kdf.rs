//! Deriving a key from a password by Argon2id, and the limits of its cost.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use onefold_io::os::prefer_huge_pages;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use zeroize::Zeroizing;

use crate::{Error, Result, Secret};

/// The cost of deriving a key from a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KdfCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Number of passes over the memory.
    pub passes: u32,
    /// Number of lanes.
    pub lanes: u32,
}

impl Default for KdfCost {
    /// RFC 9106 §4, second recommended option: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self {
            memory_kib: 64 * 1024,
            passes: 3,
            lanes: 4,
        }
    }
}

impl KdfCost {
    /// The least cost that the algorithm accepts. For tests.
    pub const LEAST: Self = Self {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };
    /// Largest memory in KiB that a slot may ask for: a damaged or hostile slot must not exhaust the machine.
    const MEMORY_KIB_MAX: u32 = 1 << 20;

    /// The memory written in all passes together, in KiB: proportional to the time of trying a password.
    pub fn work_kib(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    /// Whether the cost is much higher than that of slots made here by default.
    pub fn is_high(self) -> bool {
        self.work_kib() > 4 * Self::default().work_kib()
    }

    /// Checks that the cost is within its limits; `error` makes the error from a description.
    pub(crate) fn check(self, error: impl FnOnce(String) -> Error) -> Result<()> {
        // Eight blocks of 1 KiB a lane are the least that Argon2 takes.
        let sane = (1..=64).contains(&self.lanes)
            && (1..=64).contains(&self.passes)
            && (8 * self.lanes..=Self::MEMORY_KIB_MAX).contains(&self.memory_kib);
        if sane {
            Ok(())
        } else {
            Err(error(format!(
                "a key derivation of {self:?} is out of bounds"
            )))
        }
    }
}

/// The key that `password` and `salt` give at this cost.
///
/// # Errors
/// [`Error::Machine`]: there is no memory for it.
pub(crate) fn stretch(
    password: &Secret,
    salt: &[u8],
    cost: KdfCost,
) -> Result<Zeroizing<[u8; 32]>> {
    let bad = |error: argon2::Error| Error::Machine(format!("key derivation: {error}"));
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(bad)?;
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(params.block_count())
        .map_err(|_| bad(argon2::Error::OutOfMemory))?;
    prefer_huge_pages(memory.spare_capacity_mut());
    // The system hands pages out slowly: all cores ask for them, as they do for the lanes.
    let blocks = (0..params.block_count()).into_par_iter();
    blocks.map(|_| Block::new()).collect_into_vec(&mut memory);
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into_with_memory(password.bytes(), salt, &mut key[..], &mut memory[..])
        .map_err(bad)?;
    Ok(key)
}
