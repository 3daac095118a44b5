//! A gate between threads, which bounds what is under way: bytes, buffers, or threads that compute.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct GateState {
    taken: usize,
    is_closed: bool,
}

/// Bounds how many units are under way at once. A thread that takes more than are free waits.
pub struct Gate {
    units: usize,
    state: Mutex<GateState>,
    freed: Condvar,
}

impl Gate {
    /// Makes a gate of `units` free units.
    pub fn new(units: usize) -> Self {
        Self {
            units,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// The units of the gate, free or not.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Waits until `units` are free, and takes them. A request larger than the whole gate waits until nothing else is
    /// under way. Returns false once the gate is closed.
    pub fn take(&self, units: usize) -> bool {
        let mut state = self.state.lock();
        while !state.is_closed && state.taken > 0 && state.taken + units > self.units {
            self.freed.wait(&mut state);
        }
        state.taken += units;
        !state.is_closed
    }

    /// Gives back `units` that were taken.
    pub fn free(&self, units: usize) {
        self.state.lock().taken -= units;
        self.freed.notify_all();
    }

    /// Closes the gate, since nothing is given back any more: threads that wait are woken.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.freed.notify_all();
    }

    /// Takes `units` as [`take`](Self::take) does, until the pass is dropped.
    pub fn pass(self: &Arc<Self>, units: usize) -> GatePass {
        self.take(units);
        GatePass {
            gate: Arc::clone(self),
            units,
        }
    }

    /// Runs `work` while it holds one unit.
    pub fn with<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _pass = self.pass(1);
        work()
    }
}

/// Units of a gate that were taken, and are given back when the pass is dropped.
pub struct GatePass {
    gate: Arc<Gate>,
    units: usize,
}

impl Drop for GatePass {
    fn drop(&mut self) {
        self.gate.free(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn no_more_is_under_way_than_the_gate_has() {
        let (gate, now) = (Arc::new(Gate::new(3)), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for units in [1, 2, 3, 1] {
                let (gate, now) = (&gate, &now);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let _pass = gate.pass(units);
                        assert!(now.fetch_add(units, SeqCst) + units <= 3);
                        std::thread::yield_now();
                        now.fetch_sub(units, SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_request_larger_than_the_gate_goes_alone() {
        let gate = Arc::new(Gate::new(10));
        assert!(gate.take(100));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.take(1));
            gate.free(100);
            assert!(waits.join().expect("no panic"));
        });
    }

    #[test]
    fn threads_that_wait_are_woken_when_the_gate_closes() {
        let gate = Gate::new(1);
        assert!(gate.take(1));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.take(1));
            gate.close();
            assert!(!waits.join().expect("no panic"));
        });
    }
}
