//! Counters: which operations are counted, and how.

use std::sync::Arc;

use onefold_io::{CountedDir, Counters, Dir, IoCounts, LockKind, MemDir, ReadAt};

#[test]
fn operations_bytes_and_pages_are_counted_by_kind() {
    let counters = Counters::new();
    let dir = CountedDir::new(Arc::new(MemDir::new()), Arc::clone(&counters));
    let disk = dir.create("a").unwrap();
    disk.write_at(&[0; 4096], 4096).unwrap();
    disk.write_at(&[0; 2], 4095).unwrap();
    disk.sync().unwrap();
    let written = counters.counts();
    let expected = IoCounts {
        creates: 1,
        writes: 2,
        write_bytes: 4098,
        write_pages: 3,
        syncs: 1,
        ..IoCounts::default()
    };
    assert_eq!(written, expected);

    disk.read_at(&mut [0; 10], 4090).unwrap();
    let (mut a, mut b) = ([0; 8], [0; 4096]);
    disk.read_many_at(&mut [
        ReadAt {
            offset: 0,
            buf: &mut a,
        },
        ReadAt {
            offset: 100,
            buf: &mut b,
        },
    ])
    .unwrap();
    assert!(disk.read_at(&mut [0; 1], 1 << 30).is_err());
    let expected = IoCounts {
        reads: 4,
        read_bytes: 10 + 8 + 4096 + 1,
        read_pages: 2 + 1 + 2 + 1,
        batches: 1,
        ..IoCounts::default()
    };
    assert_eq!(counters.counts() - written, expected);

    let before = counters.counts();
    let sub = dir.subdir("sub").unwrap();
    drop(sub.lock("l", LockKind::Shared).unwrap());
    sub.create("x").unwrap().set_len(9).unwrap();
    sub.rename("x", "y").unwrap();
    sub.open("y").unwrap().discard(0, 9).unwrap_err();
    sub.remove("y").unwrap();
    sub.list().unwrap();
    sub.len_of("y").unwrap_err();
    sub.sync().unwrap();
    let expected = IoCounts {
        subdirs: 1,
        locks: 1,
        creates: 1,
        set_lens: 1,
        renames: 1,
        opens: 1,
        discards: 1,
        removes: 1,
        lists: 1,
        lens: 1,
        dir_syncs: 1,
        ..IoCounts::default()
    };
    assert_eq!(
        counters.counts() - before,
        expected,
        "folders within count too"
    );
}
