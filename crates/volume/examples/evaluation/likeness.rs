//! Differences between our `cbt` with its metadata device and those of the report, each of which can be taken away.

use onefold_io::FlashModel;
use onefold_volume::{
    BackendStats, Durability, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};

/// Bytes of a hash as key, so that 127 fit in a node: the kernel's tree has 126 (report p. 20).
const WIDE_KEY_BYTES: usize = 24;
/// Microseconds of a read that comes alone to the report's DC S3700.
const LONE_READ_US: f64 = 50.0;

/// A trait of the report's setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Likeness {
    /// Nodes with 127 hashes in place of 170.
    Nodes,
    /// Half of the cache: the report's holds each page that is changed twice (p. 20).
    Cache,
    /// Each page of metadata is a write of its own, as dm-bufio writes it; here, neighbours are one write.
    Writes,
    /// Each page of metadata is read alone, before the next is asked for: that takes the device's latency.
    Reads,
}

/// The metadata device of a setup.
#[derive(Clone, Copy)]
pub struct MetadataDevice<'a> {
    /// The model for a device of so many bytes.
    pub model: fn(u64) -> FlashModel,
    /// Traits of the report's setup that it has.
    pub like: &'a [Likeness],
}

impl MetadataDevice<'_> {
    /// A device as it is.
    pub fn new(model: fn(u64) -> FlashModel) -> Self {
        Self { model, like: &[] }
    }

    fn is_like(&self, wanted: Likeness) -> bool {
        self.like.contains(&wanted)
    }

    /// The model of a device of so many bytes.
    pub fn flash(&self, bytes: u64) -> FlashModel {
        let mut flash = (self.model)(bytes);
        if self.is_like(Likeness::Writes) {
            flash.write_us += flash.write_command_us;
            flash.write_command_us = 0.0;
        }
        if self.is_like(Likeness::Reads) {
            flash.read_command_us = LONE_READ_US - flash.read_us;
        }
        flash
    }

    /// The share of the metadata in a cache that is called so large.
    pub fn cache(&self, share: f64) -> f64 {
        if self.is_like(Likeness::Cache) {
            share / 2.0
        } else {
            share
        }
    }

    /// The backend with nodes of the wanted size.
    pub fn nodes(&self, backend: Box<dyn MetadataBackend>) -> Box<dyn MetadataBackend> {
        if self.is_like(Likeness::Nodes) {
            Box::new(WideKeys(backend))
        } else {
            backend
        }
    }
}

/// A backend whose hashes are longer by zeros.
struct WideKeys(Box<dyn MetadataBackend>);

/// A key in its longer form.
#[derive(Clone, Copy)]
enum Wide {
    Linear(u64),
    Sparse([u8; WIDE_KEY_BYTES]),
}

impl Wide {
    fn new(key: Key<'_>) -> Self {
        match key {
            Key::Linear(number) => Self::Linear(number),
            Key::Sparse(bytes) => {
                let mut wide = [0; WIDE_KEY_BYTES];
                wide[..bytes.len()].copy_from_slice(bytes);
                Self::Sparse(wide)
            }
        }
    }

    fn key(&self) -> Key<'_> {
        match self {
            Self::Linear(number) => Key::Linear(*number),
            Self::Sparse(bytes) => Key::Sparse(bytes),
        }
    }
}

impl MetadataBackend for WideKeys {
    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }

    fn create_linear(&mut self, keys: u64) -> Result<StoreId> {
        self.0.create_linear(keys)
    }

    fn create_sparse(&mut self, key_bytes: usize, keys_max: u64) -> Result<StoreId> {
        assert!(key_bytes <= WIDE_KEY_BYTES);
        self.0.create_sparse(WIDE_KEY_BYTES, keys_max)
    }

    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()> {
        self.0.insert(store, Wide::new(key).key(), pbn)
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        let wide: Vec<Wide> = keys.iter().map(|key| Wide::new(*key)).collect();
        let keys: Vec<Key<'_>> = wide.iter().map(Wide::key).collect();
        self.0.lookup(store, &keys, pbns)
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.0.delete(store, Wide::new(key).key())
    }

    /// The engine sees the longer keys: it only deletes with them, and looks at block numbers.
    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        self.0.iterate(store, visit)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        self.0.alloc_block()
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.0.inc_ref(pbn)
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.0.dec_ref(pbn)
    }

    fn ref_count(&mut self, pbn: Pbn) -> Result<u32> {
        self.0.ref_count(pbn)
    }

    fn flush(&mut self) -> Result<Durability> {
        self.0.flush()
    }

    fn changes_left(&mut self) -> Result<u64> {
        self.0.changes_left()
    }

    fn stats(&self) -> BackendStats {
        self.0.stats()
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::MemDir;
    use onefold_volume::cbt::{Cbt, CbtOptions};

    use super::*;

    #[test]
    fn wider_keys_need_more_nodes_and_are_found() {
        let pages = |like: &[Likeness]| {
            let folder = MemDir::new();
            Cbt::create(&folder, 10_000).expect("RAM");
            let options = CbtOptions::new(1 << 20);
            let backend: Box<dyn MetadataBackend> =
                Box::new(Cbt::open(&folder, 10_000, options).expect("RAM"));
            let model = FlashModel::s3700;
            let mut backend = MetadataDevice { model, like }.nodes(backend);
            let store = backend.create_sparse(16, 10_000).expect("a store");
            let key = |n: u64| onefold_io::mix64(n + 1).to_be_bytes().repeat(2);
            for n in 0..5000 {
                let key = key(n);
                backend
                    .insert(store, Key::Sparse(&key), Pbn(n))
                    .expect("room");
            }
            let mut found = [None];
            backend
                .lookup(store, &[Key::Sparse(&key(4321))], &mut found)
                .expect("RAM");
            assert_eq!(found, [Some(Pbn(4321))]);
            backend.flush().expect("RAM");
            backend.stats().page_writes
        };
        let ratio = pages(&[Likeness::Nodes]) as f64 / pages(&[]) as f64;
        assert!((1.15..1.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn lone_requests_cost_what_the_device_takes_for_one() {
        let of = |like| {
            let model = FlashModel::s3700;
            MetadataDevice { model, like }.flash(1 << 30)
        };
        let (plain, like) = (of(&[]), of(&[Likeness::Writes, Likeness::Reads]));
        assert!((like.read_us + like.read_command_us - LONE_READ_US).abs() < 1e-9);
        let one = |flash: &FlashModel| flash.write_us + flash.write_command_us;
        assert!((one(&plain) - one(&like)).abs() < 1e-9, "a lone page");
        assert!(like.write_us > plain.write_us, "two neighbours");
    }
}
