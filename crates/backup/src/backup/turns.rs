//! Turns to compute.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Turns to compute: fewer than threads that read, so that what one has in a core's cache is not pushed out by others.
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

    /// Whoever has a turn waits for nobody.
    pub(super) fn with<T>(&self, compute: impl FnOnce() -> T) -> T {
        // Both ends are here: neither fails.
        let _ = self.1.recv();
        let _turn = Turn(&self.0);
        compute()
    }
}

/// Goes back when it is dropped, by a panic too.
struct Turn<'a>(&'a Sender<()>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
