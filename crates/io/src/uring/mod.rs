//! Batches of reads, and of writes, through io_uring, the kernel's rings. `in_flight` has the protocol.

mod in_flight;
#[cfg(test)]
mod tests;

use std::{io, sync::OnceLock};

use io_uring::{IoUring, Probe, opcode, types::Fd};
use parking_lot::Mutex;

use crate::batch_piece::{IN_FLIGHT_MAX, Numbered};
pub(crate) use in_flight::WritePiece;
use in_flight::{BatchPart, Direction, RingBatch, RingCalls, RingRequest};

/// Idle rings. Setting one up takes some 50 µs and is done about once for each thread.
static IDLE: Mutex<Vec<IoUring>> = Mutex::new(Vec::new());

/// Number of entries of a ring's queue.
const DEPTH: u32 = IN_FLIGHT_MAX as u32;

/// Largest number of idle rings that are kept.
const IDLE_MAX: usize = 8;

/// Whether the system lets this process use io_uring with reads and writes (Linux 5.6); tested once.
pub fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| probed_ring().map(|ring| IDLE.lock().push(ring)).is_some())
}

fn probed_ring() -> Option<IoUring> {
    let ring = IoUring::new(DEPTH).ok()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).ok()?;
    let knows_all = [opcode::Read::CODE, opcode::Write::CODE]
        .iter()
        .all(|code| probe.is_supported(*code));
    knows_all.then_some(ring)
}

/// An empty ring; `None` where the system gives none.
pub(crate) fn take_ring() -> Option<IoUring> {
    if !uring_works() {
        return None;
    }
    let idle = IDLE.lock().pop();
    idle.or_else(|| IoUring::new(DEPTH).ok())
}

/// Fills pieces, at most `in_flight_max` at once, and returns those that could not be filled.
pub(crate) fn read<'b, 'c>(
    ring: IoUring,
    pieces: Vec<Numbered<'b, 'c>>,
    in_flight_max: usize,
) -> Vec<Numbered<'b, 'c>> {
    run(ring, pieces, in_flight_max)
}

/// Writes pieces side by side, in no order, and returns those that were not written whole.
pub(crate) fn write<'a>(ring: IoUring, pieces: Vec<WritePiece<'a>>) -> Vec<WritePiece<'a>> {
    run(ring, pieces, IN_FLIGHT_MAX)
}

fn run<P: BatchPart>(mut ring: IoUring, pieces: Vec<P>, in_flight_max: usize) -> Vec<P> {
    let mut batch = RingBatch::new(pieces, in_flight_max);
    if batch.run(&mut ring) {
        let mut idle = IDLE.lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
    }
    batch.left()
}

impl RingCalls for IoUring {
    unsafe fn push(&mut self, request: &RingRequest) -> bool {
        let file = Fd(request.file);
        let (start, len, offset) = (request.start, request.len, request.offset);
        let entry = match request.way {
            Direction::Read => opcode::Read::new(file, start, len).offset(offset).build(),
            Direction::Write => opcode::Write::new(file, start, len).offset(offset).build(),
        };
        let entry = entry.user_data(request.number);
        // SAFETY: the caller promises the same.
        unsafe { self.submission().push(&entry) }.is_ok()
    }

    fn enter(&mut self) -> io::Result<()> {
        self.submit_and_wait(1).map(drop)
    }

    fn queued(&mut self) -> usize {
        self.submission().len()
    }

    fn completed(&mut self) -> Option<(u64, i32)> {
        let done = self.completion().next()?;
        Some((done.user_data(), done.result()))
    }
}
