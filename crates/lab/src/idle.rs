//! Threads that have nothing to read any more, and help with a large stream that another still reads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many threads are idle. Whoever wants them takes all there are for the time of one buffer.
#[derive(Default, Debug)]
pub struct Helpers(AtomicUsize);

impl Helpers {
    /// So many are idle from the start.
    pub fn new(threads: usize) -> Self {
        Self(AtomicUsize::new(threads))
    }

    /// One more thread is idle, and stays so.
    pub fn join(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Calls `work` with all that are idle, one at least: the caller.
    pub(crate) fn with<T>(&self, work: impl FnOnce(usize) -> T) -> T {
        let taken = self.0.swap(0, Relaxed);
        let made = work(1 + taken);
        self.0.fetch_add(taken, Relaxed);
        made
    }

    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

/// Calls `work` for parts of `0..len`, one a thread, and gives what they made, in order. Of threads that the system
/// does not have the caller does the work.
pub(crate) fn side_by_side<T: Send>(
    len: usize,
    threads: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let part = len.div_ceil(threads).max(1);
    let range = |i: usize| (i * part).min(len)..((i + 1) * part).min(len);
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads)
            .map(|i| std::thread::Builder::new().spawn_scoped(scope, move || work(range(i))))
            .collect();
        let mut made = vec![work(range(0))];
        for (i, other) in (1..).zip(others) {
            let Ok(other) = other else {
                made.push(work(range(i)));
                continue;
            };
            let done = other.join();
            made.push(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    })
}
