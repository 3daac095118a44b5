//! The end of requests when the program is to end: a signal must not wait for a store that stands still.
//!
//! Invariant: once the program is to end, each request ends soon, with an answer or without one. Requests that take
//! back what others would wait for (sessions, locks) have some more time than others.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whether the program is to end.
pub type IsEnding = Arc<dyn Fn() -> bool + Send + Sync>;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a request for an object has from the signal on.
const OBJECT_GRACE: Duration = Duration::from_secs(1);
/// Time that a request for a register has from then on.
const REGISTER_GRACE: Duration = Duration::from_secs(2);

/// The time that requests have.
pub(crate) struct Ending {
    is_ending: IsEnding,
    /// When it was first seen that the program is to end, or when the last requests for registers began.
    since: Mutex<Option<Instant>>,
}

impl Ending {
    pub fn new(is_ending: IsEnding) -> Self {
        Self {
            is_ending,
            since: Mutex::new(None),
        }
    }

    /// Gives the last requests for registers their time, from now on.
    pub fn begin_last(&self) {
        *self.since.lock() = Some(Instant::now());
    }

    /// Ends when a request is to end; `for_register`: one for a session or a lock.
    pub async fn over(&self, for_register: bool) {
        let grace = if for_register {
            REGISTER_GRACE
        } else {
            OBJECT_GRACE
        };
        loop {
            match self.since() {
                Some(since) if since.elapsed() >= grace => return,
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    fn since(&self) -> Option<Instant> {
        let mut since = self.since.lock();
        if since.is_none() && (self.is_ending)() {
            *since = Some(Instant::now());
        }
        *since
    }
}
