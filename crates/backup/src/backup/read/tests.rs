//! Tests of where data begins and ends while other programs make holes, and of what shows that a file was written to.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FallocateFlags, fallocate};

use super::*;

const BLOCK: u64 = 4096;
const SIZE: u64 = 1 << 20;
const TAIL: &[u8] = b"the end";

/// Returns the bytes of all runs of data, as a backup reads them.
fn data_of(source: &mut Source<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    let mut at = 0;
    loop {
        let run = source.run_from(at).expect("run");
        assert!(run.start >= at, "{run:?} at {at}");
        if run.is_empty() {
            assert_eq!(run.start, SIZE, "left out is what is behind");
            return data;
        }
        let mut part = Read::take(&mut *source, run.end - run.start);
        part.read_to_end(&mut data).expect("read");
        at = run.end;
    }
}

#[test]
fn what_lies_behind_a_hole_that_is_made_while_it_is_looked_for_is_data_all_the_same() {
    let mut file = tempfile::tempfile().expect("file");
    file.set_len(SIZE).expect("len");
    file.seek(std::io::SeekFrom::Start(SIZE - TAIL.len() as u64))
        .expect("seek");
    file.write_all(TAIL).expect("tail");
    let writer: File = file.try_clone().expect("clone");
    let mut source = Source::file(file.into()).expect("source");
    assert!(source.may_have_holes());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while !is_over.load(Relaxed) {
                writer
                    .write_all_at(&[1; BLOCK as usize], BLOCK)
                    .expect("write");
                fallocate(&writer, punch, BLOCK, BLOCK).expect("punch");
            }
        });
        let looks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..50_000 {
                assert!(data_of(&mut source).ends_with(TAIL));
            }
        }));
        is_over.store(true, Relaxed);
        if let Err(panic) = looks {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The snapshot has the earlier ctime: so the next backup reads the file.
#[test]
fn a_file_whose_time_of_change_was_put_back_has_its_earlier_ctime() {
    let folder = tempfile::tempdir().expect("folder");
    let dir = File::open(folder.path()).expect("open");
    let path = folder.path().join("file");
    std::fs::write(&path, "first").expect("write");
    let file = File::options().write(true).open(&path).expect("open");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(time).expect("set");
    let reader = File::open(&path).expect("open");
    let mut source = Source::file(reader.into()).expect("source");
    let before = source.stat;
    loop {
        file.write_all_at(b"other", 0).expect("write");
        assert!(source.changed().expect("stat"), "its time is another one");
        file.set_modified(time).expect("set");
        // Try again where the clock has not ticked yet.
        if Stat::of(&file).expect("stat").ctime != before.ctime {
            break;
        }
    }
    assert!(source.is_as_it_was(dir.as_fd(), b"file"));
    assert_eq!(source.stat.ctime, before.ctime);
    std::fs::rename(&path, folder.path().join("another")).expect("rename");
    assert!(
        !source.is_as_it_was(dir.as_fd(), b"file"),
        "it is not there"
    );
}
