//! Randomness as a value that is passed in: the system's, or a seeded stream that makes a simulated run repeat exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Message of the panic where the operating system has no randomness to give. A program that wants to end with an error
/// instead recognises it by these words.
pub const NO_RANDOMNESS: &str = "the operating system gives no randomness";

/// The source of names, salts and keys. Clones share the stream.
#[derive(Clone, Debug)]
pub struct Entropy(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Seeded { seed: u64, drawn: Arc<AtomicU64> },
}

impl Entropy {
    /// The operating system's randomness.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A stream that depends on `seed` alone. For tests: it keeps no secret.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded {
            seed,
            drawn: Arc::default(),
        })
    }

    /// Fills `out`.
    ///
    /// # Panics
    /// Where the operating system has no randomness to give: nothing safe can be done then.
    pub fn fill(&self, out: &mut [u8]) {
        match &self.0 {
            Source::System => match getrandom::fill(out) {
                Ok(()) => {}
                Err(error) => panic!("{NO_RANDOMNESS}: {error}"),
            },
            Source::Seeded { seed, drawn } => {
                let n = drawn.fetch_add(1, Ordering::Relaxed);
                let mut hasher = blake3::Hasher::new();
                hasher.update(&seed.to_le_bytes()).update(&n.to_le_bytes());
                hasher.finalize_xof().fill(out);
            }
        }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A random number.
    pub fn u64(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
