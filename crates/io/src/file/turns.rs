//! Writes through the page cache and writes past it take turns: many of one kind at once, never both kinds.
//!
//! The kernel keeps both coherent, but where they meet in one large folio at the same time, it may report the next sync
//! as failed (`dio_warn_stale_pagecache`), and a failed sync is one that we never forgive.

use parking_lot::{Condvar, Mutex};

/// The writers at present: the number of those through the cache, or the negative number of those past it.
#[derive(Default)]
pub(super) struct Turns {
    writers: Mutex<i64>,
    changed: Condvar,
}

/// The two ways to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteMode {
    Cached = 1,
    Direct = -1,
}

/// Held while writing.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    way: WriteMode,
}

impl Turns {
    /// Waits until no write goes the other way.
    pub fn take(&self, way: WriteMode) -> Turn<'_> {
        let mut writers = self.writers.lock();
        self.changed
            .wait_while(&mut writers, |writers| *writers * (way as i64) < 0);
        *writers += way as i64;
        Turn { turns: self, way }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut writers = self.turns.writers.lock();
        *writers -= self.way as i64;
        if *writers == 0 {
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    #[test]
    fn both_kinds_never_meet() {
        let turns = Turns::default();
        let now = AtomicI64::new(0);
        std::thread::scope(|scope| {
            for way in [
                WriteMode::Cached,
                WriteMode::Direct,
                WriteMode::Cached,
                WriteMode::Direct,
            ] {
                let (turns, now) = (&turns, &now);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _turn = turns.take(way);
                        let before = now.fetch_add(way as i64, SeqCst);
                        assert!(before * way as i64 >= 0, "{before} of the other kind");
                        std::thread::yield_now();
                        now.fetch_sub(way as i64, SeqCst);
                    }
                });
            }
        });
    }
}
