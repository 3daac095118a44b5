//! How much a writer takes that cannot be stored yet: so much RAM it needs on a slow disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, OpenOptions, Repository, SessionKind, StreamKind};

use crate::fixture::{init, secret};
use crate::guarded::{Failing, Guarded};

const BLOCK_BYTES: usize = 4 << 10;
const CONTAINER_BYTES: usize = 64 << 10;
const THREADS: usize = 8;

#[test]
fn a_disk_that_stands_still_keeps_a_writer_waiting_however_many_threads_there_are() {
    let failing = Failing::default();
    let inner: Arc<dyn Dir> = Arc::new(MemDir::new());
    let dir = Guarded::writable(&inner, &failing);
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let options = OpenOptions {
        threads: THREADS,
        container_bytes: CONTAINER_BYTES,
        block_bytes: Some(BLOCK_BYTES),
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let repository = Repository::open(dir, options, Some(&secret())).unwrap();
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();

    let taken = Arc::new(AtomicUsize::new(0));
    let at_rest = Arc::new(AtomicUsize::new(0));
    let (seen, noted) = (Arc::clone(&taken), Arc::clone(&at_rest));
    failing.at_syncs(move || {
        let mut before = usize::MAX;
        while before != seen.load(Relaxed) {
            before = seen.load(Relaxed);
            std::thread::sleep(Duration::from_millis(300));
        }
        noted.store(before, Relaxed);
        true
    });
    let mut refs = Vec::new();
    for i in 0..2_000_u32 {
        let mut chunk = vec![0; 1_000];
        blake3::Hasher::new()
            .update(&i.to_le_bytes())
            .finalize_xof()
            .fill(&mut chunk);
        let fingerprint = repository.fingerprinter().fingerprint(&chunk);
        writer.write(&[(fingerprint, &chunk)], &mut refs).unwrap();
        taken.fetch_add(chunk.len(), Relaxed);
    }
    writer.finish().unwrap();
    session.finish().unwrap();

    // Three containers, each a little too long since it is seen late that it is full, and the blocks that wait.
    let under_way = 2 * THREADS * BLOCK_BYTES;
    let most = 3 * (CONTAINER_BYTES + under_way / 2) + under_way;
    let at_rest = at_rest.load(Relaxed);
    assert!(at_rest > CONTAINER_BYTES, "{at_rest}");
    assert!(at_rest < most, "{at_rest} bytes, at most {most}");
}
