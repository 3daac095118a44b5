//! A batch of reads, or of writes, on its way through a ring: up to [`IN_FLIGHT_MAX`] in flight, one system call for many.
//!
//! Always holds:
//! 1. [`Batch::run`] returns only after the kernel is done with every buffer it was given, whatever fails. That is what
//!    makes lending it borrowed buffers sound.
//! 2. Only what moved bytes is continued in the ring. All that comes back otherwise is given back, for an ordinary
//!    read or write to find out what is wrong: kernels have answered EAGAIN for ever where a device cannot promise not
//!    to wait, and EINVAL where they do not know a request.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use crate::Interruptions;
use crate::batch::{IN_FLIGHT_MAX, Numbered};

/// The most bytes that one request asks for at once.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Which way the bytes of a request go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// From the file to memory.
    Read,
    /// From memory, which is only read, to the file.
    Write,
}

/// One read or write that the kernel is asked for: `len` bytes at `offset` of `file`, and at `start`.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub way: Way,
    pub file: RawFd,
    pub start: *mut u8,
    pub len: u32,
    pub offset: u64,
    /// Comes back with the completion.
    pub number: u64,
}

/// What a batch needs of a ring. Tests make up others.
pub(super) trait Ring {
    /// Queues a request; `false` where there is no room.
    ///
    /// # Safety
    /// File and memory stay, and nobody else touches the memory, until the request is completed or the ring is gone
    /// with the request still queued.
    unsafe fn push(&mut self, request: &Request) -> bool;

    /// Gives what is queued to the kernel and waits for a completion.
    fn enter(&mut self) -> io::Result<()>;

    /// Requests that the kernel has not taken.
    fn queued(&mut self) -> usize;

    /// The next completion, if there is one: a request's number, and how many bytes came, or the negative error.
    fn completed(&mut self) -> Option<(u64, i32)>;
}

/// A read or write of a batch.
pub(super) trait Part {
    /// Bytes that must be moved.
    fn need(&self) -> usize;

    /// The request for what is left when `got` bytes were moved: its memory stays valid, and nobody else's, while the
    /// part is borrowed. The number is filled in by the batch.
    fn rest(&mut self, got: usize) -> Request;
}

impl Part for Numbered<'_, '_> {
    fn need(&self) -> usize {
        self.piece.need
    }

    fn rest(&mut self, got: usize) -> Request {
        let piece = &mut *self.piece;
        let rest = &mut piece.buf[got..];
        Request {
            way: Way::Read,
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

impl Part for WritePiece<'_> {
    fn need(&self) -> usize {
        self.data.len()
    }

    fn rest(&mut self, got: usize) -> Request {
        let rest = &self.data[got..];
        Request {
            way: Way::Write,
            file: self.file.as_raw_fd(),
            len: rest.len().min(REQUEST_BYTES_MAX) as u32,
            start: rest.as_ptr().cast_mut(),
            offset: self.offset + got as u64,
            number: 0,
        }
    }
}

/// A batch on its way through a ring.
pub(super) struct Batch<P> {
    pieces: Vec<P>,
    /// Bytes that were moved, for each piece.
    got: Vec<usize>,
    /// Pieces to ask for (again), as places in `pieces`.
    todo: VecDeque<usize>,
    in_flight: usize,
    in_flight_max: usize,
}

impl<P: Part> Batch<P> {
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

    /// Reads until nothing is left to ask for; `false` where the ring failed, and is not to be used again.
    pub fn run(&mut self, ring: &mut impl Ring) -> bool {
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

    /// Queues what is to do, as far as the ring has room.
    fn fill(&mut self, ring: &mut impl Ring) {
        while self.in_flight < self.in_flight_max {
            let Some(i) = self.todo.pop_front() else {
                return;
            };
            let request = Request {
                number: i as u64,
                ..self.pieces[i].rest(self.got[i])
            };
            // SAFETY: the buffer is borrowed for as long as `self`, nobody else touches it, `run` does not return
            // before the kernel is done with it, and the piece borrows its file open for as long.
            if !unsafe { ring.push(&request) } {
                self.todo.push_front(i);
                return;
            }
            self.in_flight += 1;
        }
    }

    fn reap(&mut self, ring: &mut impl Ring) {
        while let Some((number, result)) = ring.completed() {
            self.in_flight -= 1;
            let i = number as usize;
            // not the others: see the second of what always holds
            if result > 0 {
                self.got[i] += result as usize;
                if self.got[i] < self.pieces[i].need() {
                    self.todo.push_back(i);
                }
            }
        }
    }

    /// The ring itself failed: waits for what the kernel has taken, by looking, and asks for nothing more.
    fn give_up(&mut self, ring: &mut impl Ring) {
        self.reap(ring);
        while self.in_flight > ring.queued() {
            std::thread::sleep(LOOK_AGAIN);
            self.reap(ring);
        }
    }

    /// The pieces that have less than they need.
    pub fn left(self) -> Vec<P> {
        let pieces = self.pieces.into_iter().zip(self.got);
        pieces
            .filter(|(part, got)| *got < part.need())
            .map(|(part, _)| part)
            .collect()
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(1);
