//! Many reads at once, of one file or of many: through io_uring, or where it is refused, through threads.
//!
//! A disk that serves 10,000 reads a second one by one serves 60,000 when it sees 32 at once; index lookups therefore
//! come in batches.

use std::{
    cell::Cell,
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt,
    sync::LazyLock,
};

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::io::ReadWriteFlags;

use crate::batch_piece::{BatchPiece, Numbered};
use crate::{read_fully::read_fully, uring};

pub use crate::batch_piece::IN_FLIGHT_MAX;

/// The file behind a disk, for [`read_across`](crate::read_across). Disks that wrap other disks have none, and are read
/// one by one.
#[derive(Clone, Copy)]
pub struct BatchFile<'a> {
    pub(crate) file: &'a File,
    /// Alignment that direct I/O needs for offset, length and memory, in bytes.
    pub(crate) align: usize,
    pub(crate) how: Batching,
}

/// The method by which a disk reads batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Batching {
    /// First what the page cache holds, without waiting, then the rest as [`Batching::Ring`] does.
    #[default]
    Auto,
    /// By io_uring, or by threads where the system refuses it (an old kernel, seccomp, `kernel.io_uring_disabled`).
    Ring,
    /// By threads alone.
    Threads,
    /// One by one.
    Sequential,
}

/// The number of reads in batches by each method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchWays {
    /// Reads from the page cache, without waiting.
    pub cached: u64,
    /// Reads through io_uring.
    pub ring: u64,
    /// Reads by threads, including those that io_uring had failed to do.
    pub threads: u64,
    /// Reads one by one: by [`Batching::Sequential`], or of a batch of one.
    pub one_by_one: u64,
}

thread_local! {
    static WAYS: Cell<BatchWays> = const { Cell::new(BatchWays { cached: 0, ring: 0, threads: 0, one_by_one: 0 }) };
}

/// The reads that this thread has asked for in batches so far, by method.
pub fn batch_ways() -> BatchWays {
    WAYS.get()
}

fn count(add: impl FnOnce(&mut BatchWays)) {
    let mut ways = WAYS.get();
    add(&mut ways);
    WAYS.set(ways);
}

/// Why a batch failed.
pub(crate) enum BatchError {
    /// The file ends within the piece of this number in the batch.
    Short(usize),
    /// The system refused the piece of this number in the batch.
    System(usize, io::Error),
}

/// Largest number of threads that read one batch.
const THREADS: usize = 32;

/// Fills all pieces. After a failure, some of them are filled.
pub(crate) fn read(pieces: &mut [BatchPiece<'_>], how: Batching) -> Result<(), BatchError> {
    read_within(pieces, how, IN_FLIGHT_MAX)
}

/// The same as [`read`] with at most `in_flight_max` pieces in flight.
pub(crate) fn read_within(
    pieces: &mut [BatchPiece<'_>],
    how: Batching,
    in_flight_max: usize,
) -> Result<(), BatchError> {
    // Cached data comes twice as fast this way as by io_uring, and data that is not cached is on its way from here on.
    // A direct file would wait here for the device.
    let skip_cached = how == Batching::Auto && pieces.len() > 1;
    let all = pieces.len();
    let left: Vec<Numbered<'_, '_>> = pieces
        .iter_mut()
        .enumerate()
        .filter_map(|(number, piece)| {
            (!(skip_cached && read_cached(piece))).then_some(Numbered { number, piece })
        })
        .collect();
    count(|ways| ways.cached += (all - left.len()) as u64);
    match how {
        _ if left.len() < 2 => one_by_one(left),
        Batching::Sequential => one_by_one(left),
        Batching::Threads => by_threads(left, in_flight_max),
        Batching::Auto | Batching::Ring => by_threads(by_ring(left, in_flight_max), in_flight_max),
    }
}

/// Reads pieces by io_uring and returns those that failed: an ordinary read then finds out what is wrong with them, if
/// anything is.
fn by_ring<'a, 'b>(pieces: Vec<Numbered<'a, 'b>>, in_flight_max: usize) -> Vec<Numbered<'a, 'b>> {
    let Some(ring) = uring::take_ring() else {
        return pieces;
    };
    let all = pieces.len();
    let left = uring::read(ring, pieces, in_flight_max);
    count(|ways| ways.ring += (all - left.len()) as u64);
    left
}

fn one_by_one(pieces: Vec<Numbered<'_, '_>>) -> Result<(), BatchError> {
    count(|ways| ways.one_by_one += pieces.len() as u64);
    pieces
        .into_iter()
        .try_for_each(|Numbered { number, piece }| read_one(number, piece))
}

fn read_one(number: usize, piece: &mut BatchPiece<'_>) -> Result<(), BatchError> {
    // only `need` bytes: the bytes behind may not exist
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

/// Reads pieces by this thread and those of the pool, at most `in_flight_max` at once.
pub(crate) fn by_threads(
    pieces: Vec<Numbered<'_, '_>>,
    in_flight_max: usize,
) -> Result<(), BatchError> {
    count(|ways| ways.threads += pieces.len() as u64);
    let helpers = pieces
        .len()
        .min(THREADS)
        .min(in_flight_max)
        .saturating_sub(1);
    let left = Mutex::new(pieces.into_iter());
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let next = left.lock().next();
            let Some(Numbered { number, piece }) = next else {
                return;
            };
            if let Err(error) = read_one(number, piece) {
                failed.lock().get_or_insert(error);
                return;
            }
        }
    };
    match POOL.as_ref().filter(|_| helpers > 0) {
        Some(pool) => pool.in_place_scope(|scope| {
            (0..helpers).for_each(|_| scope.spawn(|_| work()));
            work();
        }),
        None => work(),
    }
    failed.into_inner().map_or(Ok(()), Err)
}

/// The threads that read batches without io_uring, started at the first such batch. They wait for the device, so there
/// are many more than cores. Where the system allows fewer threads, there are fewer, or none.
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let of = |threads: &usize| {
        ThreadPoolBuilder::new()
            .num_threads(*threads)
            .thread_name(|number| format!("read-{number}"))
            .build()
            .ok()
    };
    [THREADS - 1, THREADS / 4, 1].iter().find_map(of)
});

/// Reads the piece from the page cache; `false` where that would wait for the device.
fn read_cached(piece: &mut BatchPiece<'_>) -> bool {
    if !piece.cached {
        return false;
    }
    let bufs = &mut [IoSliceMut::new(piece.buf)];
    rustix::io::preadv2(piece.file, bufs, piece.offset, ReadWriteFlags::NOWAIT)
        .is_ok_and(|count| count >= piece.need)
}
