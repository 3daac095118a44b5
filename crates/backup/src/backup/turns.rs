//! Turns to compute.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Turns to compute: fewer than threads that read, so that other threads do not push data out of a core's cache.
#[derive(Clone)]
pub struct Turns(Sender<()>, Receiver<()>);

impl Turns {
    pub fn new(at_once: usize) -> Self {
        let (sender, receiver) = bounded(at_once);
        for _ in 0..at_once {
            let _ = sender.send(());
        }
        Self(sender, receiver)
    }

    /// Runs `compute` in a turn. `compute` must not wait for other threads.
    pub(super) fn with<T>(&self, compute: impl FnOnce() -> T) -> T {
        // Both ends of the channel are here, so receiving cannot fail.
        let _ = self.1.recv();
        let _turn = Turn(&self.0);
        compute()
    }
}

/// Gives the turn back when it is dropped, by a panic too.
struct Turn<'a>(&'a Sender<()>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
