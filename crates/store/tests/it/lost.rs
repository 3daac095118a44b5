//! Chunks whose containers are gone: each is told, the others are read, and asking costs no more than one look at every
//! container.

use std::sync::Arc;

use onefold_io::count::{CountedDir, Counters};
use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, Error, Fingerprint, SessionKind, StreamKind};

use crate::fixture::{back_up, check, chunks, decode_root, init, open, put_root};
use crate::scale::scale;

/// Removes every second container; gives how many stay.
fn remove_every_second(dir: &Arc<dyn Dir>) -> u64 {
    let containers = dir.open_subdir("containers").unwrap();
    let mut stay = 0;
    for (number, folder) in containers.list().unwrap().into_iter().enumerate() {
        let folder = containers.open_subdir(&folder.name).unwrap();
        for entry in folder.list().unwrap() {
            if number % 2 == 0 {
                folder.remove(&entry.name).unwrap();
            } else {
                stay += 1;
            }
        }
    }
    stay
}

/// `ONEFOLD_TEST_SCALE` multiplies the chunks.
#[test]
fn lost_chunks_cost_one_look_at_all_containers() {
    let memory: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&memory, Encryption::None).unwrap();
    let data = chunks(1, 800 * scale() as usize);
    let (root, _) = back_up(&open(&memory, 1, 1).unwrap(), &data).unwrap();
    let stay = remove_every_second(&memory);

    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(memory, counters.clone()));
    let repository = open(&counted, 1, 2).unwrap();
    let refs = decode_root(&repository.root(&root).unwrap());
    let session = repository.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let (before, started) = (counters.counts(), std::time::Instant::now());
    let mut lost = 0;
    for (chunk, expected) in refs.iter().zip(&data) {
        match reader.read(chunk) {
            Ok(found) => assert_eq!(&found[..], &expected[..]),
            Err(Error::Lost { fingerprint, .. }) => {
                assert_eq!(fingerprint, chunk.fingerprint);
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let reads = (counters.counts() - before).reads;
    println!(
        "{lost} lost, {stay} containers, {reads} reads, {:?}",
        started.elapsed()
    );
    assert!(lost > data.len() / 4, "only {lost} were lost");
    // Header, footer and table of each container, twice, and its blocks.
    assert!(reads < 20 * stay + 100, "{reads} reads");
}

/// The index names one container of a chunk; where that one is gone, the other is found, for as many chunks as it
/// holds.
#[test]
fn chunks_that_two_containers_hold_survive_the_loss_of_either() {
    for gone in 0..2 {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let data = chunks(1, 10);
        // Two writers side by side, neither of which knows what the other stores.
        let session = repository.session(SessionKind::Backup).unwrap();
        let mut writer = session.writer(StreamKind::Data).unwrap();
        let names = data
            .iter()
            .map(|chunk| repository.fingerprinter().fingerprint(chunk));
        let named: Vec<_> = names.zip(data.iter().map(|chunk| &chunk[..])).collect();
        writer.write(&named, &mut Vec::new()).unwrap();
        let other = open(&dir, 1, 2).unwrap();
        let (first, _) = back_up(&other, &data).unwrap();
        writer.finish().unwrap();
        session.finish().unwrap();
        let containers = dir.open_subdir("containers").unwrap();
        let refs = decode_root(&repository.root(&first).unwrap());
        let all = containers.list().unwrap();
        let mut names = all.iter().flat_map(|folder| {
            let folder = containers.open_subdir(&folder.name).unwrap();
            let names = folder.list().unwrap();
            names
                .into_iter()
                .map(move |entry| (folder.clone(), entry.name))
        });
        let (folder, name) = names.nth(gone).unwrap();
        folder.remove(&name).unwrap();
        let session = other.session(SessionKind::Read).unwrap();
        let mut reader = session.reader().unwrap();
        for (chunk, expected) in refs.iter().zip(&data) {
            assert_eq!(&reader.read(chunk).unwrap()[..], &expected[..], "{gone}");
        }
    }
}

/// As after somebody put an older container back, or by a mistake of ours: the container is there and whole.
#[test]
fn a_reference_into_a_container_without_its_chunk_is_hurt_if_no_other_has_it() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let (root, _) = back_up(&repository, &chunks(1, 60)).unwrap();
    let whole = decode_root(&repository.root(&root).unwrap());
    let mut refs = whole.clone();
    refs[3].fingerprint = Fingerprint::of(b"stored nowhere");
    refs[7].container = refs[59].container;
    assert_ne!(refs[7].container, whole[7].container);
    put_root(&repository, &refs).unwrap();
    let report = check(&repository).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert!(!report.hurt.is_empty());
    let hurt: Vec<_> = refs.iter().map(|chunk| report.hurt.hurts(chunk)).collect();
    let expected: Vec<_> = (0..60).map(|number| number == 3).collect();
    assert_eq!(hurt, expected);
    assert!(!whole.iter().any(|chunk| report.hurt.hurts(chunk)));
}
