//! Randomness as a value that is passed in: the system's, or a seeded stream that makes a simulated run repeat exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Message of the error, or of the panic of methods that return none, where the operating system has no randomness.
pub const NO_RANDOMNESS: &str = "the system gives no random numbers (getrandom, /dev/urandom): without them no name, key or salt is safe, so nothing more is stored";

/// The source of names, salts and keys. Clones share the stream.
#[derive(Clone, Debug)]
pub struct Entropy(EntropySource);

#[derive(Clone, Debug)]
enum EntropySource {
    System,
    Seeded { seed: u64, drawn: Arc<AtomicU64> },
}

impl Entropy {
    /// The operating system's randomness.
    pub fn system() -> Self {
        Self(EntropySource::System)
    }

    /// A stream that depends on `seed` alone. For tests: it keeps no secret.
    pub fn seeded(seed: u64) -> Self {
        Self(EntropySource::Seeded {
            seed,
            drawn: Arc::default(),
        })
    }

    /// Fills `out`.
    ///
    /// # Errors
    /// [`Error::Machine`]: the operating system has no randomness to give.
    pub fn try_fill(&self, out: &mut [u8]) -> Result<()> {
        match &self.0 {
            EntropySource::System => getrandom::fill(out)
                .map_err(|error| Error::Machine(format!("{NO_RANDOMNESS} ({error})"))),
            EntropySource::Seeded { seed, drawn } => {
                let n = drawn.fetch_add(1, Ordering::Relaxed);
                let mut hasher = blake3::Hasher::new();
                hasher.update(&seed.to_le_bytes()).update(&n.to_le_bytes());
                hasher.finalize_xof().fill(out);
                Ok(())
            }
        }
    }

    /// `N` random bytes.
    ///
    /// # Errors
    /// Errors of [`try_fill`](Self::try_fill).
    pub fn try_bytes<const N: usize>(&self) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.try_fill(&mut out)?;
        Ok(out)
    }

    /// A random number.
    ///
    /// # Errors
    /// Errors of [`try_fill`](Self::try_fill).
    pub fn try_u64(&self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.try_bytes()?))
    }

    /// [`try_bytes`](Self::try_bytes), for callers that cannot fail.
    ///
    /// # Panics
    /// Where the operating system has no randomness to give.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        self.try_bytes().unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`try_u64`](Self::try_u64), for callers that cannot fail.
    ///
    /// # Panics
    /// Where the operating system has no randomness to give.
    pub fn u64(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
