//! Chunks that are not where their references say, since somebody moved them.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::sim::SimDir;
use onefold_io::{CountedDir, Counters, Dir, MemDir};
use onefold_store::container::HEADER_BYTES;
use onefold_store::{ChunkReader, Encryption, SessionKind, SweepOptions};

use crate::fixture::{
    Hasty, Lists, back_up, chunks, containers, decode_root, init, open, stored_with, sweep,
};

/// A snapshot names for ever the containers in which its chunks were when it was made.
#[test]
fn what_a_sweep_has_moved_comes_a_container_at_a_time() {
    let counters = Counters::new();
    let device: Arc<dyn Dir> = Arc::new(MemDir::new());
    let dir: Arc<dyn Dir> = Arc::new(CountedDir::new(device, Arc::clone(&counters)));
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let all = chunks(1, 1200);
    let (whole, _) = back_up(&repository, &all).unwrap();
    let data: Vec<_> = all.into_iter().step_by(2).collect();
    let (root, _) = back_up(&repository, &data).unwrap();
    repository.remove_root(&whole).unwrap();
    assert!(sweep(&repository).unwrap().compacted_containers > 10);
    let refs = decode_root(&repository.root(&root).unwrap());
    let session = repository.session(SessionKind::Read).unwrap();
    let reads = |read: &mut dyn FnMut(&mut ChunkReader)| {
        let mut reader = session.reader().unwrap();
        let before = counters.counts();
        read(&mut reader);
        (counters.counts() - before).read_bytes
    };
    let mut came = 0;
    let together = reads(&mut |reader| {
        for refs in refs.chunk_by(|a, b| a.container == b.container) {
            let container = refs[0].container;
            let mut wanted: Vec<_> = refs.iter().map(|chunk| chunk.fingerprint).collect();
            wanted.sort_unstable();
            let mut visit = |_: &Fingerprint, _: &[u8]| {
                came += 1;
                Ok(())
            };
            let moved = reader.read_container(container, &wanted, &mut visit);
            reader
                .read_moved(container, &moved.unwrap(), &mut visit)
                .unwrap();
        }
    });
    assert_eq!(came, data.len());
    let dry = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let stored = repository.sweep(&Lists, &dry, &mut Hasty).unwrap();
    let stored = stored.stored_bytes;
    assert!(together < 2 * stored, "{together} bytes of {stored}");
}

/// The reader has searched all tables before, in vain.
#[test]
fn what_a_repair_saves_is_found_by_who_began_before_it() {
    let (device, root, _) = stored_with(Encryption::Aes256Gcm);
    let first = &containers(&device)[0];
    // A container that a device does not give is set aside at once; a damaged one waits for the sessions that may refer
    // to it.
    let bad = HEADER_BYTES as u64 + 50;
    device.spoil(first, bad..bad + 1).unwrap();
    let opened = |seed| {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::clone(&device));
        open(&dir, 1, seed).unwrap()
    };
    let reading = opened(2);
    let session = reading.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let refs = decode_root(&reading.root(&root).unwrap());
    let hurt = refs
        .iter()
        .position(|chunk| reader.read(chunk).is_err())
        .expect("a damaged block");
    let report = opened(3).repair(&Lists, &mut Hasty).unwrap();
    assert!(!containers(&device).contains(first), "{report:?}");
    let came = |reader: &mut ChunkReader| {
        let rest = refs[hurt..].iter();
        rest.filter(|chunk| reader.read(chunk).is_ok()).count()
    };
    let after = opened(4);
    let anew = after.session(SessionKind::Read).unwrap();
    let all = came(&mut anew.reader().unwrap());
    assert!(0 < all && all < refs.len() - hurt, "{all}");
    assert_eq!(came(&mut reader), all);
}
