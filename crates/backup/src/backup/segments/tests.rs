//! Tests of large files from RAM, from the disk and mapped, and of streams: all are cut as in one piece.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use crossbeam_channel::{never, unbounded};
use onefold_chunk::{Chunker, by_name};
use onefold_io::Gate;
use onefold_io::os::cached_bytes;
use onefold_store::Fingerprinter;
use onefold_store::digest::Digester;
use rustix::fs::Advice;

use super::super::ahead::LargeFileQueue;
use super::super::parts::{FILE_BYTES_AHEAD, large_channel};
use super::*;
use crate::Progress;
use crate::backup::read::{cut, pieces};
use crate::backup::segment::Worker;
use crate::meta::Stat;

/// Reads a range of a file: returns its chunks, how many segments were mapped, and where it ended.
fn read(
    chunker: Box<dyn Chunker>,
    source: Source<'_>,
    range: Range<u64>,
    is_known: bool,
) -> (Vec<Vec<u8>>, usize, Result<u64, Errno>) {
    let outlook = Arc::new(Outlook::default());
    outlook.tell(u64::MAX / 2, !is_known);
    let buffers = Buffers::new(&*chunker, outlook.clone());
    let cutter = Arc::new(Mutex::new(FileCutter::new(chunker)));
    let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
    let queues = Queues { cold, cached };
    let (parts, received) = large_channel(&LargeFileQueue::new(FILE_BYTES_AHEAD));
    let turns = Arc::new(Gate::new(2));
    std::thread::scope(|scope| {
        for tasks in [&cold_tasks, &cold_tasks, &cold_tasks, &cached_tasks] {
            let (buffers, turns) = (&buffers, turns.clone());
            let fingerprinter = Fingerprinter::default();
            let worker = Worker {
                tasks: tasks.clone(),
                fingerprinter,
                digester: None,
                turns,
                buffers,
            };
            scope.spawn(move || worker.run());
        }
        let idle = Worker {
            tasks: never(),
            fingerprinter: Fingerprinter::default(),
            digester: None,
            turns: turns.clone(),
            buffers: &buffers,
        };
        let chunks = scope.spawn(move || {
            let (mut chunks, mut mapped) = (Vec::new(), 0);
            while let Ok(part) = received.recv(&idle) {
                if let LargePart::Segment(segment, _) = part {
                    let segment = segment.recv().unwrap();
                    let Some(held) = segment.held else { continue };
                    mapped += usize::from(!held.is_steady());
                    let lengths = segment.chunks.iter().map(|(_, len)| *len);
                    let found = pieces(&held[segment.start..], lengths);
                    chunks.extend(found.map(<[u8]>::to_vec));
                }
            }
            (chunks, mapped)
        });
        let segments = SegmentSender {
            is_digested: false,
            cutter: &cutter,
            buffers: &buffers,
            queues: &queues,
            outlook: Some(&outlook),
            parts: &parts,
            carries_much: &Arc::default(),
        };
        let end = segments.send(&source, range);
        drop((parts, queues));
        let end = end.unwrap_or_else(|_| panic!("abandoned"));
        let (chunks, mapped) = chunks.join().unwrap();
        (chunks, mapped, end)
    })
}

fn cut_whole(mut chunker: Box<dyn Chunker>, bytes: &[u8]) -> Vec<&[u8]> {
    let mut lengths = Vec::new();
    cut(&mut *chunker, bytes, true, &mut lengths);
    pieces(bytes, lengths.into_iter()).collect()
}

fn chunkers() -> impl Iterator<Item = Box<dyn Chunker>> {
    let names = ["sieve", "sieve-adaptive"].into_iter();
    names.map(|name| by_name(name, 8192, None).unwrap())
}

/// Makes bytes that look random, between others that do not.
fn mixed() -> Vec<u8> {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut bytes: Vec<u8> = (0..3_600_001u32).flat_map(word).collect();
    let plain = &mut bytes[8 << 20..9 << 20];
    plain.iter_mut().for_each(|byte| *byte &= 15);
    bytes
}

/// A file shorter than its `stat` said is cut to its real end, as in one piece: from RAM, copied or mapped, from the
/// disk, and partly from each; with chunks shorter than a segment, and longer ones.
#[test]
fn a_file_that_shrank_is_cut_to_its_end() {
    let bytes = mixed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let places = [None, Some(0..1 << 30), Some(3 << 20..5 << 20)];
    let all = places.iter().flat_map(|place| {
        let known = [false, true].map(|is_known| (place, is_known));
        known.into_iter()
    });
    for from in [0, 4096, 2_000_001] {
        for (nth, (forgotten, is_known)) in all.clone().flat_map(|a| [(0, a), (1, a)]) {
            let chunker = || chunkers().nth(nth).unwrap();
            let expected = cut_whole(chunker(), &bytes[from..]);
            assert_eq!(expected.iter().any(|chunk| chunk.len() > 1 << 20), nth == 1);
            let file = File::open(&path).unwrap();
            std::fs::read(&path).unwrap();
            if let Some(Range { start, end }) = forgotten {
                let len = NonZeroU64::new(end - start);
                rustix::fs::fadvise(&file, *start, len, Advice::DontNeed).unwrap();
            }
            let (at, long) = (from as u64, LONG_SEGMENT_BYTES as u64);
            let begins_in_ram = cached_bytes(file.as_fd(), at, long) >= Some(long);
            let source = Source::file(file.into()).unwrap();
            let (chunks, mapped, end) = read(chunker(), source, at..1 << 30, is_known);
            assert_eq!(end, Ok(bytes.len() as u64));
            assert!(chunks == expected, "{from} {nth} {forgotten:?} {is_known}");
            assert!(is_known || mapped == 0);
            assert!(!is_known || !begins_in_ram || mapped > 0);
        }
    }
}

/// A stream that comes in pieces of any size is cut as in one piece.
#[test]
fn a_stream_is_cut_as_in_one_piece() {
    let bytes = mixed();
    for nth in [0, 1] {
        let chunker = || chunkers().nth(nth).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let written = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut pieces = written.chunks(99_991);
            pieces.try_for_each(|piece| writer.write_all(piece))
        });
        let progress = Progress::default();
        let stat = Stat::of(&reader).unwrap();
        let source = Source::stream(reader.into(), stat, &progress);
        let (chunks, mapped, end) = read(chunker(), source, 0..u64::MAX, true);
        thread.join().unwrap().unwrap();
        assert_eq!((mapped, end), (0, Ok(bytes.len() as u64)));
        assert!(chunks == cut_whole(chunker(), &bytes), "{nth}");
    }
}

/// Bytes behind the end of a file that was cut short while it was read have no part in its digest.
#[test]
fn behind_the_end_nothing_is_digested() {
    let chunker = || chunkers().next().unwrap();
    let buffers = Buffers::new(&*chunker(), Arc::default());
    let worker = Worker {
        tasks: unbounded().1,
        turns: Arc::new(Gate::new(1)),
        fingerprinter: Fingerprinter::default(),
        digester: Some(Arc::new(Digester::new(&[1; 32]))),
        buffers: &buffers,
    };
    let (first, mut before) = slot();
    let baton = Baton::new(&Arc::new(Mutex::new(FileCutter::new(chunker()))));
    first.send(baton).unwrap_or_else(|_| panic!("nobody waits"));
    let want = SEGMENT_BYTES;
    let found = [want, want - 5, want]
        .into_iter()
        .zip(0..)
        .map(|(filled, nth)| {
            let (buffer, fresh) = buffers.for_segment(want);
            let ((done, segment), (after, next)) = (slot(), slot());
            worker.cut(UncutSegment {
                bytes: Bytes::Here(buffer, fresh, filled),
                range: nth * want as u64..(nth + 1) * want as u64,
                is_last: false,
                is_digested: true,
                over: Arc::default(),
                carries_much: Arc::default(),
                before: std::mem::replace(&mut before, next),
                after,
                done,
            });
            let segment = segment.recv().unwrap();
            (segment.chunks.is_empty(), segment.digest.is_some())
        });
    let found: Vec<_> = found.collect();
    assert_eq!(found, [(false, true), (false, true), (true, false)]);
}

/// A failed read ends the range and is reported.
#[test]
fn a_failed_read_is_told() {
    for chunker in chunkers() {
        let source = Source::file(File::open("/").unwrap().into()).unwrap();
        let (chunks, mapped, end) = read(chunker, source, 0..1 << 30, true);
        assert_eq!((chunks, mapped, end), (Vec::new(), 0, Err(Errno::ISDIR)));
    }
}
