//! Keys: from a password to a master key, and from that to everything that seals, fingerprints and proves.
//!
//! The way down: a [`Slot`] wraps a master key, and some bytes of its owner's, under a password. The master key gives
//! the [`Keys`], and these a [`Sealer`] for each salt. Where slots are stored, and under which names, is the owner's
//! affair: a repository has them as objects, a volume as files.
#![forbid(unsafe_code)]

mod entropy;
mod error;
mod kdf;
mod keys;
mod sealer;
mod secret;
mod slot;

pub use entropy::{Entropy, NO_RANDOMNESS};
pub use error::{Error, Result};
pub use kdf::KdfCost;
pub use keys::{Fingerprinter, Keys};
pub use sealer::{SALT_BYTES, Sealer, TAG_BYTES};
pub use secret::Secret;
pub use slot::{KeyInfo, MASTER_BYTES, NewSlot, SLOT, Slot, Unwrapped};
