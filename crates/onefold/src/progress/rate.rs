//! A rate over the last seconds, from a counter that is read now and then.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time over which the rate is taken: long enough to be calm, short enough to follow.
const WINDOW: Duration = Duration::from_secs(5);

/// Past values of the counter.
pub struct Rate {
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Makes a rate; the counter was zero at `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            seen: VecDeque::from([(start, 0)]),
        }
    }

    /// Notes that the counter is `value` now, and returns its growth per second.
    pub fn at(&mut self, now: Instant, value: u64) -> u64 {
        while self.seen.len() > 1 && now.duration_since(self.seen[0].0) > WINDOW {
            self.seen.pop_front();
        }
        let (since, before) = self.seen[0];
        self.seen.push_back((now, value));
        let secs = now.duration_since(since).as_secs_f64();
        if secs > 0.0 {
            (value.saturating_sub(before) as f64 / secs) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_forgets_what_is_long_past() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut rate = Rate::new(start);
        assert_eq!(rate.at(start, 0), 0);
        assert_eq!(rate.at(at(1), 100), 100);
        assert_eq!(rate.at(at(20), 100), 0);
        assert_eq!(rate.at(at(21), 300), 200);
    }
}
