//! The largest RAM of the process, heap and mappings together, sampled by a thread every millisecond.
//!
//! The allocator knows its own peak, but mappings have another, and both need not come at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use onefold_io::os::mapped_bytes;

use crate::ALLOCATOR;

/// Interval of the samples.
const EVERY: Duration = Duration::from_millis(1);

/// A thread that samples the process's RAM until it is dropped.
pub struct Peak {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The present bytes on the heap and in mappings.
pub fn held() -> usize {
    ALLOCATOR.current_usage() + mapped_bytes()
}

impl Peak {
    /// Starts the samples.
    pub fn start() -> Peak {
        let (most, stop) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (of_thread, until) = (Arc::clone(&most), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                of_thread.fetch_max(held(), Ordering::Relaxed);
                std::thread::sleep(EVERY);
            }
        });
        Peak {
            most,
            stop,
            thread: Some(thread),
        }
    }

    /// The most so far, in bytes.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // a panic in the thread was reported by the thread
            thread.join().ok();
        }
    }
}
