//! The front under several clients: one winner, no byte lost, shared flushes.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::Random;
use onefold_volume::conformance::{Caller, request};
use onefold_volume::dmdedup::Dmdedup;
use onefold_volume::front::Options;
use onefold_volume::{
    Buffer, ChunkRead, ChunkReader, Collected, Effort, Engine, EngineStats, ExtentKind, FreeSpace,
    HashedChunk, HeadId, Op, Result, Sequence,
};
use parking_lot::Mutex;

use crate::faults::{CHUNK, bytes, device, inline};
use crate::recorder::{Event, Recorder};

/// The later staged one of two writes to one LBN in flight wins, for ever: data that is read once is read always.
#[test]
fn writes_in_flight_have_one_winner_for_ever() {
    let recorder = Arc::new(Recorder::default());
    let (front, caller) = device(
        recorder.engine(CHUNK as u32, 100, 4000),
        100,
        Options::default(),
    );
    for round in 0..30 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let caller = &caller;
                scope.spawn(move || {
                    let mut random = Random(round * 4 + thread);
                    for _ in 0..10 {
                        let offset = random.below(4) * 1000;
                        let content = random.bytes(1 + random.clone().below(6000) as usize);
                        caller.write(offset, &content).expect("a write");
                    }
                });
            }
        });
        let now = caller.read(0, 20_000).expect("a read");
        caller.flush().expect("a flush");
        let later = caller.read(0, 20_000).expect("a read");
        assert!(now[..] == later[..], "round {round}");
    }
    front.close().expect("all is well");
}

/// Partial writes of one chunk by several threads: no byte of an acknowledged one is lost.
#[test]
fn partial_writes_side_by_side_keep_every_byte() {
    let recorder = Arc::new(Recorder::default());
    let (front, caller) = device(
        recorder.engine(CHUNK as u32, 100, 4000),
        100,
        Options::default(),
    );
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let caller = &caller;
            scope.spawn(move || {
                // Each thread has 100 bytes of each 400, and alone writes there.
                for round in 1..60_u8 {
                    for place in 0..20 {
                        let offset = place * 400 + thread * 100;
                        caller
                            .write(offset, &[round + thread as u8; 100])
                            .expect("a write");
                    }
                    let offset = u64::from(round % 20) * 400 + thread * 100;
                    let found = caller.read(offset, 100).expect("a read");
                    assert_eq!(found[..], [round + thread as u8; 100]);
                }
            });
        }
    });
    for place in 0..20 {
        for thread in 0..4 {
            let found = caller
                .read(place * 400 + thread * 100, 100)
                .expect("a read");
            assert_eq!(found[..], [59 + thread as u8; 100]);
        }
    }
    front.close().expect("all is well");
}

/// Flushes that wait together share a commit, and a flush without anything new costs none.
#[test]
fn flushes_share_a_commit() {
    let recorder = Arc::new(Recorder::default());
    let (front, caller) = device(recorder.engine(CHUNK as u32, 100, 100), 100, inline());
    let write = request(
        Op::Write,
        0,
        CHUNK as u64,
        Buffer::copy_of(&bytes(1)),
        false,
    );
    let through = request(
        Op::Write,
        4096,
        CHUNK as u64,
        Buffer::copy_of(&bytes(2)),
        true,
    );
    let flushes = (0..5).map(|_| request(Op::Flush, 0, 0, Buffer::zeroed(0), false));
    let all = [write, through].into_iter().chain(flushes).collect();
    for waiting in caller.submit(all) {
        waiting.wait().expect("it succeeds");
    }
    let syncs = |events: Vec<Event>| {
        events
            .iter()
            .filter(|event| **event == Event::DataSync)
            .count()
    };
    assert_eq!(
        syncs(recorder.take()),
        1,
        "one for the write through, and nothing came after it"
    );
    caller.flush().expect("a flush");
    assert_eq!(syncs(recorder.take()), 0);
    assert_eq!(front.stats().flushes, 6);
}

/// Whoever writes and then collects has all of it collected: what was answered and is still staged counts.
#[test]
fn a_collection_of_everything_takes_what_is_staged_first() {
    let recorder = Arc::new(Recorder::default());
    let lbns = 20_000;
    let engine = recorder.engine(CHUNK as u32, lbns, 2 * lbns);
    let (front, caller) = device(engine, lbns, Options::default());
    let content = Random(1).bytes(lbns as usize * CHUNK);
    let writes = content.chunks(500 * CHUNK).enumerate().map(|(n, part)| {
        let (offset, bytes) = ((n * 500 * CHUNK) as u64, part.len() as u64);
        request(Op::Write, offset, bytes, Buffer::copy_of(part), false)
    });
    for waiting in caller.submit(writes.collect()) {
        waiting.wait().expect("a write");
    }
    front.collect(Effort::Whole).expect("a collection");
    assert_eq!(front.stats().queued, 0);
    front.close().expect("all is well");
}

/// An engine of which a read can be interrupted by something else.
struct Interrupted {
    engine: Dmdedup,
    reader: Arc<InterruptedReader>,
}

struct InterruptedReader {
    reader: Arc<dyn ChunkReader>,
    interruption: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ChunkReader for InterruptedReader {
    fn read(&self, head: HeadId, reads: &mut [ChunkRead<'_>]) -> Result<()> {
        self.reader.read(head, reads)?;
        let interruption = self.interruption.lock().take();
        if let Some(interruption) = interruption {
            interruption();
        }
        Ok(())
    }

    fn extents(
        &self,
        head: HeadId,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, ExtentKind) -> bool,
    ) -> Result<()> {
        self.reader.extents(head, lbns, visit)
    }
}

impl Engine for Interrupted {
    fn write(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        self.engine.write(chunks)
    }

    fn discard(&mut self, head: HeadId, lbns: Range<u64>) -> Result<()> {
        self.engine.discard(head, lbns)
    }

    fn write_out(&mut self) -> Result<Sequence> {
        self.engine.write_out()
    }

    fn commit(&mut self) -> Result<()> {
        self.engine.commit()
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.engine.checkpoint()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.engine).close()
    }

    fn reader(&self) -> Arc<dyn ChunkReader> {
        Arc::clone(&self.reader) as Arc<dyn ChunkReader>
    }

    fn collect(&mut self, effort: Effort) -> Result<Collected> {
        self.engine.collect(effort)
    }

    fn free_space(&self) -> FreeSpace {
        self.engine.free_space()
    }

    fn stats(&self) -> EngineStats {
        self.engine.stats()
    }
}

/// While a partial write reads what is around it, another client writes, discards or zeroes the chunk: nothing of what
/// was acknowledged is undone.
#[test]
fn what_comes_between_reading_and_merging_is_kept() {
    type Other = fn(&Caller);
    let write: Other = |caller| caller.write(0, &[2; CHUNK]).expect("a write");
    let zero: Other = |caller| caller.write_zeroes(0, CHUNK as u64).expect("zeroing");
    let discard: Other = |caller| caller.discard(0, CHUNK as u64).expect("a discard");
    for (other, around) in [(write, 2), (zero, 0), (discard, 0)] {
        let recorder = Arc::new(Recorder::default());
        let engine = recorder.engine(CHUNK as u32, 100, 100);
        let reader = Arc::new(InterruptedReader {
            reader: engine.reader(),
            interruption: Mutex::new(None),
        });
        let engine = Interrupted {
            engine,
            reader: Arc::clone(&reader),
        };
        let (front, caller) = device(engine, 100, inline());
        caller.write(0, &[1; CHUNK]).expect("a write");
        caller.flush().expect("a flush");
        let client = caller.clone();
        *reader.interruption.lock() = Some(Box::new(move || other(&client)));
        caller.write(100, &[3; 50]).expect("a partial write");
        let found = caller.read(0, CHUNK as u64).expect("a read");
        let mut expected = [around; CHUNK];
        expected[100..150].fill(3);
        assert!(found[..] == expected[..], "around is {}", found[0]);
        front.close().expect("all is well");
    }
}
