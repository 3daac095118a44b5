//! The index's files, through an index that is opened over them.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::workload::{TraceReader, TraceWriter};
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::{Dir, MemDir};

use super::Target;
use crate::image::Image;

const KEYS: u64 = 600;
const INDEX_BYTES: usize = 4 << 20;

pub fn targets() -> Vec<Target> {
    let image = Image::of(&*made());
    let kinds = [("manifest", "manifest"), ("log", "log-"), ("run", "run-")];
    let target = |(name, begin): (&str, &str)| {
        let (path, bytes) = image.files(begin).pop()?;
        let image = image.clone();
        let run = move |bytes: &[u8]| look(image.with(&path, bytes));
        // what an index of the least budget takes while it is asked, filled and merged, whatever its files claim
        Some(Target::new(&format!("index/{name}"), vec![bytes], run).allowing(INDEX_BYTES))
    };
    let mut found: Vec<_> = kinds.into_iter().filter_map(target).collect();
    assert_eq!(found.len(), 3, "strata's files have other names now");
    found.push(Target::new("index/trace", vec![trace()], |bytes| {
        let disk = MemDir::new().create("trace").expect("a disk");
        disk.write_at(bytes, 0).expect("a write");
        let mut reader = TraceReader::new(disk, "trace");
        let mut keys = 0;
        while let Ok(some) = reader.read()
            && !some.is_empty()
        {
            keys += some.len();
        }
        assert!(keys * 32 <= bytes.len(), "keys from nowhere");
    }));
    found
}

/// Two frames.
fn trace() -> Vec<u8> {
    let disk = MemDir::new().create("trace").expect("a disk");
    let mut writer = TraceWriter::new(disk.clone());
    let keys = (0..1_100).try_for_each(|number| writer.push(&key(number)));
    keys.and_then(|()| writer.finish()).expect("a trace");
    let mut bytes = vec![0; disk.len().expect("a length") as usize];
    disk.read_at(&mut bytes, 0).expect("a read");
    bytes
}

fn options() -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(1)
    }
}

pub fn key(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    for (place, eight) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
        let mixed = (number + place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        eight.copy_from_slice(&(mixed ^ (mixed >> 29)).to_be_bytes());
    }
    Fingerprint(bytes)
}

fn made() -> Arc<MemDir> {
    let dir = Arc::new(MemDir::new());
    let mut index = Strata::open(dir.clone(), options()).expect("a new index");
    let entries: Vec<_> = (0..KEYS)
        .map(|number| {
            let container = ContainerId(number / 100);
            (key(number), Location { container })
        })
        .collect();
    index.insert(&entries).expect("an insert");
    index.checkpoint().expect("a checkpoint");
    dir
}

/// Opens, asks for all keys, and writes more.
fn look(dir: Arc<MemDir>) {
    let Ok(mut index) = Strata::open(dir as Arc<dyn Dir>, options()) else {
        return;
    };
    let keys: Vec<_> = (0..KEYS * 2).map(key).collect();
    let mut found = vec![None; keys.len()];
    let _ = index.lookup(&keys, &mut found);
    let _ = index.insert(&[(
        key(KEYS * 3),
        Location {
            container: ContainerId(1),
        },
    )]);
    let _ = index.checkpoint();
}
