//! Memory for requests in flight: bounded for each connection and for all of them, and used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onefold_volume::Buffer;
use parking_lot::{Condvar, Mutex};

/// Idle buffers kept, in bytes.
const IDLE_BYTES_MAX: usize = 32 << 20;

/// Memory of requests, shared by all connections.
pub struct Memory {
    state: Mutex<State>,
    returned: Condvar,
    bytes_max: usize,
    connection_bytes_max: usize,
}

#[derive(Default)]
struct State {
    lent_bytes: usize,
    idle: Vec<Buffer>,
    idle_bytes: usize,
}

/// Memory that one connection has borrowed, in bytes.
#[derive(Default)]
pub struct Share(AtomicUsize);

/// The right to some memory, given back when it is dropped.
pub struct Permit {
    memory: Arc<Memory>,
    share: Arc<Share>,
    bytes: usize,
}

impl Memory {
    /// At most `bytes_max` bytes are lent, to one connection a quarter of them. Either may be exceeded by one request
    /// that is larger than that.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            returned: Condvar::new(),
            bytes_max,
            connection_bytes_max: bytes_max / 4,
        })
    }

    /// Waits until there are `bytes` for this connection. A thread that waits holds nothing, so the wait ends when
    /// requests do.
    pub fn take(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Permit {
        let mut state = self.state.lock();
        loop {
            if let Some(permit) = self.lend(&mut state, share, bytes) {
                return permit;
            }
            self.returned.wait(&mut state);
        }
    }

    /// The same without waiting.
    pub fn try_take(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Option<Permit> {
        self.lend(&mut self.state.lock(), share, bytes)
    }

    fn lend(
        self: &Arc<Self>,
        state: &mut State,
        share: &Arc<Share>,
        bytes: usize,
    ) -> Option<Permit> {
        let fits = |lent: usize, max: usize| lent == 0 || lent.saturating_add(bytes) <= max;
        let own = share.0.load(Relaxed);
        if !fits(state.lent_bytes, self.bytes_max) || !fits(own, self.connection_bytes_max) {
            return None;
        }
        state.lent_bytes += bytes;
        share.0.fetch_add(bytes, Relaxed);
        Some(Permit {
            memory: self.clone(),
            share: share.clone(),
            bytes,
        })
    }

    /// A buffer of `bytes` bytes. Its content is whatever it was.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        let mut state = self.state.lock();
        let found = state.idle.iter().rposition(|buffer| buffer.len() == bytes);
        match found {
            Some(place) => {
                state.idle_bytes -= bytes;
                state.idle.swap_remove(place)
            }
            None => {
                drop(state);
                Buffer::zeroed(bytes)
            }
        }
    }

    /// Keeps a buffer for the next request, if there are not too many.
    pub fn keep(&self, buffer: Buffer) {
        let mut state = self.state.lock();
        if buffer.is_empty() {
            return;
        }
        while state.idle_bytes + buffer.len() > IDLE_BYTES_MAX && !state.idle.is_empty() {
            let oldest = state.idle.swap_remove(0);
            state.idle_bytes -= oldest.len();
        }
        if state.idle_bytes + buffer.len() <= IDLE_BYTES_MAX {
            state.idle_bytes += buffer.len();
            state.idle.push(buffer);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.memory.state.lock();
        state.lent_bytes -= self.bytes;
        self.share.0.fetch_sub(self.bytes, Relaxed);
        drop(state);
        self.memory.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_lent_than_there_is_and_what_is_returned_is_lent_again() {
        let memory = Memory::new(400);
        let (ann, bob) = (Arc::default(), Arc::default());
        let first = memory.try_take(&ann, 60).expect("there are 400");
        assert!(
            memory.try_take(&ann, 60).is_none(),
            "100 for each connection"
        );
        let large = memory.try_take(&bob, 300).expect("one may be larger");
        assert!(
            memory.try_take(&Arc::default(), 60).is_none(),
            "of 400 there are 40"
        );
        drop(large);
        assert!(memory.try_take(&Arc::default(), 60).is_some());
        drop(first);
        assert!(memory.try_take(&ann, 100).is_some());
    }

    #[test]
    fn a_buffer_of_the_same_length_is_used_again() {
        let memory = Memory::new(1 << 20);
        let buffer = memory.buffer(4096);
        let start = buffer.as_ptr();
        memory.keep(buffer);
        assert_ne!(memory.buffer(8192).as_ptr(), start);
        assert_eq!(memory.buffer(4096).as_ptr(), start);
    }
}
