//! What `strata` is opened with.

use crate::{Error, Result};

/// The least budget: a small tail, a small cache and the buffers of one merge.
pub const RAM_BUDGET_BYTES_MIN: usize = 1 << 20;

/// How an index `strata` works; nothing of it is stored, each opener chooses its own.
#[derive(Clone, Debug)]
pub struct StrataOptions {
    /// All RAM the index may hold: tail, filters, cache, buffers. At least 1 MiB.
    pub ram_budget_bytes: usize,
    /// Merge in a thread of its own. Without, merges run inside `checkpoint`, and a simulated run repeats exactly.
    pub background_merges: bool,
    /// Goes into the names of the files that this opener makes. Random, or a seed where a run must repeat: two openers that live at
    /// once on one folder must differ in it.
    pub unique: u64,
}

impl StrataOptions {
    /// The default budget (64 MiB), merges in the background.
    pub fn new(unique: u64) -> StrataOptions {
        StrataOptions {
            ram_budget_bytes: 64 << 20,
            background_merges: true,
            unique,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.ram_budget_bytes < RAM_BUDGET_BYTES_MIN {
            return Err(Error::Budget {
                budget_bytes: self.ram_budget_bytes,
                what: format!("strata needs at least {RAM_BUDGET_BYTES_MIN}"),
            });
        }
        Ok(())
    }
}
