//! Many reads at once, of one file or of many: through io_uring, or where it is refused, through threads.
//!
//! A disk that serves 10,000 reads a second one by one serves 60,000 when it sees 32 at once; so index lookups come in batches.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt,
    sync::OnceLock,
};

use parking_lot::Mutex;
use rustix::io::ReadWriteFlags;

use crate::{read_fully::read_fully, uring};

/// How a disk reads batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Batching {
    /// By io_uring, or by threads where the system refuses it (an old kernel, seccomp, `kernel.io_uring_disabled`).
    #[default]
    Auto,
    /// By threads.
    Threads,
    /// One by one.
    Sequential,
}

/// One read of a batch.
pub(crate) struct Piece<'a> {
    pub file: &'a File,
    pub offset: u64,
    pub buf: &'a mut [u8],
    /// How many bytes must come; more may, up to the whole of `buf`.
    pub need: usize,
}

/// Why a batch failed.
pub(crate) enum BatchError {
    /// The file ends within the piece of this number.
    Short(usize),
    /// The system refused the piece of this number.
    System(usize, io::Error),
}

/// The most threads that read one batch.
const THREADS: usize = 32;

/// Fills all pieces. On failure some of them are filled.
pub(crate) fn read(pieces: &mut [Piece<'_>], how: Batching) -> Result<(), BatchError> {
    match how {
        _ if pieces.len() < 2 => one_by_one(pieces),
        Batching::Sequential => one_by_one(pieces),
        Batching::Threads => by_threads(pieces),
        Batching::Auto => match uring_works() {
            true => uring::read(pieces),
            false => by_threads(pieces),
        },
    }
}

/// Whether the system lets this process use io_uring: asked once.
pub fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(uring::works)
}

fn one_by_one(pieces: &mut [Piece<'_>]) -> Result<(), BatchError> {
    pieces
        .iter_mut()
        .enumerate()
        .try_for_each(|(number, piece)| read_one(number, piece))
}

fn read_one(number: usize, piece: &mut Piece<'_>) -> Result<(), BatchError> {
    // `need` rather than the whole: what lies behind it may not exist.
    let mut got = 0;
    let whole = read_fully(&mut *piece.buf, piece.offset, |part, at| {
        if got >= piece.need {
            return Ok(0);
        }
        let count = piece.file.read_at(part, at)?;
        got += count;
        Ok(count)
    });
    match whole {
        Ok(_) if got >= piece.need => Ok(()),
        Ok(_) => Err(BatchError::Short(number)),
        Err(e) => Err(BatchError::System(number, e)),
    }
}

/// What the page cache holds is read at once; the rest by threads that live for this batch.
fn by_threads(pieces: &mut [Piece<'_>]) -> Result<(), BatchError> {
    let mut missed: Vec<_> = pieces
        .iter_mut()
        .enumerate()
        .filter_map(|(i, piece)| (!read_cached(piece)).then_some((i, piece)))
        .collect();
    if missed.len() < 2 {
        return missed
            .iter_mut()
            .try_for_each(|(number, piece)| read_one(*number, piece));
    }
    let threads = missed.len().min(THREADS);
    let left = Mutex::new(missed.into_iter());
    let work = || {
        loop {
            let next = left.lock().next();
            match next {
                Some((number, piece)) => read_one(number, piece)?,
                None => return Ok(()),
            }
        }
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        spawned.into_iter().fold(mine, |all, thread| {
            all.and(
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })
    })
}

/// Whether it could be read without waiting for the device.
fn read_cached(piece: &mut Piece<'_>) -> bool {
    let bufs = &mut [IoSliceMut::new(piece.buf)];
    rustix::io::preadv2(piece.file, bufs, piece.offset, ReadWriteFlags::NOWAIT)
        .is_ok_and(|count| count >= piece.need)
}
