//! The index's files, through an index that is opened over them.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::{Dir, MemDir};
use onefold_papers::workload::{TraceReader, TraceWriter};

use super::{Reach, Target};
use crate::image::Image;
use crate::mend;

const KEYS: u64 = 1_200;
/// Number of keys that have a run; the others' log file is loose.
const RUN_KEYS: u64 = 1_040;
const INDEX_BYTES: usize = 4 << 20;

pub fn targets() -> Vec<Target> {
    let image = Image::of(&*made());
    let target = |kind: &str, begin: &str| {
        let found = image.files(begin).pop();
        let (path, bytes) = found.expect("strata's files have these names");
        let (image, name) = (image.clone(), path.clone());
        let run = move |bytes: &[u8]| look(image.with(&path, bytes));
        // what an index of the least budget takes while it is asked, filled and merged, whatever its files claim
        let target = Target::new(&format!("index/{kind}"), vec![bytes.clone()], run);
        (target.allowing(INDEX_BYTES), name, bytes)
    };
    let (manifest, ..) = target("manifest", "manifest");
    let (log, log_name, _) = target("log", "log-0000000000000001");
    let (loose, loose_name, _) = target("loose", "log-0000000000000002");
    let (run, run_name, run_bytes) = target("run", "run-");
    vec![
        manifest.mended(mend::frame),
        log.mended(mend::log(&log_name)).in_pages(),
        loose.mended(mend::log(&loose_name)).in_pages(),
        run.mended(mend::run(&run_name, &run_bytes)).in_pages(),
        Target::new("index/trace", vec![trace()], |bytes| {
            let disk = MemDir::new().create("trace").expect("a disk");
            disk.write_at(bytes, 0).expect("a write");
            let mut reader = TraceReader::new(disk, "trace");
            let mut keys = 0;
            loop {
                let read = reader.read();
                match &read {
                    Ok(some) if !some.is_empty() => keys += some.len(),
                    _ => {
                        assert!(keys * 32 <= bytes.len(), "keys from nowhere");
                        return Reach::of(&read.map(|_| ()));
                    }
                }
            }
        })
        .mended(mend::frames(*b"OFTRACES")),
    ]
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

fn options(unique: u64) -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(unique)
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
    for (unique, keys) in [(1, 0..RUN_KEYS), (2, RUN_KEYS..KEYS)] {
        let mut index = Strata::open(dir.clone(), options(unique)).expect("an index");
        let entry = |number| {
            let container = ContainerId(number / 100);
            (key(number), Location { container })
        };
        let entries: Vec<_> = keys.map(entry).collect();
        index.insert(&entries).expect("an insert");
        index.checkpoint().expect("a checkpoint");
    }
    dir
}

/// Opens, asks for all keys, writes more, and merges.
fn look(dir: Arc<MemDir>) -> Reach {
    let mut index = match Strata::open(dir as Arc<dyn Dir>, options(3)) {
        Ok(index) => index,
        Err(error) => return Reach::of_error(&error),
    };
    let keys: Vec<_> = (0..KEYS * 2).map(key).collect();
    let mut found = vec![None; keys.len()];
    let asked = index.lookup(&keys, &mut found);
    let container = ContainerId(1);
    let _ = index.insert(&[(key(KEYS * 3), Location { container })]);
    let _ = index.retire(&[ContainerId(2)]);
    let _ = index.checkpoint();
    Reach::of(&asked).and(Reach::of(&index.merge_all()))
}
