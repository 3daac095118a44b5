//! Hints of byte ranges of a depot's volumes.

use std::ops::Range;
use std::time::Duration;

use super::{Depot, Head};
use crate::hints::HintKind;
use crate::{Error, Result};

impl Depot {
    /// Gives hints for ranges of bytes of a volume, without a name of the first one, until they are ended, have lasted
    /// for so long, or the depot is closed. They hold for each chunk that a range touches.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such volume, a range lies beyond its end, or there are too many of them.
    pub fn hint(
        &self,
        volume: Option<&str>,
        bytes: &[Range<u64>],
        kinds: &[HintKind],
        lasts: Option<Duration>,
    ) -> Result<Head> {
        let head = self.head(volume)?;
        let lbns = self.touched(&head, bytes)?;
        self.front.hint(head.id, &lbns, kinds, lasts)?;
        Ok(head)
    }

    /// Ends hints for ranges of bytes of a volume, or, without ranges, for all of it.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such volume, or a range lies beyond its end.
    pub fn unhint(
        &self,
        volume: Option<&str>,
        bytes: Option<&[Range<u64>]>,
        kinds: &[HintKind],
    ) -> Result<Head> {
        let head = self.head(volume)?;
        let lbns = bytes.map(|bytes| self.touched(&head, bytes)).transpose()?;
        self.front.unhint(head.id, lbns.as_deref(), kinds);
        Ok(head)
    }

    /// How many hinted ranges there are, of all volumes.
    pub fn hinted_ranges(&self) -> u64 {
        self.front.hinted_ranges()
    }

    fn touched(&self, head: &Head, bytes: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let chunk_bytes = u64::from(self.config.chunk_bytes);
        let touched = |range: &Range<u64>| {
            if range.start <= range.end && range.end <= head.bytes {
                Ok(range.start / chunk_bytes..range.end.div_ceil(chunk_bytes))
            } else {
                Err(Error::Invalid {
                    what: format!(
                        "bytes {} to {} are none of volume {}, which has {}",
                        range.start, range.end, head.name, head.bytes
                    ),
                })
            }
        };
        bytes.iter().map(touched).collect()
    }
}
