//! Hints of ranges, which users give while volumes are served: chunks that are written or read there have them besides
//! those of their requests.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

use super::Front;
use super::state::FrontShared;
use crate::hints::{HintKind, HintRanges, NO_END};
use crate::{Error, HeadId, Hints, Result};

/// The hinted ranges of all volumes.
#[derive(Default)]
pub(super) struct Hinting {
    ranges: RwLock<HintRanges>,
    /// Whether there are any: most volumes have none.
    is_used: AtomicBool,
}

impl Hinting {
    /// The ranges, where there are any.
    fn in_use(&self) -> Option<RwLockReadGuard<'_, HintRanges>> {
        let is_used = self.is_used.load(Ordering::Acquire);
        is_used.then(|| self.ranges.read())
    }

    /// Changes the ranges.
    fn change<T>(&self, change: impl FnOnce(&mut HintRanges) -> T) -> T {
        let mut ranges = self.ranges.write();
        let done = change(&mut ranges);
        self.is_used.store(ranges.count() > 0, Ordering::Release);
        done
    }
}

impl FrontShared {
    /// Hints of chunks by their place, in their order.
    pub fn hints_at(&self, places: impl Iterator<Item = (HeadId, u64)>) -> Vec<Hints> {
        let Some(ranges) = self.hinting.in_use() else {
            return places.map(|_| Hints::default()).collect();
        };
        let now = self.now().unwrap_or(0);
        places
            .map(|(head, lbn)| ranges.at(head, lbn, now))
            .collect()
    }

    /// Whether any of these chunks has the hint PREFETCH by its place.
    pub fn is_prefetched(&self, head: HeadId, mut lbns: Range<u64>) -> bool {
        self.hinting.in_use().is_some_and(|ranges| {
            let now = self.now().unwrap_or(0);
            lbns.any(|lbn| ranges.at(head, lbn, now).prefetch)
        })
    }

    /// How many hinted ranges there are.
    pub fn hinted_ranges(&self) -> u64 {
        if self.hinting.in_use().is_none() {
            return 0;
        }
        let now = self.now().unwrap_or(0);
        self.hinting.change(|ranges| {
            ranges.drop_ended(now);
            ranges.count() as u64
        })
    }
}

impl Front {
    /// Gives hints for ranges of chunks: what is written or read there has them, until they are ended or have lasted
    /// for so long. They are advice, and last no longer than this front.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there are too many ranges, or they are to end and the front has no clock.
    pub fn hint(
        &self,
        head: HeadId,
        lbns: &[Range<u64>],
        kinds: &[HintKind],
        lasts: Option<Duration>,
    ) -> Result<()> {
        let now = self.shared.now();
        let until = match (lasts, now) {
            (None, _) => NO_END,
            (Some(lasts), Some(now)) => {
                now.saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX))
            }
            (Some(_), None) => {
                return Err(Error::Invalid {
                    what: "a front without a clock cannot end hints by themselves".into(),
                });
            }
        };
        self.shared.hinting.change(|ranges| {
            kinds
                .iter()
                .try_for_each(|kind| ranges.insert(head, *kind, lbns, until, now.unwrap_or(0)))
        })
    }

    /// Ends hints of some kinds for ranges of chunks, or, without ranges, for the whole volume.
    pub fn unhint(&self, head: HeadId, lbns: Option<&[Range<u64>]>, kinds: &[HintKind]) {
        let end = |ranges: &mut HintRanges| ranges.remove(head, kinds, lbns);
        self.shared.hinting.change(end);
    }

    /// How many hinted ranges there are, of all volumes.
    pub fn hinted_ranges(&self) -> u64 {
        self.shared.hinted_ranges()
    }
}
