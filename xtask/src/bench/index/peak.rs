//! The most RAM that the process held at once, heap and mappings together: looked at every millisecond by a thread.
//!
//! The allocator knows its own peak, but mappings have another, and the two need not fall together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use onefold_io::os::mapped_bytes;

use crate::ALLOCATOR;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(1);

/// See the module. Looks until it is dropped.
pub struct Peak {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is held now, in bytes.
pub fn held() -> usize {
    ALLOCATOR.current_usage() + mapped_bytes()
}

impl Peak {
    /// Begins to look.
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
            // a panic in it was reported by it
            thread.join().ok();
        }
    }
}
