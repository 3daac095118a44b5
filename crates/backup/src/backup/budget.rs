//! A budget of bytes in flight, shared by whoever puts bytes in and whoever takes them out.

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

    /// In bytes.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Waits until `bytes` fit; what is larger than the whole budget waits until nothing else is in flight. False once
    /// closed.
    pub fn take(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.used > 0 && state.used + bytes > self.max {
            self.freed.wait(&mut state);
        }
        state.used += bytes;
        !state.closed
    }

    /// Gives back.
    pub fn free(&self, bytes: usize) {
        self.state.lock().used -= bytes;
        self.freed.notify_all();
    }

    /// Nobody takes anything out any more: whoever waits is let go.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.freed.notify_all();
    }
}
