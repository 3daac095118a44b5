//! Batches through the kernel's ring, and through fake rings that give all answers that a kernel may give.

use std::collections::VecDeque;

use rustix::io::Errno;

use super::{in_flight::*, *};
use crate::batch::by_threads;
use crate::batch_piece::BatchPiece;

const LEN: usize = 100;

/// Reads of [`LEN`] bytes each from a file of 1 MiB, and the expected bytes.
struct Reads {
    file: std::fs::File,
    bytes: Vec<u8>,
    bufs: Vec<[u8; LEN]>,
    in_flight_max: usize,
}

impl Reads {
    fn new(count: usize) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
        io::Write::write_all(&mut file, &bytes).unwrap();
        let bufs = vec![[0xEE; LEN]; count];
        Self {
            file,
            bytes,
            bufs,
            in_flight_max: IN_FLIGHT_MAX,
        }
    }

    fn offset(i: usize) -> usize {
        i * 7919 % ((1 << 20) - LEN)
    }

    /// Runs the batch on `ring`: returns whether the ring can still be used, and the numbers of the pieces that are
    /// left.
    fn run(&mut self, ring: &mut impl RingCalls) -> (bool, Vec<usize>) {
        self.run_then(ring, |_| ())
    }

    fn run_then(
        &mut self,
        ring: &mut impl RingCalls,
        then: impl FnOnce(Vec<Numbered<'_, '_>>),
    ) -> (bool, Vec<usize>) {
        let mut pieces: Vec<_> = self
            .bufs
            .iter_mut()
            .enumerate()
            .map(|(i, buf)| BatchPiece {
                file: &self.file,
                cached: true,
                offset: Self::offset(i) as u64,
                buf,
                need: LEN,
            })
            .collect();
        let numbered = pieces
            .iter_mut()
            .enumerate()
            .map(|(number, piece)| Numbered { number, piece });
        let mut batch = RingBatch::new(numbered.collect(), self.in_flight_max);
        let clean = batch.run(ring);
        let left = batch.left();
        let numbers = left.iter().map(|numbered| numbered.number).collect();
        then(left);
        (clean, numbers)
    }

    fn is_filled(&self, i: usize) -> bool {
        self.bufs[i][..] == self.bytes[Self::offset(i)..][..LEN]
    }
}

/// A ring that records how many requests the kernel had at once.
struct Watched {
    ring: IoUring,
    in_flight: usize,
    most: usize,
}

impl RingCalls for Watched {
    unsafe fn push(&mut self, request: &RingRequest) -> bool {
        // SAFETY: the caller promises the same.
        let pushed = unsafe { self.ring.push(request) };
        self.in_flight += usize::from(pushed);
        pushed
    }

    fn enter(&mut self) -> io::Result<()> {
        self.ring.enter()?;
        self.most = self.most.max(self.in_flight - self.ring.queued());
        Ok(())
    }

    fn queued(&mut self) -> usize {
        self.ring.queued()
    }

    fn completed(&mut self) -> Option<(u64, i32)> {
        let done = self.ring.completed();
        self.in_flight -= usize::from(done.is_some());
        done
    }
}

#[test]
fn a_thousand_reads_more_than_32_at_once() {
    let Some(ring) = take_ring() else {
        return; // refused here: the conformance suite says so, and reads by threads
    };
    let (in_flight, most) = (0, 0);
    let mut ring = Watched {
        ring,
        in_flight,
        most,
    };
    let mut reads = Reads::new(1000);
    assert_eq!(reads.run(&mut ring), (true, vec![]));
    assert!((0..1000).all(|i| reads.is_filled(i)));
    assert_eq!(ring.in_flight, 0);
    assert!((32..=DEPTH as usize).contains(&ring.most), "{}", ring.most);
}

#[test]
fn of_a_batch_no_more_are_in_flight_than_asked_for() {
    for (asked, most) in [(32, 32), (1, 1), (0, 1), (1000, IN_FLIGHT_MAX)] {
        let mut ring = MadeUp::new(|_| Answer::Fill);
        let mut reads = Reads::new(200);
        reads.in_flight_max = asked;
        assert_eq!(reads.run(&mut ring), (true, vec![]));
        assert_eq!(ring.most_taken, most, "{asked}");
    }
}

#[test]
fn what_lies_behind_the_end_of_a_file_is_left_over_and_nothing_else() {
    let Some(mut ring) = take_ring() else {
        return; // as above
    };
    let mut reads = Reads::new(1000);
    let end = Reads::offset(500) as u64;
    reads.file.set_len(end).unwrap();
    let (clean, left) = reads.run(&mut ring);
    assert!(clean);
    let behind = |i: &usize| (Reads::offset(*i) + LEN) as u64 > end;
    assert_eq!(left, (0..1000).filter(behind).collect::<Vec<_>>());
    assert!((0..1000).filter(|i| !behind(i)).all(|i| reads.is_filled(i)));
}

/// The answer of a fake kernel to a request.
enum Answer {
    Fill,
    /// The request moves at most this many bytes.
    Bytes(u32),
    Fail(Errno),
}

/// A ring without a kernel: each [`RingCalls::enter`] completes one request, with the `answer` for its number.
struct MadeUp<A> {
    answer: A,
    queued: VecDeque<RingRequest>,
    taken: VecDeque<RingRequest>,
    completed: VecDeque<(u64, i32)>,
    /// Number of requests for each piece.
    asked: Vec<usize>,
    most_taken: usize,
    /// Results of the next calls of `enter`; success where the list is empty.
    enters: VecDeque<Result<(), Errno>>,
    /// Set after the ring has failed for good: taken requests are completed while the batch polls.
    looks: Option<usize>,
}

impl<A: FnMut(u64) -> Answer> MadeUp<A> {
    fn new(answer: A) -> Self {
        Self {
            answer,
            queued: VecDeque::new(),
            taken: VecDeque::new(),
            completed: VecDeque::new(),
            asked: vec![0; 1000],
            most_taken: 0,
            enters: VecDeque::new(),
            looks: None,
        }
    }

    fn complete_one(&mut self) {
        let Some(request) = self.taken.pop_front() else {
            return;
        };
        let fill = |len: u32| {
            let (start, offset) = (request.start.cast(), request.offset as i64);
            // SAFETY: the memory of a request belongs to this ring until the request is completed.
            unsafe { libc::pread(request.file, start, len as usize, offset) as i32 }
        };
        let result = match (self.answer)(request.number) {
            Answer::Fill => fill(request.len),
            Answer::Bytes(most) => fill(request.len.min(most)),
            Answer::Fail(errno) => -errno.raw_os_error(),
        };
        self.completed.push_back((request.number, result));
    }
}

impl<A: FnMut(u64) -> Answer> RingCalls for MadeUp<A> {
    unsafe fn push(&mut self, request: &RingRequest) -> bool {
        self.asked[request.number as usize] += 1;
        self.queued.push_back(*request);
        true
    }

    fn enter(&mut self) -> io::Result<()> {
        if let Some(Err(errno)) = self.enters.pop_front() {
            self.looks = (errno != Errno::INTR).then_some(0);
            return Err(errno.into());
        }
        self.taken.append(&mut self.queued);
        self.most_taken = self.most_taken.max(self.taken.len());
        self.complete_one();
        Ok(())
    }

    fn queued(&mut self) -> usize {
        self.queued.len()
    }

    fn completed(&mut self) -> Option<(u64, i32)> {
        if let Some(looks) = &mut self.looks {
            *looks += 1;
            if looks.is_multiple_of(3) {
                self.complete_one();
            }
        }
        self.completed.pop_front()
    }
}

#[test]
fn a_read_that_fails_in_the_ring_is_asked_for_once_there_and_then_read_otherwise() {
    for errno in [
        Errno::AGAIN,
        Errno::INTR,
        Errno::INVAL,
        Errno::IO,
        Errno::CANCELED,
    ] {
        let mut ring = MadeUp::new(|number| match number % 3 {
            0 => Answer::Fail(errno),
            _ => Answer::Fill,
        });
        let mut reads = Reads::new(300);
        let (clean, left) = reads.run_then(&mut ring, |left| {
            assert!(by_threads(left, IN_FLIGHT_MAX).is_ok());
        });
        assert!(clean, "the ring itself works");
        assert_eq!(left, (0..300).step_by(3).collect::<Vec<_>>());
        assert!(ring.asked[..300].iter().all(|asked| *asked == 1));
        assert!((0..300).all(|i| reads.is_filled(i)), "{errno}");
    }
}

#[test]
fn a_kernel_that_never_reads_in_the_ring_ends_the_batch_all_the_same() {
    let mut ring = MadeUp::new(|_| Answer::Fail(Errno::AGAIN));
    let (clean, left) = Reads::new(300).run(&mut ring);
    assert!(clean && left.into_iter().eq(0..300));
}

#[test]
fn short_reads_are_continued_as_long_as_bytes_come() {
    let mut ring = MadeUp::new(|number| match number {
        7 => Answer::Bytes(0),
        _ => Answer::Bytes(33),
    });
    let mut reads = Reads::new(200);
    assert_eq!(reads.run(&mut ring), (true, vec![7]));
    for i in (0..200).filter(|i| *i != 7) {
        assert!(reads.is_filled(i), "{i}");
        assert_eq!(ring.asked[i], 4, "33 + 33 + 33 + 1");
    }
    assert_eq!(ring.asked[7], 1);
    assert_eq!(ring.most_taken, DEPTH as usize);
}

#[test]
fn an_interrupted_wait_is_taken_up_again() {
    let mut ring = MadeUp::new(|_| Answer::Fill);
    ring.enters = VecDeque::from([Err(Errno::INTR), Ok(()), Err(Errno::INTR)]);
    let mut reads = Reads::new(100);
    assert_eq!(reads.run(&mut ring), (true, vec![]));
    assert!((0..100).all(|i| reads.is_filled(i)));
}

#[test]
fn a_ring_that_fails_is_waited_for_and_asked_for_nothing_more() {
    let depth = DEPTH as usize;
    for errno in [Errno::IO, Errno::AGAIN, Errno::BUSY, Errno::BADF] {
        // one short read, which must not be continued
        let mut ring = MadeUp::new(|number| match number {
            5 => Answer::Bytes(10),
            _ => Answer::Fill,
        });
        // the first enter takes all that fits, the second one nothing
        ring.enters = VecDeque::from([Ok(()), Err(errno)]);
        let mut reads = Reads::new(100);
        let (clean, left) = reads.run(&mut ring);
        assert!(!clean, "{errno}: it is not used again");
        assert!(ring.taken.is_empty(), "no buffer is with the kernel");
        assert_eq!(ring.queued.len(), 1, "which never reaches the kernel");
        assert!([5].into_iter().chain(depth..100).eq(left.iter().copied()));
        assert!((0..100).all(|i| reads.is_filled(i) != left.contains(&i)));
    }
}
