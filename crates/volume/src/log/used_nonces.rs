//! Nonces that were used, for tests: one that repeats under a salt fails them.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::seals::Salt;

/// Salts and numbers that were used, by all keys of a depot.
pub type Used = Arc<Mutex<HashSet<(Salt, u32)>>>;

/// Numbers that one key has sealed.
pub struct UsedNonces {
    pub salt: Salt,
    pub used: Used,
}

impl UsedNonces {
    /// Fails where the key has sealed under this number before.
    pub fn note(&self, number: u32) {
        let is_new = self.used.lock().insert((self.salt, number));
        assert!(
            is_new,
            "nonce {number} repeats under salt {:02x?}",
            self.salt
        );
    }
}
