//! `quotient`: a growing quotient filter (rank-select, Pandey and others 2017) from the crate `qfilter`, as a yardstick
//! for filters in RAM.
//!
//! The filter keeps some bits of each key's hash, so that it can be doubled without the keys: a bit of each moves from
//! the compared part to the address. Invariant: its fingerprints are the low bits of a word of ours, so that two
//! runs are alike.

use onefold_chunk::Fingerprint;
use onefold_io::Dir;
use onefold_io::varint::put_varint;

use super::page_shape::word;
use super::saved::{self, Saved, each, number};
use onefold_index::{Error, Filter, Result};

/// The filter `quotient`: in RAM, doubled when it is full.
pub struct Quotient {
    filter: qfilter::Filter,
}

impl Quotient {
    /// A filter for `keys` keys now and up to `keys_max`, at which the false-positive rate is `rate`.
    ///
    /// # Errors
    /// [`Error::Budget`] for more keys, at such a low rate, than a quotient filter can have.
    pub fn new(keys: u64, keys_max: u64, rate: f64) -> Result<Quotient> {
        let keys_max = keys_max.max(keys);
        let filter = qfilter::Filter::new_resizeable(keys, keys_max, rate);
        // The filter takes at most 64 bits a key.
        let budget_bytes = (keys_max as usize).saturating_mul(8);
        Ok(Quotient {
            filter: filter.map_err(|error| too_large(budget_bytes, &error))?,
        })
    }

    /// Saves the filter as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]; the name then belongs to the old content or to the whole new one.
    pub fn save(&self, dir: &dyn Dir, name: &str) -> Result<()> {
        let mut body = Vec::new();
        put_varint(&mut body, self.filter.capacity());
        put_varint(&mut body, self.filter.fingerprint_size().into());
        put_varint(&mut body, self.filter.len());
        let mut before = 0;
        for fingerprint in self.filter.fingerprints() {
            put_varint(&mut body, fingerprint - before);
            before = fingerprint;
        }
        saved::save(dir, name, Saved::Quotient, &body)
    }

    /// Loads the filter that was saved as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the file is not whole or holds another kind of filter; [`Error::Io`], also where there
    /// is none.
    pub fn load(dir: &dyn Dir, name: &str) -> Result<Quotient> {
        saved::load(dir, name, Saved::Quotient, |reader| {
            let capacity = number(reader, 0, 1 << 40)?;
            let bits = number(reader, 7, 64)? as u8;
            let entries = reader.count(1)?;
            // a larger capacity would be an allocation that the file's content does not account for
            let capacity = capacity.min(entries as u64 * 4 + 64);
            let filter = qfilter::Filter::with_fingerprint_size(capacity, bits);
            let mut filter = filter.map_err(|error| reader.damaged(error.to_string()))?;
            let mut fingerprint = 0u64;
            for _ in 0..entries {
                let step = reader.varint()?;
                fingerprint = fingerprint
                    .checked_add(step)
                    .ok_or_else(|| reader.damaged("fingerprints that do not ascend".into()))?;
                filter
                    .insert_fingerprint(true, fingerprint)
                    .map_err(|error| reader.damaged(error.to_string()))?;
            }
            Ok(Quotient { filter })
        })
    }
}

fn too_large(budget_bytes: usize, error: &qfilter::Error) -> Error {
    Error::Budget {
        budget_bytes,
        what: format!("quotient filter: {error}"),
    }
}

impl Filter for Quotient {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        each(keys, present, |key| {
            self.filter.contains_fingerprint(word(key, 0))
        });
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        for key in keys {
            self.filter
                .insert_fingerprint(false, word(key, 0))
                .map_err(|error| too_large(self.filter.memory_usage(), &error))?;
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        self.filter.memory_usage()
    }
}
