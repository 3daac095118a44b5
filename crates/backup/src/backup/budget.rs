//! A budget of bytes in flight, shared by the threads that put bytes in and those that take them out.

use parking_lot::{Condvar, Mutex};

struct State {
    used: usize,
    closed: bool,
}

/// Bounds the bytes between the readers and the store.
pub struct Budget {
    max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

impl Budget {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            state: Mutex::new(State {
                used: 0,
                closed: false,
            }),
            freed: Condvar::new(),
        }
    }

    /// The whole budget, in bytes.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Waits until `bytes` fit. A request larger than the whole budget waits until nothing else is in flight. Returns
    /// false once the budget is closed.
    pub fn take(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.used > 0 && state.used + bytes > self.max {
            self.freed.wait(&mut state);
        }
        state.used += bytes;
        !state.closed
    }

    /// Gives `bytes` back to the budget.
    pub fn free(&self, bytes: usize) {
        self.state.lock().used -= bytes;
        self.freed.notify_all();
    }

    /// Closes the budget, since nothing is taken out any more: threads that wait are woken.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.freed.notify_all();
    }
}
