//! Traffic over the network: counted, limited, and watched for standing still.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, Method};
use jiff::fmt::rfc2822;
use object_store::client::{HttpError, HttpErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Requests and bytes of a store's client, and the store's clock.
pub(crate) struct Traffic {
    reads: AtomicU64,
    writes: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// The latest date that an answer had, in Unix seconds; 0 before the first.
    date_unix_s: AtomicI64,
    has_answered: AtomicBool,
    up: Option<Pace>,
    down: Option<Pace>,
}

/// Sums of what went over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WireCounts {
    /// Requests that read: GET and HEAD, lists among them.
    pub reads: u64,
    /// Requests that change something.
    pub writes: u64,
    /// Bytes of bodies that were sent.
    pub sent_bytes: u64,
    /// Bytes of bodies that were received.
    pub received_bytes: u64,
}

impl Traffic {
    /// Limits of traffic up and down, in bytes a second.
    pub fn new(up_bytes_s_max: Option<u64>, down_bytes_s_max: Option<u64>) -> Self {
        Self {
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            date_unix_s: AtomicI64::new(0),
            has_answered: AtomicBool::new(false),
            up: up_bytes_s_max.map(Pace::new),
            down: down_bytes_s_max.map(Pace::new),
        }
    }

    pub fn counts(&self) -> WireCounts {
        WireCounts {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
            received_bytes: self.received.load(Relaxed),
        }
    }

    /// Whether the store has ever answered.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Relaxed)
    }

    /// The store's latest date, in Unix seconds.
    pub fn date_unix_s(&self) -> Option<i64> {
        match self.date_unix_s.load(Relaxed) {
            0 => None,
            date => Some(date),
        }
    }

    /// How old something of this date is by the store's own clock, in seconds.
    pub fn age_s(&self, modified_unix_s: i64) -> Option<u64> {
        let now = self.date_unix_s()?;
        Some(now.saturating_sub(modified_unix_s).max(0) as u64)
    }

    pub(super) fn count(&self, method: &Method) {
        let counter = match *method {
            Method::GET | Method::HEAD => &self.reads,
            _ => &self.writes,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn note_date(&self, headers: &HeaderMap) {
        let date = headers.get("date").and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) {
            let date = date.timestamp().as_second();
            self.date_unix_s.fetch_max(date, Relaxed);
        }
        self.note_answer();
    }

    /// Notes that the store has answered.
    pub(crate) fn note_answer(&self) {
        self.has_answered.store(true, Relaxed);
    }

    /// Takes note of bytes that are about to be sent; gives how long to wait before that.
    pub(super) fn send(&self, bytes: usize) -> Option<Instant> {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.up.as_ref()?.take(bytes)
    }

    /// The same of bytes that came.
    pub(super) fn receive(&self, bytes: usize) -> Option<Instant> {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.down.as_ref()?.take(bytes)
    }
}

/// A rate that is kept on the average: what is taken pushes the time back at which more may go.
struct Pace {
    bytes_s_max: u64,
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    fn new(bytes_s_max: u64) -> Self {
        Self {
            bytes_s_max: bytes_s_max.max(1),
            free_at: Mutex::new(None),
        }
    }

    fn take(&self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_s_max as f64);
        let mut free_at = self.free_at.lock();
        let from = free_at.map_or(now, |at| at.max(now));
        *free_at = Some(from + takes);
        (from > now).then_some(from)
    }
}

/// Sees whether bytes of one request move.
#[derive(Clone)]
pub(super) struct ByteProgress {
    steps: Arc<AtomicU64>,
    stalled_after: Duration,
}

impl ByteProgress {
    pub fn new(stalled_after: Duration) -> Self {
        Self {
            steps: Arc::default(),
            stalled_after,
        }
    }

    /// Something moved.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub fn stalled_after(&self) -> Duration {
        self.stalled_after
    }

    /// Returns the result of `future`, unless nothing moves for too long.
    pub async fn watch<T>(&self, future: impl Future<Output = T>) -> Result<T, HttpError> {
        let mut future = pin!(future);
        loop {
            let before = self.steps.load(Relaxed);
            match tokio::time::timeout(self.stalled_after, future.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(_) if self.steps.load(Relaxed) != before => {}
                Err(_) => return Err(stalled(self.stalled_after)),
            }
        }
    }
}

/// Returns the error of a connection on which nothing has moved for too long.
pub(super) fn stalled(after: Duration) -> HttpError {
    let what = format!("no byte has moved for {} seconds", after.as_secs());
    let error = std::io::Error::new(std::io::ErrorKind::TimedOut, what);
    HttpError::new(HttpErrorKind::Timeout, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_lets_the_first_go_and_makes_the_next_wait_for_it() {
        let pace = Pace::new(1000);
        assert_eq!(pace.take(500), None);
        let first = pace.take(500).expect("half a second later");
        let second = pace.take(1).expect("a second later");
        assert_eq!(second - first, Duration::from_millis(500));
    }

    #[test]
    fn the_age_is_by_the_stores_clock() {
        let traffic = Traffic::new(None, None);
        assert_eq!(traffic.age_s(7), None);
        let mut headers = HeaderMap::new();
        headers.insert("date", "Sat, 28 Nov 2026 12:00:10 GMT".parse().unwrap());
        traffic.note_date(&headers);
        let noon = rfc2822::parse("Sat, 28 Nov 2026 12:00:00 +0000").unwrap();
        let noon = noon.timestamp().as_second();
        assert_eq!(traffic.age_s(noon), Some(10));
        assert_eq!(traffic.age_s(noon + 60), Some(0));
    }
}
