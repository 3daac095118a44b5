//! How long a request is tried again: with pauses that double, each a random part of that, so that machines which
//! failed together do not come back together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_store::Entropy;

use crate::http::Traffic;

/// Waits for this many milliseconds; false where the caller should give up at once.
pub type Pause = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// Longest first pause, in milliseconds.
const FIRST_MS: u64 = 200;
/// No pause is longer, in milliseconds.
const PAUSE_MS_MAX: u64 = 10_000;
/// All pauses of a request together, in milliseconds, before the store has ever answered. A user who mistyped its name
/// must hear of it soon.
const FIRST_PATIENCE_MS: u64 = 5_000;

/// The pauses of one request.
pub(crate) struct RequestPatience<'a> {
    traffic: &'a Traffic,
    entropy: &'a Entropy,
    pause: &'a Pause,
    patience_ms: u64,
    tries: u32,
    /// Pauses so far, in milliseconds.
    waited_ms: u64,
    began: Instant,
}

impl<'a> RequestPatience<'a> {
    /// For a request that is tried again for `patience`.
    pub fn new(
        traffic: &'a Traffic,
        entropy: &'a Entropy,
        pause: &'a Pause,
        patience: Duration,
    ) -> Self {
        Self {
            traffic,
            entropy,
            pause,
            patience_ms: patience.as_millis() as u64,
            tries: 0,
            waited_ms: 0,
            began: Instant::now(),
        }
    }

    /// Waits before the next attempt, as long as the store asked at least, in seconds; false where there is none.
    pub fn wait(&mut self, asked_s: u64) -> bool {
        let patience = if self.traffic.has_answered() {
            self.patience_ms
        } else {
            self.patience_ms.min(FIRST_PATIENCE_MS)
        };
        // An attempt may take a minute until it is given up: that counts, too.
        let passed_ms = self.began.elapsed().as_millis() as u64;
        if self.waited_ms.max(passed_ms) >= patience {
            return false;
        }
        let pause_max = (FIRST_MS << self.tries.min(16)).min(PAUSE_MS_MAX);
        self.tries += 1;
        let jitter = 1 + self.entropy.u64() % pause_max;
        let pause_ms = jitter.max(asked_s.saturating_mul(1000)).min(patience);
        // The longest that it could have been: how often is tried does not depend on chance.
        self.waited_ms += pause_ms.max(pause_max);
        (self.pause)(pause_ms)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::PATIENCE;

    fn pauses(answered: bool, asked_s: u64) -> Vec<u64> {
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&pauses);
        let pause: Pause = Arc::new(move |ms| {
            noted.lock().push(ms);
            true
        });
        let traffic = Traffic::new(None, None);
        if answered {
            traffic.note_answer();
        }
        let entropy = Entropy::seeded(1);
        let mut patience = RequestPatience::new(&traffic, &entropy, &pause, PATIENCE);
        while patience.wait(asked_s) {}
        pauses.lock().clone()
    }

    #[test]
    fn pauses_grow_to_a_limit_and_end() {
        let pauses = pauses(true, 0);
        assert!(pauses[0] <= FIRST_MS && pauses.iter().all(|ms| *ms <= PAUSE_MS_MAX));
        assert!(pauses.iter().any(|ms| *ms > PAUSE_MS_MAX / 2));
        assert!((30..40).contains(&pauses.len()), "{}", pauses.len());
    }

    #[test]
    fn attempts_that_take_long_are_not_many() {
        let traffic = Traffic::new(None, None);
        traffic.note_answer();
        let (entropy, pause): (_, Pause) = (Entropy::seeded(1), Arc::new(|_| true));
        let mut patience = RequestPatience::new(&traffic, &entropy, &pause, PATIENCE);
        assert!(patience.wait(0));
        patience.began -= PATIENCE;
        assert!(!patience.wait(0), "an attempt that took five minutes");
    }

    #[test]
    fn who_is_not_there_at_all_is_given_up_soon() {
        assert!(pauses(false, 0).iter().sum::<u64>() <= 10_000);
    }

    #[test]
    fn what_the_store_asks_for_is_kept() {
        assert!(pauses(true, 7).iter().all(|ms| *ms >= 7_000));
        let endless = pauses(true, u64::MAX);
        assert_eq!(endless, [PATIENCE.as_millis() as u64]);
    }

    #[test]
    fn who_is_interrupted_waits_no_longer() {
        let pause: Pause = Arc::new(|_| false);
        let traffic = Traffic::new(None, None);
        let entropy = Entropy::seeded(1);
        assert!(!RequestPatience::new(&traffic, &entropy, &pause, PATIENCE).wait(0));
    }
}
