//! A second machine's first backup into a repository of one terabyte on object storage: how many bytes and requests it
//! takes until the machine knows what is there.
//!
//! Nothing of the terabyte is kept: a container's end is made when it is read, and its blocks are never read. Some
//! containers hold data that the second machine has, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::{Dir, MemDir, mix64};
use onefold_keys::Keys;
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::catalog::{self, CATALOG_FOLDER, Catalog, CatalogEntry};
use onefold_store::container::{self, ContainerTable, Header};
use onefold_store::footer;
use onefold_store::objects::ObjectStore;
use onefold_store::simulated::SimStore;
use onefold_store::{
    CONTAINER_FOLDER, ContainerId, Encryption, Entropy, Error, Fingerprint, InitOptions,
    OpenOptions, Place, Repository, Result, StreamKind, Ways,
};

use crate::fixture::back_up;

/// Containers of 16 MiB in a terabyte.
const CONTAINERS: u64 = 1 << 16;
/// Chunks in a container, of 8 KiB.
const CHUNKS: u64 = 2048;
const CHUNK_BYTES: usize = 8 << 10;
/// Blocks in a container.
const BLOCKS: u64 = 32;
/// Containers whose data the second machine has: one behind the other, from this number on.
const SHARED: std::ops::Range<u64> = 40_000..40_004;
/// Containers that one catalog names, as sessions put them.
const CATALOGED: u64 = 256;
/// Bytes of a listed name in an answer of S3.
const LISTED_BYTES: u64 = 300;
/// Names in one answer.
const LISTED_NAMES: u64 = 1000;

/// The store: small objects and new containers are in RAM, the terabyte is made where it is read.
struct Terabyte {
    small: Arc<dyn ObjectStore>,
    bytes: AtomicU64,
    requests: AtomicU64,
}

fn id(number: u64) -> ContainerId {
    ContainerId(mix64(number + 1))
}

/// The number of a container of the terabyte.
fn number_of(object: &str, ids: &[(ContainerId, u64)]) -> Option<u64> {
    let id = container::id_of_object(object)?;
    let at = ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    Some(ids[at].1)
}

fn seed_of(number: u64, chunk: u64) -> u64 {
    (number << 16) | chunk
}

/// The bytes of a chunk that the second machine has.
fn data(number: u64, chunk: u64) -> Vec<u8> {
    let seed = mix64(seed_of(number, chunk));
    let words = (0..CHUNK_BYTES as u64 / 8).flat_map(|at| mix64(seed ^ at).to_le_bytes());
    words.collect()
}

fn fingerprint(number: u64, chunk: u64) -> Fingerprint {
    if SHARED.contains(&number) {
        return Keys::none()
            .fingerprinter()
            .fingerprint(&data(number, chunk));
    }
    let seed = seed_of(number, chunk);
    let mut all = [0; 32];
    for (at, word) in (0..).zip(all.chunks_exact_mut(8)) {
        word.copy_from_slice(&mix64(seed ^ (at << 48)).to_le_bytes());
    }
    Fingerprint(all)
}

fn table(number: u64) -> ContainerTable {
    let mut table = ContainerTable::default();
    let mut offset = container::HEADER_BYTES as u64;
    for block in 0..BLOCKS {
        let numbers = block * CHUNKS / BLOCKS..(block + 1) * CHUNKS / BLOCKS;
        let one = |chunk| (fingerprint(number, chunk), CHUNK_BYTES as u32);
        let chunks: Vec<_> = numbers.map(one).collect();
        let stored_len = (chunks.len() * (CHUNK_BYTES + 3)) as u32;
        table.push_block(offset, stored_len, &chunks);
        offset += BLOCK_HEADER_BYTES as u64 + u64::from(stored_len);
    }
    table
}

/// A catalog's entry of a container. The test proves for one container that its whole table gives the same.
fn entry(number: u64) -> CatalogEntry {
    if SHARED.contains(&number) {
        return CatalogEntry::of(id(number), &table(number));
    }
    // The last byte of a fingerprint is the highest of its last word.
    let is_hook = |chunk: &u64| {
        let last = mix64(seed_of(number, *chunk) ^ (3 << 48)) >> 56;
        *chunk == 0 || last & 0x7f == 0
    };
    CatalogEntry {
        container: id(number),
        chunks: CHUNKS as u32,
        hooks: (0..CHUNKS)
            .filter(is_hook)
            .map(|chunk| fingerprint(number, chunk))
            .collect(),
    }
}

/// The end of a container, and its length.
fn end(number: u64) -> (Vec<u8>, u64) {
    let table = table(number);
    let header = Header {
        id: id(number),
        stream: StreamKind::Data,
        salt: [7; 16],
    };
    let last = table.blocks.last().expect("there are blocks");
    let offset = last.offset + BLOCK_HEADER_BYTES as u64 + u64::from(last.stored_len);
    let sealer = Keys::none().container_sealer(&header.salt);
    let end = footer::encode_tail(&header, &table, offset, &sealer);
    let len = offset + end.len() as u64;
    (end, len)
}

impl Terabyte {
    fn count(&self, requests: u64, bytes: u64) {
        self.requests.fetch_add(requests, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn ids() -> Vec<(ContainerId, u64)> {
        let mut ids: Vec<_> = (0..CONTAINERS).map(|number| (id(number), number)).collect();
        ids.sort_unstable();
        ids
    }

    /// The number of the container, if it is one of the terabyte.
    fn made(&self, object: &str) -> Option<u64> {
        static IDS: std::sync::OnceLock<Vec<(ContainerId, u64)>> = std::sync::OnceLock::new();
        number_of(object, IDS.get_or_init(Self::ids))
    }
}

impl ObjectStore for Terabyte {
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.count(1, 0);
        self.small.put(name, parts)
    }

    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.count(1, 0);
        self.small.put_if_absent(name, parts)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        let bytes = self.small.get(name)?;
        self.count(1, bytes.len() as u64);
        Ok(bytes)
    }

    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert_eq!(self.made(name), None, "no more than the end is read");
        self.count(1, buf.len() as u64);
        self.small.get_range(name, offset, buf)
    }

    /// Bytes before the table are zeros.
    fn get_tail(&self, name: &str, bytes_max: usize) -> Result<(Vec<u8>, u64)> {
        let (tail, len) = match self.made(name) {
            None => self.small.get_tail(name, bytes_max)?,
            Some(number) => {
                let (end, len) = end(number);
                let zeros = vec![0; bytes_max.saturating_sub(end.len())];
                let tail = [zeros, end].concat();
                (tail[tail.len() - bytes_max..].to_vec(), len)
            }
        };
        self.count(1, tail.len() as u64);
        Ok((tail, len))
    }

    fn forget_cached(&self, _name: &str) {}

    fn len(&self, name: &str) -> Result<u64> {
        self.count(1, 0);
        match self.made(name) {
            None => self.small.len(name),
            Some(number) => Ok(end(number).1),
        }
    }

    fn list_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut names = self.small.list_past(prefix, failed)?;
        if prefix == CONTAINER_FOLDER {
            names.extend((0..CONTAINERS).map(|number| container::object_name(id(number))));
            names.sort_unstable();
        }
        let listed = names.len() as u64;
        self.count(listed / LISTED_NAMES + 1, listed * LISTED_BYTES);
        Ok(names)
    }

    fn lengths_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>> {
        self.small.lengths_past(prefix, failed)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.small.delete(name)
    }

    fn keep(&self, names: &[String]) -> Result<()> {
        self.small.keep(names)
    }

    fn has_folder(&self, folder: &str) -> Result<bool> {
        self.count(1, 0);
        self.small.has_folder(folder)
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        self.small.make_folder(folder)
    }

    fn left_over(&self) -> Result<Vec<String>> {
        self.small.left_over()
    }
}

fn repository() -> (Arc<Terabyte>, Place) {
    let store = SimStore::new(1);
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    init.entropy = Entropy::seeded(7);
    let own: Arc<dyn Dir> = Arc::new(MemDir::new());
    let place = store.place(own, &init.entropy);
    Repository::init(place.clone(), &init, None).unwrap();
    for first in (0..CONTAINERS).step_by(CATALOGED as usize) {
        let catalog = Catalog {
            sources: Vec::new(),
            entries: (first..first + CATALOGED).map(entry).collect(),
        };
        let bytes = catalog::encode(&catalog, &Keys::none(), &init.entropy).unwrap();
        let object = format!("{CATALOG_FOLDER}/{:016x}", mix64(first));
        place.objects.put(&object, &[&bytes]).unwrap();
    }
    let objects = Arc::new(Terabyte {
        small: Arc::clone(&place.objects),
        bytes: AtomicU64::new(0),
        requests: AtomicU64::new(0),
    });
    let ways = Ways {
        // As over S3.
        tail_bytes: 128 << 10,
        gets_at_once: 16,
        ..Ways::default()
    };
    let place = Place {
        objects: objects.clone(),
        ways,
        ..place
    };
    (objects, place)
}

#[test]
fn a_second_machine_reads_little_of_a_terabyte() {
    let of_table = CatalogEntry::of(id(5), &table(5));
    assert_eq!(entry(5), of_table, "entries are as sessions make them");
    let (objects, place) = repository();
    let shared = SHARED.flat_map(|number| (0..CHUNKS).map(move |chunk| data(number, chunk)));
    let new = (0..500).map(|chunk| data(CONTAINERS + 9, chunk));
    let all: Vec<_> = shared.chain(new).collect();
    let options = OpenOptions {
        threads: 1,
        entropy: Entropy::seeded(2),
        ..OpenOptions::default()
    };
    let repository = Repository::open(place, options, None).unwrap();
    let (_, stats) = back_up(&repository, &all).unwrap();
    let found = SHARED.end - SHARED.start;
    let missed = stats.new_chunks - 500;
    assert!(missed * 50 <= found * CHUNKS, "{missed} of what is there");
    let found_bytes = found * CHUNKS * CHUNK_BYTES as u64;
    let (bytes, requests) = (objects.bytes.load(Relaxed), objects.requests.load(Relaxed));
    println!(
        "{bytes} bytes in {requests} requests, {found_bytes} bytes found, {missed} chunks missed"
    );
    assert!(bytes <= 150_000_000 + found_bytes / 100, "{bytes}");
    assert!(requests <= 600 + found, "{requests}");
}
