//! Room for work under way between threads: a number of places; a thread that finds none waits.

use crossbeam_channel::{Receiver, Sender, bounded};

/// A fixed number of places.
pub struct Room(Sender<()>, Receiver<()>);

/// Places that were taken. Dropped, it gives them back.
pub struct Taken(Receiver<()>, usize);

impl Room {
    /// Makes `places` free places.
    pub fn new(places: usize) -> Self {
        let (sender, receiver) = bounded(places);
        Self(sender, receiver)
    }

    /// Waits until this many places are free; a thread that needs more than there are waits for all. Only one may wait
    /// at a time, or two could each hold the places that the other needs.
    pub fn take(&self, places: usize) -> Taken {
        let all = self.0.capacity().unwrap_or(1);
        let places = places.clamp(1, all);
        for _ in 0..places {
            // Both ends are here: it does not fail.
            let _ = self.0.send(());
        }
        Taken(self.1.clone(), places)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for _ in 0..self.1 {
            let _ = self.0.try_recv();
        }
    }
}
