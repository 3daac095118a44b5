//! Bytes of large files on their way to the store, which takes one file after another.
//!
//! All files share one budget. The first file that has not sent everything may fill it, so that a disk always has as
//! much to read for that file as there is room. Files behind it get half of the budget: then few bytes that were read
//! too early lie idle. The first file gets room from the files before it, which the store takes sooner; so no files
//! wait for each other in a circle.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Bytes of one file in the budget, and whether the file still has bytes to send.
struct QueuedFile {
    used: usize,
    sends: bool,
}

#[derive(Default)]
struct QueueState {
    used: usize,
    next: u64,
    /// Files on their way, in the order in which the store takes them.
    files: BTreeMap<u64, QueuedFile>,
}

impl QueueState {
    /// Whether `bytes` more of file `id` fit. A part larger than the whole budget goes alone; so does a file that is
    /// read anew while files behind it take up the room.
    fn fits(&self, id: u64, bytes: usize, max: usize) -> bool {
        let first = self.files.iter().find(|(_, file)| file.sends);
        let limit = if first.is_some_and(|(first, _)| *first == id) {
            max
        } else {
            max / 2
        };
        self.used + bytes <= limit || self.files.range(..=id).all(|(_, file)| file.used == 0)
    }

    /// Counts `bytes` for file `id`; returns `false` where its place is left.
    fn take(&mut self, id: u64, bytes: usize) -> bool {
        let file = self.files.get_mut(&id);
        let is_there = file.is_some();
        if let Some(file) = file {
            file.used += bytes;
            self.used += bytes;
        }
        is_there
    }
}

/// Bytes of large files on their way to the store, counted by file in walk order.
pub struct LargeFileQueue {
    max: usize,
    state: Mutex<QueueState>,
    freed: Condvar,
}

/// One file's place in the queue of large files.
#[derive(Clone)]
pub struct QueuePlace {
    id: u64,
    ahead: Arc<LargeFileQueue>,
}

impl LargeFileQueue {
    /// Makes the budget: at most `max` bytes for all files together.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Enters a file behind all that entered before.
    pub fn enter(self: &Arc<Self>) -> QueuePlace {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        let file = QueuedFile {
            used: 0,
            sends: true,
        };
        state.files.insert(id, file);
        drop(state);
        QueuePlace {
            id,
            ahead: self.clone(),
        }
    }
}

impl QueuePlace {
    /// Waits until `bytes` fit. Returns false once the place is left.
    pub fn take(&self, bytes: usize) -> bool {
        let mut state = self.ahead.state.lock();
        while state.files.contains_key(&self.id) && !state.fits(self.id, bytes, self.ahead.max) {
            self.ahead.freed.wait(&mut state);
        }
        state.take(self.id, bytes)
    }

    /// Takes `bytes` if they fit now, and the place is not left; returns whether it did.
    pub fn try_take(&self, bytes: usize) -> bool {
        let mut state = self.ahead.state.lock();
        state.fits(self.id, bytes, self.ahead.max) && state.take(self.id, bytes)
    }

    /// Gives `bytes` back to the budget.
    pub fn free(&self, bytes: usize) {
        let mut state = self.ahead.state.lock();
        let QueueState { used, files, .. } = &mut *state;
        if let Some(file) = files.get_mut(&self.id) {
            file.used -= bytes;
            *used -= bytes;
        }
        self.ahead.freed.notify_all();
    }

    /// Notes that the file has sent everything, unless it must be sent anew: the next file may have all the room.
    pub fn sent(&self) {
        if let Some(file) = self.ahead.state.lock().files.get_mut(&self.id) {
            file.sends = false;
        }
        self.ahead.freed.notify_all();
    }

    /// Gives back all bytes of the file: the store takes no more of it, and a waiting reader is woken.
    pub fn leave(&self) {
        let mut state = self.ahead.state.lock();
        let left = state.files.remove(&self.id);
        state.used -= left.map_or(0, |file| file.used);
        self.ahead.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(place: &QueuePlace, bytes: usize) -> bool {
        place
            .ahead
            .state
            .lock()
            .fits(place.id, bytes, place.ahead.max)
    }

    #[test]
    fn the_first_file_that_has_not_sent_all_may_fill_the_room_and_those_behind_it_half() {
        let ahead = LargeFileQueue::new(100);
        let (first, second, third) = (ahead.enter(), ahead.enter(), ahead.enter());
        assert!(second.take(30) && third.take(20));
        assert!(!fits(&second, 1) && !fits(&third, 1));
        assert!(first.take(50));
        assert!(!fits(&first, 1), "all is full");
        first.free(20);
        assert!(fits(&first, 20) && !fits(&second, 1));

        first.sent();
        assert!(fits(&second, 20) && !fits(&second, 21) && !fits(&third, 1));
        first.leave();
        assert!(fits(&second, 50) && !fits(&second, 51), "it gave back all");
        assert!(!first.take(1), "nobody takes it out");
    }

    #[test]
    fn who_is_taken_first_gets_room_though_it_is_larger_than_all_or_comes_anew() {
        let ahead = LargeFileQueue::new(100);
        let (first, second) = (ahead.enter(), ahead.enter());
        assert!(second.take(10));
        assert!(first.take(1000), "larger than all");
        assert!(!fits(&first, 1));
        first.sent();
        first.free(1000);
        assert!(second.take(90));
        assert!(first.take(10), "anew, while others have all the room");
        assert!(!fits(&first, 1) && !fits(&second, 1));
        first.free(10);
        assert!(fits(&first, 1));
    }

    #[test]
    fn who_waits_is_woken_when_there_is_room_and_let_go_when_its_place_is_left() {
        let ahead = LargeFileQueue::new(100);
        let (first, second) = (ahead.enter(), ahead.enter());
        assert!(first.take(100));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| second.take(60));
            first.sent();
            first.free(60);
            assert!(waits.join().expect("no panic"));
            let waits = scope.spawn(|| second.take(60));
            second.leave();
            assert!(!waits.join().expect("no panic"));
        });
    }
}
