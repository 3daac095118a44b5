//! A batch of reads, or of writes, in a ring: up to [`IN_FLIGHT_MAX`] in flight, one system call for many.
//!
//! Invariants:
//! 1. [`RingBatch::run`] returns only after the kernel is done with every buffer it was given, even after a failure. This
//!    makes lending it borrowed buffers sound.
//! 2. Only requests that moved bytes are continued in the ring. All others are returned, so that an ordinary read or
//!    write finds out what is wrong: kernels have answered EAGAIN for ever where a device cannot promise not to wait,
//!    and EINVAL where they do not know a request.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use crate::Interruptions;
use crate::batch_piece::{IN_FLIGHT_MAX, Numbered};

/// Largest number of bytes of one request.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// The direction in which the bytes of a request move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the file to memory.
    Read,
    /// From memory, which is only read, to the file.
    Write,
}

/// One read or write for the kernel: `len` bytes at `offset` of `file`, and at `start` in memory.
#[derive(Clone, Copy)]
pub(super) struct RingRequest {
    pub way: Direction,
    pub file: RawFd,
    pub start: *mut u8,
    pub len: u32,
    pub offset: u64,
    /// Number that comes back with the completion.
    pub number: u64,
}

/// The functions of a ring that a batch uses; tests have other implementations.
pub(super) trait RingCalls {
    /// Queues a request; `false` where the queue is full.
    ///
    /// # Safety
    /// File and memory must stay, and nothing else may access the memory, until the request is completed or the ring is
    /// gone with the request still queued.
    unsafe fn push(&mut self, request: &RingRequest) -> bool;

    /// Passes the queued requests to the kernel and waits for a completion.
    fn enter(&mut self) -> io::Result<()>;

    /// Number of requests that the kernel has not taken yet.
    fn queued(&mut self) -> usize;

    /// The next completion, if there is one: the request's number, and the number of bytes moved or the negative error.
    fn completed(&mut self) -> Option<(u64, i32)>;
}

/// A read or write of a batch.
pub(super) trait BatchPart {
    /// Number of bytes that must be moved.
    fn need(&self) -> usize;

    /// The request for the rest after `got` bytes were moved. Its memory must be valid, and nobody else's, while the
    /// part is borrowed. The batch fills in the number.
    fn rest(&mut self, got: usize) -> RingRequest;
}

impl BatchPart for Numbered<'_, '_> {
    fn need(&self) -> usize {
        self.piece.need
    }

    fn rest(&mut self, got: usize) -> RingRequest {
        let piece = &mut *self.piece;
        let rest = &mut piece.buf[got..];
        RingRequest {
            way: Direction::Read,
            file: piece.file.as_raw_fd(),
            len: rest.len().min(REQUEST_BYTES_MAX) as u32,
            start: rest.as_mut_ptr(),
            offset: piece.offset + got as u64,
            number: 0,
        }
    }
}

/// A write of a batch.
pub(crate) struct WritePiece<'a> {
    pub file: &'a File,
    pub offset: u64,
    pub data: &'a [u8],
}

impl BatchPart for WritePiece<'_> {
    fn need(&self) -> usize {
        self.data.len()
    }

    fn rest(&mut self, got: usize) -> RingRequest {
        let rest = &self.data[got..];
        RingRequest {
            way: Direction::Write,
            file: self.file.as_raw_fd(),
            len: rest.len().min(REQUEST_BYTES_MAX) as u32,
            start: rest.as_ptr().cast_mut(),
            offset: self.offset + got as u64,
            number: 0,
        }
    }
}

/// A batch in a ring.
pub(super) struct RingBatch<P> {
    pieces: Vec<P>,
    /// Number of bytes moved for each piece.
    got: Vec<usize>,
    /// Positions in `pieces` of those to request (again).
    todo: VecDeque<usize>,
    in_flight: usize,
    in_flight_max: usize,
}

impl<P: BatchPart> RingBatch<P> {
    pub fn new(pieces: Vec<P>, in_flight_max: usize) -> Self {
        let todo = (0..pieces.len())
            .filter(|i| pieces[*i].need() > 0)
            .collect();
        Self {
            got: vec![0; pieces.len()],
            pieces,
            todo,
            in_flight: 0,
            in_flight_max: in_flight_max.clamp(1, IN_FLIGHT_MAX),
        }
    }

    /// Runs until nothing is left to request; `false` where the ring failed, and must not be used again.
    pub fn run(&mut self, ring: &mut impl RingCalls) -> bool {
        let mut interruptions = Interruptions::default();
        while self.in_flight > 0 || !self.todo.is_empty() {
            self.fill(ring);
            match ring.enter() {
                Err(e) if e.kind() != io::ErrorKind::Interrupted || !interruptions.allow() => {
                    self.give_up(ring);
                    return false;
                }
                _ => self.reap(ring),
            }
        }
        true
    }

    /// Queues requests as far as the ring has room.
    fn fill(&mut self, ring: &mut impl RingCalls) {
        while self.in_flight < self.in_flight_max {
            let Some(i) = self.todo.pop_front() else {
                return;
            };
            let request = RingRequest {
                number: i as u64,
                ..self.pieces[i].rest(self.got[i])
            };
            // SAFETY: the buffer is borrowed for as long as `self`, nothing else accesses it, `run` does not return
            // before the kernel is done with it, and the piece borrows its open file for as long.
            if !unsafe { ring.push(&request) } {
                self.todo.push_front(i);
                return;
            }
            self.in_flight += 1;
        }
    }

    fn reap(&mut self, ring: &mut impl RingCalls) {
        while let Some((number, result)) = ring.completed() {
            self.in_flight -= 1;
            let i = number as usize;
            // other results are not continued: see the second invariant of the module
            if result > 0 {
                self.got[i] += result as usize;
                if self.got[i] < self.pieces[i].need() {
                    self.todo.push_back(i);
                }
            }
        }
    }

    /// After a failure of the ring: polls until the kernel has completed what it took, and requests nothing more.
    fn give_up(&mut self, ring: &mut impl RingCalls) {
        self.reap(ring);
        while self.in_flight > ring.queued() {
            std::thread::sleep(LOOK_AGAIN);
            self.reap(ring);
        }
    }

    /// The pieces for which fewer bytes were moved than needed.
    pub fn left(self) -> Vec<P> {
        let pieces = self.pieces.into_iter().zip(self.got);
        pieces
            .filter(|(part, got)| *got < part.need())
            .map(|(part, _)| part)
            .collect()
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(1);
