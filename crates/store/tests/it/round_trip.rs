//! What is written comes back, across writers, sessions and openings.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::MemDir;
use onefold_store::{
    ChunkRef, Encryption, InitOptions, KdfCost, OpenOptions, Repository, Secret, SessionKind,
    StreamKind,
};

pub fn secret() -> Secret {
    Secret::new("open sesame")
}

/// A repository in memory with small containers.
pub fn repository(dir: &Arc<MemDir>, encryption: Encryption, threads: usize) -> Repository {
    let mut init = InitOptions::new("test", 1);
    init.encryption = encryption;
    init.kdf_cost = KdfCost::LEAST;
    Repository::init(dir.clone(), &init, Some(&secret())).unwrap();
    open(dir, threads)
}

pub fn open(dir: &Arc<MemDir>, threads: usize) -> Repository {
    let options = OpenOptions {
        threads,
        container_bytes: 64 << 10,
        block_bytes: Some(16 << 10),
        ..OpenOptions::default()
    };
    Repository::open(dir.clone(), options, Some(&secret())).unwrap()
}

/// `count` chunks, no two alike, that depend on `seed`.
pub fn chunks(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let one = |i: usize| {
        let mut out = vec![0; 500 + i * 37 % 3000];
        blake3::Hasher::new()
            .update(&seed.to_le_bytes())
            .update(&i.to_le_bytes())
            .finalize_xof()
            .fill(&mut out);
        if i.is_multiple_of(3) {
            out.iter_mut().for_each(|byte| *byte &= 3);
        }
        out
    };
    (0..count).map(one).collect()
}

pub fn write(
    repository: &Repository,
    chunks: &[Vec<u8>],
) -> (Vec<ChunkRef>, onefold_store::WriteStats) {
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let mut refs = Vec::new();
    for segment in chunks.chunks(50) {
        let named: Vec<(Fingerprint, &[u8])> = segment
            .iter()
            .map(|data| (repository.fingerprinter().fingerprint(data), &data[..]))
            .collect();
        writer.write(&named, &mut refs).unwrap();
    }
    let stats = writer.finish().unwrap();
    session.finish().unwrap();
    (refs, stats)
}

fn assert_reads(repository: &Repository, refs: &[ChunkRef], chunks: &[Vec<u8>]) {
    let session = repository.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    for (chunk, data) in refs.iter().zip(chunks) {
        assert_eq!(&*reader.read(chunk).unwrap(), &data[..]);
    }
}

#[test]
fn written_chunks_come_back_with_any_number_of_threads() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        for threads in [1, 3] {
            let dir = Arc::new(MemDir::new());
            let repository = repository(&dir, encryption, threads);
            let data = chunks(1, 400);
            let (refs, stats) = write(&repository, &data);
            assert_eq!(stats.new_chunks, 400);
            assert!(stats.containers > 3, "{stats:?}");
            assert_reads(&repository, &refs, &data);
            assert_reads(&open(&dir, threads), &refs, &data);
        }
    }
}

#[test]
fn what_is_stored_is_not_stored_again() {
    let dir = Arc::new(MemDir::new());
    let repository = repository(&dir, Encryption::Aes256Gcm, 2);
    let data = chunks(1, 300);
    let twice: Vec<_> = data.iter().chain(&data).cloned().collect();
    let (first, stats) = write(&repository, &twice);
    assert_eq!((stats.chunks, stats.new_chunks), (600, 300));
    assert_eq!(first[..300], first[300..]);
    let reopened = open(&dir, 2);
    let (again, stats) = write(&reopened, &data);
    assert_eq!(stats.new_chunks, 0);
    assert_eq!(again, first[..300]);
}
