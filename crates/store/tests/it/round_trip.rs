//! Written chunks come back, across writers, sessions and openings.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::count::{CountedDir, Counters};
use onefold_io::{Dir, MemDir};
use onefold_store::block::CHUNK_BYTES_MAX;
use onefold_store::objects::OBJECT_BYTES_MAX;
use onefold_store::{
    ChunkToWrite, Encryption, Entropy, Error, OpenOptions, Packing, Repository, Secret,
    SessionKind, StreamKind, Written,
};

use crate::fixture::{
    assert_sound, back_up, back_up_packed, chunks, decode_root, init, init_with, open,
};

#[test]
fn written_chunks_come_back_with_any_number_of_threads() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        for threads in [1, 3] {
            let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
            init(&dir, encryption).unwrap();
            let repository = open(&dir, threads, 1).unwrap();
            let data = chunks(1, 400);
            let (root, stats) = back_up(&repository, &data).unwrap();
            assert_eq!(stats.new_chunks, 400);
            assert!(stats.containers > 3, "{stats:?}");
            assert_sound(&repository, &[(root, data.clone())], &"same opening");
            assert_sound(
                &open(&dir, threads, 2).unwrap(),
                &[(root, data)],
                &"reopened",
            );
        }
    }
}

#[test]
fn chunks_that_are_not_to_be_compressed_lie_beside_those_that_are() {
    // All shrink to a quarter.
    let data: Vec<Vec<u8>> = (0..400).flat_map(|i| chunks(i, 1)).collect();
    let stored = |packing: &dyn Fn(usize) -> Packing| {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let repository = open(&dir, 2, 1).unwrap();
        let (root, stats) = back_up_packed(&repository, &data, packing).unwrap();
        assert_sound(&repository, &[(root, data.clone())], &"packed");
        stats.stored_bytes
    };
    let compressed = stored(&|_| Packing::Compress);
    let as_is = stored(&|_| Packing::AsIs);
    let mixed = stored(&|i| match i % 2 {
        0 => Packing::Compress,
        _ => Packing::AsIs,
    });
    let raw: u64 = data.iter().map(|chunk| chunk.len() as u64).sum();
    assert!(as_is > raw && compressed < raw / 2, "{as_is} {compressed}");
    let middle = (as_is + compressed) / 2;
    assert!(mixed.abs_diff(middle) < raw / 10, "{mixed} {middle}");
}

/// Played in a process of its own, whose threads ask for stacks larger than any address space.
#[test]
fn where_the_system_has_no_threads_a_writer_does_without() {
    const PLAY: &str = "ONEFOLD_TEST_NO_THREADS";
    if std::env::var_os(PLAY).is_some() {
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        init_with(&dir, Encryption::None, "tablets").unwrap();
        let repository = open(&dir, 4, 1).unwrap();
        let data = chunks(1, 60);
        let (root, _) = back_up(&repository, &data).unwrap();
        assert_sound(&repository, &[(root, data)], &"no threads");
        return;
    }
    let test = "round_trip::where_the_system_has_no_threads_a_writer_does_without";
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(PLAY, "1")
        .env("RUST_MIN_STACK", (1_u64 << 50).to_string())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// Nothing is taken that could not be read again.
#[test]
fn a_chunk_that_no_reader_would_take_is_refused() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Metadata).unwrap();
    let zeros = vec![0; CHUNK_BYTES_MAX + 1];
    let (longest, mut refs) = (&zeros[1..], Vec::new());
    let fingerprint = repository.fingerprinter().fingerprint(longest);
    writer.write(&[(fingerprint, longest)], &mut refs).unwrap();
    let refused = writer.write(&[(Fingerprint([1; 32]), &zeros)], &mut refs);
    assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
    writer.finish().unwrap();
    let mut reader = session.reader().unwrap();
    assert!(reader.read(&refs[0]).unwrap()[..] == *longest);
    session.finish().unwrap();
}

#[test]
fn a_chunk_of_another_length_than_the_reference_says_is_damage() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let (root, _) = back_up(&repository, &chunks(1, 3)).unwrap();
    let mut chunk = decode_root(&repository.root(&root).unwrap())[1];
    let session = repository.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    assert!(reader.read(&chunk).is_ok());
    chunk.len += 1;
    let error = reader.read(&chunk).err().unwrap();
    assert!(error.is_damage(), "{error}");
}

/// The pages of a root that is refused are never touched.
#[test]
fn a_root_that_no_reader_would_take_is_refused() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let session = repository.session(SessionKind::Backup).unwrap();
    let root = vec![0; OBJECT_BYTES_MAX as usize];
    let refused = session.put_root(&root);
    assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
    assert_eq!(repository.roots().unwrap(), []);
    session.finish().unwrap();
}

/// However little they take: a reader keeps the tables of two containers and more within its cache.
#[test]
fn a_container_holds_a_bounded_number_of_tiny_chunks() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let options = OpenOptions {
        threads: 1,
        entropy: Entropy::seeded(1),
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let repository = Repository::open(Arc::clone(&dir), options, None).unwrap();
    let data: Vec<Vec<u8>> = (0..140_000u32)
        .map(|number| number.to_le_bytes().to_vec())
        .collect();
    let (_, stats) = back_up(&repository, &data).unwrap();
    assert_eq!((stats.new_chunks, stats.containers), (140_000, 3));
}

#[test]
fn what_is_stored_is_not_stored_again() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let data = chunks(1, 300);
    let twice: Vec<_> = data.iter().chain(&data).cloned().collect();
    let (_, stats) = back_up(&open(&dir, 2, 1).unwrap(), &twice).unwrap();
    assert_eq!((stats.chunks, stats.new_chunks), (600, 300));
    let (_, stats) = back_up(&open(&dir, 2, 2).unwrap(), &data).unwrap();
    assert_eq!((stats.new_chunks, stats.stored_bytes), (0, 0));
}

#[test]
fn only_the_password_opens() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let wrong = Repository::open(
        Arc::clone(&dir),
        Default::default(),
        Some(&Secret::new("guess")),
    );
    assert!(matches!(wrong, Err(Error::WrongPassword { slots: 1 })));
    let repository = open(&dir, 1, 1).unwrap();
    let cost = onefold_store::KdfCost::LEAST;
    let added = repository
        .add_key(&Secret::new("second"), "second", cost, 2)
        .unwrap();
    assert!(
        Repository::open(
            Arc::clone(&dir),
            Default::default(),
            Some(&Secret::new("second"))
        )
        .is_ok()
    );
    assert_eq!(repository.keys().unwrap().len(), 2);
    repository.remove_key(&added).unwrap();
    assert!(
        Repository::open(
            Arc::clone(&dir),
            Default::default(),
            Some(&Secret::new("second"))
        )
        .is_err()
    );
    let last = repository.keys().unwrap()[0].id.clone();
    assert!(matches!(
        repository.remove_key(&last),
        Err(Error::Option(_))
    ));
}

#[test]
fn a_repository_is_made_only_where_nothing_stands() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    dir.create("photo").unwrap();
    assert!(matches!(
        init(&dir, Encryption::None),
        Err(Error::NotEmpty { .. })
    ));
    // As a new disk has it.
    let disk: Arc<dyn Dir> = Arc::new(MemDir::new());
    disk.subdir("lost+found").unwrap();
    init(&disk, Encryption::None).unwrap();
    let empty: Arc<dyn Dir> = Arc::new(MemDir::new());
    assert!(matches!(
        open(&empty, 1, 1),
        Err(Error::NoRepository { .. })
    ));
}

#[test]
fn an_index_of_one_opener_lets_readers_in_and_refuses_a_second_writer() {
    let dir: Arc<dyn Dir> = Arc::new(onefold_io::MemDir::new());
    let mut init = onefold_store::InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    init.index = "bloomstore".into();
    init.indexes = onefold_papers::KINDS;
    Repository::init(Arc::clone(&dir), &init, None).expect("init");
    let (first, second) = (
        open(&dir, 1, 1).expect("open"),
        open(&dir, 1, 2).expect("open"),
    );
    let writing = first.session(SessionKind::Backup).expect("session");
    second
        .session(SessionKind::Read)
        .expect("session")
        .finish()
        .expect("finish");
    let refused = second.session(SessionKind::Backup).err();
    assert!(matches!(refused, Some(Error::Locked { .. })), "{refused:?}");
    writing.finish().expect("finish");
    drop(first);
    second
        .session(SessionKind::Backup)
        .expect("session")
        .finish()
        .expect("finish");
}

/// Bytes that others may change are stored only if they are still what was fingerprinted; of a chunk that is stored
/// already they do not matter.
#[test]
fn a_chunk_that_changed_since_it_was_fingerprinted_is_lost() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let mut data = chunks(1, 3);
    // The changed chunks are as long as before.
    data.iter_mut().for_each(|chunk| chunk.truncate(300));
    back_up(&repository, &data[..1]).unwrap();
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let given = |name: &[u8], data| ChunkToWrite {
        fingerprint: repository.fingerprinter().fingerprint(name),
        data,
        packing: Packing::Compress,
        is_steady: false,
    };
    let (changed, mut written) = (&data[0][..], Vec::new());
    let all = [
        given(&data[0], &data[2][..]),
        given(&data[1], changed),
        given(&data[2], &data[2][..]),
        given(&data[1], &data[1][..]),
    ];
    writer.write_given(&all, &mut written).unwrap();
    assert_eq!(writer.finish().unwrap().new_chunks, 2);
    let mut reader = session.reader().unwrap();
    for (written, expected) in written.iter().zip([Some(0), None, Some(2), Some(1)]) {
        let found = written.chunk().map(|chunk| reader.read(&chunk).unwrap());
        assert_eq!(found.as_deref(), expected.map(|i: usize| &data[i][..]));
    }
    assert!(matches!(written[0], Written::Known(_)));
    session.finish().unwrap();
}

/// A repository of 10 TB has 600,000.
#[test]
fn who_begins_a_session_looks_at_no_container_by_itself() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    back_up(&open(&dir, 1, 1).unwrap(), &chunks(1, 200)).unwrap();
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(dir, counters.clone()));
    let repository = open(&counted, 1, 2).unwrap();
    assert!(repository.containers().unwrap().len() > 5);
    for kind in [SessionKind::Backup, SessionKind::Read, SessionKind::Pinned] {
        let before = counters.counts();
        repository.session(kind).unwrap().finish().unwrap();
        let asked = counters.counts() - before;
        assert!(asked.lists > 1, "{kind:?}: {asked:?}");
        assert_eq!(asked.lens, 0, "{kind:?}: {asked:?}");
    }
    let before = counters.counts();
    assert_eq!(repository.roots().unwrap().len(), 1);
    assert_eq!((counters.counts() - before).lens, 0);
}

/// A snapshot's leaves, when several backups stored its folders.
#[test]
fn metadata_of_three_blocks_read_by_turns_is_decoded_once() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(dir, counters.clone()));
    let options = OpenOptions {
        threads: 1,
        index_ram_bytes: 1 << 20,
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let repository = Repository::open(counted, options, None).unwrap();
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Metadata).unwrap();
    // Three times the raw bytes of a block of metadata, in chunks of half a MiB.
    let data: Vec<Vec<u8>> = (1..=48).map(|i| vec![i; 512 << 10]).collect();
    let fingerprinter = repository.fingerprinter();
    let mut refs = Vec::new();
    for chunk in &data {
        let chunk = (fingerprinter.fingerprint(chunk), &chunk[..]);
        writer.write(&[chunk], &mut refs).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = session.reader().unwrap();
    let mut read_all = || {
        let before = counters.counts();
        for first in 0..16 {
            for at in [first, first + 16, first + 32] {
                assert_eq!(&reader.read(&refs[at]).unwrap()[..], &data[at][..]);
            }
        }
        (counters.counts() - before).reads
    };
    let first = read_all();
    assert!((3..16).contains(&first), "{first}");
    assert_eq!(read_all(), 0);
}
