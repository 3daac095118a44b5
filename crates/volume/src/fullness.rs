//! When somebody is told that a data device fills: at 80, 90 and 95 % of what counts (pages that are mapped, after a
//! collection), when it is full, and when the last hour's rate would fill it within a day. Each is told once, and again
//! only after it had clearly ceased.

use std::collections::VecDeque;

use crate::FreeSpace;

/// Percentages that are told.
pub const THRESHOLDS: [u64; 4] = [80, 90, 95, 100];
/// A threshold is told again once the device was emptier than it by this many percent.
const CLEARLY_BELOW: u64 = 5;

/// The rate is that of the last hour,
const RATE_SECONDS: u64 = 3600;
/// of which this much must have been seen.
const RATE_SECONDS_MIN: u64 = RATE_SECONDS - 3 * SAMPLE_SECONDS;
/// Seconds between two samples of it.
const SAMPLE_SECONDS: u64 = 60;
/// Told when the device is full within this time at the last hour's rate,
const SOON_SECONDS: u64 = 24 * 3600;

/// Watches how full a device is.
#[derive(Default, Debug)]
pub struct Fullness {
    /// The highest threshold that was told and has not ceased.
    told: u64,
    told_soon: bool,
    /// Seconds, and live pages then: the oldest first.
    samples: VecDeque<(u64, u64)>,
}

/// Message about how full a depot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filling {
    /// The device has reached this percentage, one of [`THRESHOLDS`].
    Reached(u64),
    /// At the last hour's rate it is full after this many seconds, less than a day.
    Soon(u64),
}

impl Fullness {
    /// Looks at the space now, `seconds` after any start, and returns what is to be told.
    pub fn look(&mut self, seconds: u64, space: &FreeSpace) -> Vec<Filling> {
        match space.unseen {
            0 => self.sample(seconds, space.live()),
            // Live pages are not known: a rate would be one of looking.
            _ => self.samples.clear(),
        }
        let mut news = Vec::new();
        let percent = space.full_percent();
        let reached = THRESHOLDS
            .iter()
            .rev()
            .find(|threshold| percent >= **threshold);
        if let Some(reached) = reached.filter(|reached| **reached > self.told) {
            self.told = *reached;
            news.push(Filling::Reached(*reached));
        }
        while self.told > 0 && percent + CLEARLY_BELOW < self.told {
            let below = THRESHOLDS
                .iter()
                .rev()
                .find(|threshold| **threshold < self.told);
            self.told = below.copied().unwrap_or(0);
        }
        match self.seconds_until_full(space) {
            Some(left) if left < SOON_SECONDS => {
                if !std::mem::replace(&mut self.told_soon, true) && percent < 100 {
                    news.push(Filling::Soon(left));
                }
            }
            Some(left) if left < 2 * SOON_SECONDS => {}
            _ => self.told_soon = false,
        }
        news
    }

    fn sample(&mut self, seconds: u64, live: u64) {
        let is_due = self
            .samples
            .back()
            .is_none_or(|(last, _)| seconds >= last + SAMPLE_SECONDS);
        if is_due {
            self.samples.push_back((seconds, live));
        }
        while self
            .samples
            .front()
            .is_some_and(|(first, _)| first + RATE_SECONDS < seconds)
        {
            self.samples.pop_front();
        }
    }

    /// When the device is full at the last hour's rate, in seconds from the last sample. `None`: it does not fill, or
    /// nobody has watched for long enough.
    pub fn seconds_until_full(&self, space: &FreeSpace) -> Option<u64> {
        let ((first, before), (last, now)) = (*self.samples.front()?, *self.samples.back()?);
        let seconds = last - first;
        let filled = now.checked_sub(before).filter(|filled| *filled > 0)?;
        let left =
            u128::from(space.usable() - space.live()) * u128::from(seconds) / u128::from(filled);
        (seconds >= RATE_SECONDS_MIN).then_some(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of 10,300 pages, 300 of them reserved, of which so many are live.
    fn space(live: u64) -> FreeSpace {
        FreeSpace {
            total: 10_300,
            free: 300 + (10_000 - live) / 2,
            reclaimable: 10_000 - live - (10_000 - live) / 2,
            reserved: 300,
            ..FreeSpace::default()
        }
    }

    #[test]
    fn each_threshold_is_told_once_and_again_after_it_ceased() {
        let mut fullness = Fullness::default();
        let mut told = Vec::new();
        for (seconds, percent) in [
            10, 79, 80, 81, 79, 80, 91, 89, 96, 100, 100, 97, 100, 60, 85, 99,
        ]
        .into_iter()
        .enumerate()
        {
            told.extend(fullness.look(seconds as u64, &space(percent * 100)));
        }
        let reached = [80, 90, 95, 100, 80, 95].map(Filling::Reached);
        assert_eq!(told, reached);
    }

    #[test]
    fn fresh_pages_count_as_live() {
        let fresh = FreeSpace {
            fresh: 2000,
            ..space(4100)
        };
        assert_eq!(fresh.full_percent(), 61);
    }

    #[test]
    fn a_device_that_fills_within_a_day_is_told_once() {
        let mut fullness = Fullness::default();
        let mut told = Vec::new();
        // A page a minute: 5,000 pages last for more than three days.
        for minute in 0..60 {
            told.extend(fullness.look(minute * 60, &space(5000 + minute)));
        }
        assert_eq!(told, []);
        let days = fullness.seconds_until_full(&space(5060)).expect("it fills") / 86_400;
        assert_eq!(days, 3);
        for minute in 60..200 {
            told.extend(fullness.look(minute * 60, &space(5060 + 10 * (minute - 60))));
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(matches!(told[0], Filling::Soon(left) if left < 86_400));
        // The depot stands still for an hour, and fills again.
        for minute in 200..270 {
            told.extend(fullness.look(minute * 60, &space(6460)));
        }
        assert_eq!(fullness.seconds_until_full(&space(6460)), None);
        for minute in 270..300 {
            told.extend(fullness.look(minute * 60, &space(6460 + 10 * (minute - 270))));
        }
        assert_eq!(told.len(), 2, "{told:?}");
    }

    #[test]
    fn neither_a_first_copy_nor_a_first_look_is_a_rate() {
        let mut fullness = Fullness::default();
        // A copy of ten minutes into an empty device, and then nothing.
        for minute in 0..55 {
            assert_eq!(fullness.look(minute * 60, &space(400 * minute.min(10))), []);
        }
        let mut fullness = Fullness::default();
        let unseen = FreeSpace {
            unseen: 4000,
            ..space(0)
        };
        for minute in 0..70 {
            assert_eq!(fullness.look(minute * 60, &unseen), []);
        }
        for minute in 70..140 {
            assert_eq!(fullness.look(minute * 60, &space(4000)), []);
        }
    }
}
