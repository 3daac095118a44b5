//! Files that claim more than they hold, and files longer than any that was written: they are damage, for which nothing
//! is allocated.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use onefold_index::{ContainerId, IndexKind, Location, OpenIndex};
use onefold_io::frame::{FrameKind, encode_frame};
use onefold_io::os::{mapped_bytes, mapped_peak, reset_mapped_peak};
use onefold_io::{Dir, ErrorKind, FileDir};
use onefold_papers::workload::key_of;
use onefold_papers::{BLOOMSTORE, CHUNKSTASH, SPARSE, TABLETS};

use crate::{ALLOCATOR, ALONE};

const CLAIMED: u64 = 1 << 40;
/// Bytes that opening may allocate: pages, names, tables for few keys.
const TAKEN: usize = 8 << 20;

/// Replaces the file `name` by one of `bytes` bytes: the header of a frame that claims [`CLAIMED`] bytes, and zeros
/// behind it.
fn forge(dir: &dyn Dir, name: &str, magic: &[u8; 8], bytes: u64) {
    let kind = FrameKind {
        magic: *magic,
        version: 1,
    };
    let mut frame = encode_frame(kind, &[]);
    frame[16..24].copy_from_slice(&CLAIMED.to_le_bytes());
    match dir.remove(name) {
        Err(error) if error.kind != ErrorKind::NotFound => panic!("{error}"),
        _ => {}
    }
    let disk = dir.create(name).expect("a file");
    disk.write_at(&frame, 0).expect("a frame");
    disk.set_len(bytes).expect("a file with a hole");
}

/// Runs `open` and returns the largest number of bytes held at once, beyond those before, on the heap and in mappings.
fn taken(open: impl FnOnce()) -> usize {
    let (heap, mapped) = (ALLOCATOR.current_usage(), mapped_bytes());
    ALLOCATOR.reset_peak_usage();
    reset_mapped_peak();
    open();
    let heap = ALLOCATOR.peak_usage().saturating_sub(heap);
    heap + mapped_peak().saturating_sub(mapped)
}

fn filled(path: &Path, kind: IndexKind) {
    let dir = FileDir::create(path).expect("a folder");
    let mut index = (kind.open)(OpenIndex::new(Arc::new(dir), 1 << 20, 1)).expect("a new one");
    let container = ContainerId(1);
    let entries: Vec<_> = (0..100)
        .map(|number| (key_of(number), Location { container }))
        .collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    index.retire(&[container]).expect("retire");
    index.checkpoint().expect("checkpoint");
}

#[test]
fn forged_lengths_take_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(&str, IndexKind, &str, &[u8; 8], u64); 6] = [
        ("a", CHUNKSTASH, "stash-retired", b"OFSTASHR", 1 << 20),
        ("b", CHUNKSTASH, "stash-retired", b"OFSTASHR", CLAIMED + 32),
        ("c", TABLETS, "tablet-00000000", b"OFTABLET", CLAIMED),
        (
            "d",
            TABLETS,
            "tablets-journal-00000000",
            b"OFTABJRN",
            1 << 20,
        ),
        ("e", SPARSE, "sparse-log", b"OFSPARSE", 1 << 20),
        ("f", BLOOMSTORE, "bloom-shape", b"OFBLOOMS", CLAIMED + 32),
    ];
    for (place, index, name, magic, bytes) in cases {
        let path = folder.path().join(place);
        filled(&path, index);
        let dir = FileDir::open(&path).expect("the folder");
        forge(&dir, name, magic, bytes);
        let most = taken(|| {
            // a torn end of a log is cut off; anything else is damage
            (index.open)(OpenIndex::new(Arc::new(dir), 1 << 20, 1)).err();
        });
        assert!(
            most < TAKEN,
            "{name}, {bytes} bytes: {most} bytes were held"
        );
    }
}
