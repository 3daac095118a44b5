//! Batches of reads through io_uring: up to [`DEPTH`] in flight, one system call for many.
//!
//! Always holds: [`read`] returns only after the kernel is done with every buffer it was given, whatever fails. That is what makes
//! lending it borrowed buffers sound.

use std::{collections::VecDeque, io, os::fd::AsRawFd, sync::OnceLock};

use io_uring::{IoUring, opcode, types::Fd};
use parking_lot::Mutex;

use crate::batch::{BatchError, Numbered};

/// Reads in flight at most. The gain levels off at about 32 on NVMe and cloud disks alike; twice that hides the submission.
pub(crate) const DEPTH: u32 = 64;

/// The most bytes that one read asks for at once.
const READ_BYTES_MAX: usize = 1 << 30;

/// Rings that no batch uses at present. Setting one up takes some 50 µs and is done about once a thread.
static IDLE: Mutex<Vec<IoUring>> = Mutex::new(Vec::new());

/// Idle rings kept.
const IDLE_MAX: usize = 8;

/// Whether the system lets this process use io_uring: asked once.
pub fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let ring = IoUring::new(DEPTH);
        ring.map(|ring| IDLE.lock().push(ring)).is_ok()
    })
}

/// A ring that is empty; `None` where the system gives none.
pub(crate) fn take_ring() -> Option<IoUring> {
    if !uring_works() {
        return None;
    }
    let idle = IDLE.lock().pop();
    idle.or_else(|| IoUring::new(DEPTH).ok())
}

/// Fills all pieces, or says which one failed first.
pub(crate) fn read(mut ring: IoUring, pieces: &mut [Numbered<'_, '_>]) -> Result<(), BatchError> {
    let mut batch = Batch::new(pieces);
    let result = batch.run(&mut ring);
    if batch.clean {
        let mut idle = IDLE.lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
    }
    result
}

struct Batch<'a, 'b, 'c> {
    pieces: &'a mut [Numbered<'b, 'c>],
    /// Bytes that have come, for each piece.
    got: Vec<usize>,
    /// Pieces to ask for (again), as places in `pieces`.
    todo: VecDeque<usize>,
    in_flight: usize,
    failed: Option<BatchError>,
    /// The ring holds nothing of ours any more and can be used again.
    clean: bool,
}

impl<'a, 'b, 'c> Batch<'a, 'b, 'c> {
    fn new(pieces: &'a mut [Numbered<'b, 'c>]) -> Self {
        let todo = (0..pieces.len())
            .filter(|i| pieces[*i].piece.need > 0)
            .collect();
        let got = vec![0; pieces.len()];
        Self {
            pieces,
            got,
            todo,
            in_flight: 0,
            failed: None,
            clean: false,
        }
    }

    fn run(&mut self, ring: &mut IoUring) -> Result<(), BatchError> {
        while self.in_flight > 0 || !self.todo.is_empty() {
            self.fill(ring);
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                // Interrupted, or the completion queue must be emptied first.
                Err(e) if matches!(e.raw_os_error(), Some(EINTR | EBUSY | EAGAIN)) => {}
                Err(e) => return Err(self.give_up(ring, e)),
            }
            self.reap(ring);
        }
        self.clean = true;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Queues what is to do, as far as the ring has room.
    fn fill(&mut self, ring: &mut IoUring) {
        let mut queue = ring.submission();
        while self.in_flight < DEPTH as usize {
            let Some(i) = self.todo.pop_front() else {
                return;
            };
            let (piece, got) = (&mut *self.pieces[i].piece, self.got[i]);
            let fd = Fd(piece.file.as_raw_fd());
            let rest = &mut piece.buf[got..];
            let len = rest.len().min(READ_BYTES_MAX) as u32;
            let read =
                opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(piece.offset + got as u64);
            let entry = read.build().user_data(i as u64);
            // SAFETY: the buffer is borrowed for as long as `self`, nobody else touches it, `run` does not return before the kernel is done with
            // it, and the piece borrows its file open for as long.
            if unsafe { queue.push(&entry) }.is_err() {
                self.todo.push_front(i);
                return;
            }
            self.in_flight += 1;
        }
    }

    fn reap(&mut self, ring: &mut IoUring) {
        for done in ring.completion() {
            self.in_flight -= 1;
            let i = done.user_data() as usize;
            let Numbered { number, piece } = &self.pieces[i];
            match done.result() {
                0 => self.fail(BatchError::Short(*number)),
                count if count > 0 => {
                    self.got[i] += count as usize;
                    if self.got[i] < piece.need && self.failed.is_none() {
                        self.todo.push_back(i);
                    }
                }
                error if matches!(-error, EINTR | EAGAIN) && self.failed.is_none() => {
                    self.todo.push_back(i)
                }
                error => {
                    let error = io::Error::from_raw_os_error(-error);
                    self.fail(BatchError::System(*number, error));
                }
            }
        }
    }

    /// Asks for nothing more; what is in flight is still waited for.
    fn fail(&mut self, error: BatchError) {
        self.todo.clear();
        self.failed.get_or_insert(error);
    }

    /// The ring itself failed: waits for what the kernel has taken, by looking.
    fn give_up(&mut self, ring: &mut IoUring, error: io::Error) -> BatchError {
        self.fail(BatchError::System(0, error));
        while self.in_flight > ring.submission().len() {
            self.reap(ring);
            self.todo.clear();
            std::thread::yield_now();
        }
        self.failed.take().unwrap_or(BatchError::Short(0))
    }
}

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Piece;

    #[test]
    fn a_thousand_reads_and_a_failing_one() {
        if !uring_works() {
            return; // refused here: the conformance suite runs the threads
        }
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
        io::Write::write_all(&mut file, &bytes).unwrap();
        let mut bufs = vec![[0u8; 100]; 1000];
        let offsets = (0..1000u64).map(|i| i * 7919 % ((1 << 20) - 100));
        let mut pieces: Vec<_> = bufs
            .iter_mut()
            .zip(offsets.clone())
            .map(|(buf, offset)| Piece {
                file: &file,
                cached: true,
                offset,
                buf,
                need: 100,
            })
            .collect();
        let read = |pieces: &mut [Piece<'_>]| {
            let numbered = pieces
                .iter_mut()
                .enumerate()
                .map(|(number, piece)| Numbered { number, piece });
            read(take_ring().unwrap(), &mut numbered.collect::<Vec<_>>())
        };
        assert!(read(&mut pieces).is_ok());
        pieces[500].offset = 1 << 20;
        assert!(matches!(read(&mut pieces), Err(BatchError::Short(500))));
        for (buf, offset) in bufs.iter().zip(offsets).take(400) {
            assert_eq!(buf[..], bytes[offset as usize..][..100]);
        }
    }
}
