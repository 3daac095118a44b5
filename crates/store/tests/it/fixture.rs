//! Fixtures of the tests: small repositories, chunks, and roots that are plain lists of references.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, Strata, StrataOptions};
use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    CheckDepth, CheckReport, ChunkReader, ChunkRef, ChunkToWrite, Encryption, Entropy, Error,
    InitOptions, KdfCost, OpenOptions, Packing, PinInfo, Repository, RepositoryConfig, Result,
    RootId, Roots, Secret, Seen, SessionKind, StageProgress, StreamKind, SweepObserver,
    SweepOptions, SweepReport, WriteStats, Written,
};

pub fn secret() -> Secret {
    Secret::new("open sesame")
}

pub fn init(dir: &Arc<dyn Dir>, encryption: Encryption) -> Result<()> {
    init_with(dir, encryption, "strata")
}

pub fn init_with(dir: &Arc<dyn Dir>, encryption: Encryption, index: &str) -> Result<()> {
    init_as(dir, encryption, index, 7)
}

/// Another repository for each seed, with the same password.
pub fn init_seeded(dir: &Arc<dyn Dir>, seed: u64) {
    init_as(dir, Encryption::Aes256Gcm, "strata", seed).unwrap();
}

/// The same as asked for.
pub fn init_as(dir: &Arc<dyn Dir>, encryption: Encryption, index: &str, seed: u64) -> Result<()> {
    let init = init_options(encryption, index, seed);
    Repository::init(Arc::clone(dir), &init, Some(&secret()))
}

fn init_options(encryption: Encryption, index: &str, seed: u64) -> InitOptions {
    let mut init = InitOptions::new("test", 1);
    // Whatever is the default: the golden files say so.
    init.chunker = "sieve".into();
    init.index = index.into();
    init.indexes = onefold_papers::KINDS;
    init.encryption = encryption;
    init.kdf_cost = KdfCost::LEAST;
    init.entropy = Entropy::seeded(seed);
    init
}

/// Opens with containers of 16 KiB and blocks of 4 KiB. One thread repeats exactly.
pub fn open(dir: &Arc<dyn Dir>, threads: usize, seed: u64) -> Result<Repository> {
    let config = Repository::config_at(dir)?;
    open_as(dir, config, threads, seed, &secret())
}

/// The same as `config` says, with a password of one's own.
pub fn open_as(
    dir: &Arc<dyn Dir>,
    config: RepositoryConfig,
    threads: usize,
    seed: u64,
    secret: &Secret,
) -> Result<Repository> {
    let options = OpenOptions {
        threads,
        container_bytes: 16 << 10,
        block_bytes: Some(4 << 10),
        index_ram_bytes: 1 << 20,
        entropy: Entropy::seeded(seed),
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let secret = (config.encryption != Encryption::None).then_some(secret);
    Repository::open_agreed(Arc::clone(dir), config, options, secret)
}

/// `count` chunks of 300 to 1,500 bytes that depend on `seed`, no two alike; every third compresses.
pub fn chunks(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let one = |i: usize| {
        let mut out = vec![0; 300 + i * 37 % 1200];
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

/// Writes a stream of chunks in a session of its own and puts a root for it.
pub fn back_up(repository: &Repository, chunks: &[Vec<u8>]) -> Result<(RootId, WriteStats)> {
    back_up_packed(repository, chunks, &|_| Packing::Compress)
}

/// A device with a repository in which sixty chunks are stored under a root.
pub fn stored_with(encryption: Encryption) -> (SimDir, RootId, Vec<Vec<u8>>) {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, encryption).unwrap();
    let data = chunks(1, 60);
    let root = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap().0;
    (device, root, data)
}

/// Tells an index `strata` of `count` keys that nobody stores that they are removed, which says nothing of others: from
/// 1025 on with what is there a run of the index comes of it, as of a large backup.
pub fn say_much(dir: &Arc<dyn Dir>, count: u64, seed: u64) {
    let folder = dir.open_subdir("index").unwrap();
    let options = StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(seed)
    };
    let mut index = Strata::open(folder, options).unwrap();
    let mut keys = blake3::Hasher::new();
    let mut keys = keys.update(&seed.to_le_bytes()).finalize_xof();
    for _ in 0..count {
        let mut key = [0; 32];
        keys.fill(&mut key);
        index.remove(&[Fingerprint(key)]).unwrap();
    }
    index.checkpoint().unwrap();
}

/// The paths of all containers.
pub fn containers(device: &SimDir) -> Vec<String> {
    let paths = device.paths().into_iter();
    paths
        .filter(|path| path.starts_with("containers/"))
        .collect()
}

/// Stores a root, in a session of its own.
pub fn put_root(repository: &Repository, refs: &[ChunkRef]) -> Result<RootId> {
    let session = repository.session(SessionKind::Pinned)?;
    let root = session.put_root(&encode_root(refs))?;
    session.finish()?;
    Ok(root)
}

/// The same, with a packing for each chunk of a batch of fifty.
pub fn back_up_packed(
    repository: &Repository,
    chunks: &[Vec<u8>],
    packing: &dyn Fn(usize) -> Packing,
) -> Result<(RootId, WriteStats)> {
    let session = repository.session(SessionKind::Backup)?;
    let mut writer = session.writer(StreamKind::Data)?;
    let mut refs = Vec::new();
    for batch in chunks.chunks(50) {
        let given = batch.iter().enumerate().map(|(i, data)| ChunkToWrite {
            fingerprint: repository.fingerprinter().fingerprint(data),
            data,
            packing: packing(i),
            is_steady: true,
        });
        let given: Vec<_> = given.collect();
        let mut written = Vec::new();
        writer.write_given(&given, &mut written)?;
        refs.extend(written.iter().filter_map(Written::chunk));
    }
    let stats = writer.finish()?;
    let root = session.put_root(&encode_root(&refs))?;
    session.finish()?;
    Ok((root, stats))
}

pub fn encode_root(refs: &[ChunkRef]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in refs {
        out.extend_from_slice(&chunk.fingerprint.0);
        out.extend_from_slice(&chunk.container.0.to_le_bytes());
        out.extend_from_slice(&chunk.len.to_le_bytes());
    }
    out
}

pub fn decode_root(bytes: &[u8]) -> Vec<ChunkRef> {
    let (entries, _) = bytes.as_chunks::<44>();
    let one = |entry: &[u8; 44]| ChunkRef {
        fingerprint: Fingerprint(entry[..32].try_into().expect("32 bytes")),
        container: onefold_index::ContainerId(u64::from_le_bytes(
            entry[32..40].try_into().expect("8 bytes"),
        )),
        len: u32::from_le_bytes(entry[40..].try_into().expect("4 bytes")),
    };
    entries.iter().map(one).collect()
}

/// Roots as [`encode_root`] makes them.
pub struct Lists;

impl Roots for Lists {
    fn for_each_ref(
        &self,
        _id: &RootId,
        root: &[u8],
        _reader: &mut ChunkReader,
        _seen: &mut Seen,
        visit: &mut dyn FnMut(&ChunkRef) -> Result<()>,
    ) -> Result<()> {
        decode_root(root).iter().try_for_each(visit)
    }
}

/// Reads a root back; its chunks one after the other.
pub fn restore(repository: &Repository, root: &RootId) -> Result<Vec<Vec<u8>>> {
    let session = repository.session(SessionKind::Read)?;
    let mut reader = session.reader()?;
    let refs = decode_root(&repository.root(root)?);
    let read = refs
        .iter()
        .map(|chunk| Ok(reader.read(chunk)?.to_vec()))
        .collect();
    session.finish()?;
    read
}

/// Never waits.
pub struct Hasty;

impl SweepObserver for Hasty {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

pub fn sweep(repository: &Repository) -> Result<SweepReport> {
    repository.sweep(&Lists, &SweepOptions::default(), &mut Hasty)
}

pub fn check(repository: &Repository) -> Result<CheckReport> {
    repository.check(
        &Lists,
        CheckDepth::Data { part: 1, of: 1 },
        &mut |_| {},
        &mut |_| {},
    )
}

/// Everything is as it was written, and these roots read as these chunks.
pub fn assert_sound(
    repository: &Repository,
    roots: &[(RootId, Vec<Vec<u8>>)],
    context: &dyn std::fmt::Display,
) {
    let report = check(repository).unwrap_or_else(|error| panic!("{context}: check: {error}"));
    assert!(report.damage.is_empty(), "{context}: {:?}", report.damage);
    for (root, chunks) in roots {
        let found = restore(repository, root)
            .unwrap_or_else(|error: Error| panic!("{context}: restore of {root}: {error}"));
        assert!(found == *chunks, "{context}: {root} reads otherwise");
    }
}
