//! Threads without work that help with a large stream which another thread still reads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of idle threads. A thread that wants help takes all of them for the time of one buffer.
#[derive(Default, Debug)]
pub struct Helpers(AtomicUsize);

impl Helpers {
    /// A counter that begins with `threads` idle threads.
    pub fn new(threads: usize) -> Self {
        Self(AtomicUsize::new(threads))
    }

    /// Adds one idle thread, which stays idle.
    pub fn join(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Calls `work` with the number of threads: all idle ones and the caller.
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

/// Calls `work` for parts of `0..len`, one a thread, and returns the results in order. The caller does the work of
/// threads that the system cannot start.
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
