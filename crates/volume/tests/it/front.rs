//! The front under several clients: one winner, no byte lost, shared flushes.

use std::sync::Arc;

use onefold_io::Random;
use onefold_volume::conformance::request;
use onefold_volume::front::Options;
use onefold_volume::{Buffer, Op};

use crate::faults::{CHUNK, bytes, device, inline};
use crate::recorder::{Event, Recorder};

/// Of two writes to one LBN in flight the later staged one wins, for ever: what is read once is read always.
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
