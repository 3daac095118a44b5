//! Memory for requests in flight: bounded for each connection and for all of them, and used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onefold_volume::Buffer;
use parking_lot::{Condvar, Mutex};

/// Idle buffers kept at most, in bytes.
const IDLE_BYTES_MAX: usize = 32 << 20;

/// Memory of requests, shared by all connections.
pub struct Memory {
    state: Mutex<LentMemory>,
    returned: Condvar,
    bytes_max: usize,
    connection_bytes_max: usize,
    /// Idle buffers kept, in bytes: a quarter of what is lent, so that a small memory stays small.
    idle_bytes_max: usize,
}

#[derive(Default)]
struct LentMemory {
    lent_bytes: usize,
    /// The part of these bytes that payloads may take which have not come whole.
    arriving_bytes: usize,
    /// Threads that wait for memory for a payload.
    waiting_for_arrival: usize,
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
    is_arriving: bool,
}

/// The use of some memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse {
    /// The request is there: it ends when the device has done it.
    Request,
    /// The payload is still to come: its client says how long that takes.
    Arrival,
}

impl Memory {
    /// At most `bytes_max` bytes are lent, to one connection a quarter of them, and half of them to payloads that have
    /// not come whole. Each may be exceeded by one request that is larger than that.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            returned: Condvar::new(),
            bytes_max,
            connection_bytes_max: bytes_max / 4,
            idle_bytes_max: IDLE_BYTES_MAX.min(bytes_max / 4),
        })
    }

    /// Waits until there are `bytes` for this connection. A thread that waits holds nothing, so the wait ends when
    /// requests do.
    pub fn take(self: &Arc<Self>, share: &Arc<Share>, bytes: usize, how: MemoryUse) -> Permit {
        let mut state = self.state.lock();
        loop {
            if let Some(permit) = self.lend(&mut state, share, bytes, how) {
                return permit;
            }
            let arrivals = usize::from(how == MemoryUse::Arrival);
            state.waiting_for_arrival += arrivals;
            self.returned.wait(&mut state);
            state.waiting_for_arrival -= arrivals;
        }
    }

    /// Whether a client waits for memory that others hold for payloads which have not come.
    pub fn is_waited_for(&self) -> bool {
        self.state.lock().waiting_for_arrival > 0
    }

    /// The same without waiting.
    pub fn try_take(
        self: &Arc<Self>,
        share: &Arc<Share>,
        bytes: usize,
        how: MemoryUse,
    ) -> Option<Permit> {
        self.lend(&mut self.state.lock(), share, bytes, how)
    }

    fn lend(
        self: &Arc<Self>,
        state: &mut LentMemory,
        share: &Arc<Share>,
        bytes: usize,
        how: MemoryUse,
    ) -> Option<Permit> {
        let is_arriving = how == MemoryUse::Arrival;
        let fits = |lent: usize, max: usize| lent == 0 || lent.saturating_add(bytes) <= max;
        let own = share.0.load(Relaxed);
        if !fits(state.lent_bytes, self.bytes_max) || !fits(own, self.connection_bytes_max) {
            return None;
        }
        if is_arriving {
            if !fits(state.arriving_bytes, self.bytes_max / 2) {
                return None;
            }
            state.arriving_bytes += bytes;
        }
        state.lent_bytes += bytes;
        share.0.fetch_add(bytes, Relaxed);
        Some(Permit {
            memory: self.clone(),
            share: share.clone(),
            bytes,
            is_arriving,
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
        while state.idle_bytes + buffer.len() > self.idle_bytes_max && !state.idle.is_empty() {
            let oldest = state.idle.swap_remove(0);
            state.idle_bytes -= oldest.len();
        }
        if state.idle_bytes + buffer.len() <= self.idle_bytes_max {
            state.idle_bytes += buffer.len();
            state.idle.push(buffer);
        }
    }
}

impl Permit {
    /// The payload has come whole.
    pub fn arrived(&mut self) {
        if std::mem::take(&mut self.is_arriving) {
            self.memory.state.lock().arriving_bytes -= self.bytes;
            self.memory.returned.notify_all();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.arrived();
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
        let first = memory
            .try_take(&ann, 60, MemoryUse::Request)
            .expect("there are 400");
        assert!(
            memory.try_take(&ann, 60, MemoryUse::Request).is_none(),
            "100 for each connection"
        );
        let large = memory
            .try_take(&bob, 300, MemoryUse::Request)
            .expect("one may be larger");
        assert!(
            memory
                .try_take(&Arc::default(), 60, MemoryUse::Request)
                .is_none(),
            "of 400 there are 40"
        );
        drop(large);
        assert!(
            memory
                .try_take(&Arc::default(), 60, MemoryUse::Request)
                .is_some()
        );
        drop(first);
        assert!(memory.try_take(&ann, 100, MemoryUse::Request).is_some());
    }

    #[test]
    fn payloads_that_have_not_come_hold_half_of_it() {
        let memory = Memory::new(400);
        let take = |how| memory.try_take(&Arc::default(), 100, how);
        let mut first = take(MemoryUse::Arrival).expect("of 200");
        let _second = take(MemoryUse::Arrival).expect("of 200");
        assert!(take(MemoryUse::Arrival).is_none());
        let request =
            take(MemoryUse::Request).expect("the other half is for requests that are there");
        drop(request);
        first.arrived();
        assert!(take(MemoryUse::Arrival).is_some());
    }

    #[test]
    fn idle_buffers_take_a_quarter_of_what_is_lent() {
        let memory = Memory::new(16 << 10);
        let buffers: Vec<_> = (0..4).map(|_| memory.buffer(4096)).collect();
        buffers.into_iter().for_each(|buffer| memory.keep(buffer));
        assert_eq!(memory.state.lock().idle_bytes, 4096);
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
