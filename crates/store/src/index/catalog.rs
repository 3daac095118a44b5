//! The catalog: what sessions stored, by samples of fingerprints. Specified in FORMAT.md, "Catalog".
//!
//! Where a request costs much, a machine that is new to a repository does not read the descriptors of all containers.
//! Such a machine reads the catalogs, of which each session puts one, and tells its index the *hooks* that stand in
//! them: some of each container's fingerprints. When a hook is looked up, the container's descriptors are read, and the
//! index is told of all that the container holds, and of the one that was stored after it. This is the sampled index in
//! RAM of Debnath et al. (ChunkStash, 2010) with the prefetching of Min et al. (2010, section 3.3).
//!
//! Invariant: a container that no catalog names, or only a damaged one, is read as where there is no catalog. Nobody
//! refers to a chunk because of a hook before the container's own table was read. Catalogs are sealed as tables are, so
//! who can forge the one can forge the other.

use std::collections::{HashMap, HashSet};

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};
use onefold_io::frame::{self, FrameKind};
use onefold_io::hex_number;
use onefold_io::varint::ByteReader;
use onefold_keys::{Entropy, Keys};

use crate::Result;
use crate::container::ContainerTable;
use crate::objects::local_cache::{Copied, LocalCache};
use crate::objects::{ObjectStore, read_twice_at_most};

/// The frame of a catalog.
pub const CATALOG: FrameKind = FrameKind {
    magic: *b"1FCATLOG",
    version: 1,
};
/// The folder of all catalogs.
pub const CATALOG_FOLDER: &str = "catalog";
/// A fingerprint whose last bits are zero under this mask is a hook: one in 128.
const HOOK_MASK: u8 = 0x7f;
/// All chunks of a container with fewer than this are hooks.
const CHUNKS_MIN: usize = 256;
/// A chunk of at least so many bytes is a hook: 256 KiB.
const LARGE_BYTES: u32 = 256 << 10;
/// A session puts a catalog after so many containers, so that one that is killed has told of most: 4 GiB of the usual
/// ones.
pub(crate) const CONTAINERS_MAX: usize = 256;

/// Containers that a session stored, as it tells other machines.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Catalog {
    /// Containers whose living chunks a sweep copied into those of `entries`.
    pub sources: Vec<ContainerId>,
    /// The containers, in the order of storing.
    pub entries: Vec<CatalogEntry>,
}

/// A container in a catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogEntry {
    /// Its name.
    pub container: ContainerId,
    /// How many chunks it holds.
    pub chunks: u32,
    /// Some of its fingerprints, in stream order.
    pub hooks: Vec<Fingerprint>,
}

impl CatalogEntry {
    /// The entry of a container.
    pub fn of(container: ContainerId, table: &ContainerTable) -> Self {
        let is_small = table.chunks.len() < CHUNKS_MIN;
        let is_hook = |(at, (fingerprint, len)): &(usize, &(Fingerprint, u32))| {
            let [.., last] = fingerprint.0;
            is_small || *at == 0 || *len >= LARGE_BYTES || last & HOOK_MASK == 0
        };
        let hooks = table.chunks.iter().enumerate().filter(is_hook);
        Self {
            container,
            chunks: table.chunks.len() as u32,
            hooks: hooks.map(|(_, (fingerprint, _))| *fingerprint).collect(),
        }
    }

    /// Returns the locations that an index learns of the container by this entry alone.
    pub(crate) fn locations(&self) -> Vec<(Fingerprint, Location)> {
        let container = self.container;
        let hooks = self.hooks.iter();
        hooks.map(|hook| (*hook, Location { container })).collect()
    }
}

/// A catalog as it is stored.
///
/// # Errors
/// [`Error::Machine`](crate::Error::Machine): the system has no randomness for the salt.
pub fn encode(catalog: &Catalog, keys: &Keys, entropy: &Entropy) -> Result<Vec<u8>> {
    let mut payload = (catalog.sources.len() as u32).to_le_bytes().to_vec();
    let sources = catalog.sources.iter();
    sources.for_each(|source| payload.extend(source.0.to_le_bytes()));
    for entry in &catalog.entries {
        payload.extend_from_slice(&entry.container.0.to_le_bytes());
        payload.extend_from_slice(&entry.chunks.to_le_bytes());
        payload.extend_from_slice(&(entry.hooks.len() as u32).to_le_bytes());
        entry.hooks.iter().for_each(|hook| payload.extend(hook.0));
    }
    let sealed = keys.seal_object(&CATALOG.magic, &payload, entropy)?;
    Ok(frame::encode_frame(CATALOG, &sealed))
}

/// From the stored bytes of the catalog `object`.
///
/// # Errors
/// Damage of `object` ([`is_damage`](crate::Error::is_damage)); another version's catalog
/// ([`is_other_version`](crate::Error::is_other_version)).
pub fn decode(bytes: &[u8], keys: &Keys, object: &str) -> Result<Catalog> {
    let sealed = frame::decode_whole(CATALOG, bytes, object, 0)?;
    let payload = keys.open_object(&CATALOG.magic, sealed, object)?;
    let mut reader = ByteReader::new(&payload, object, 0);
    let sources = reader.u32()? as usize;
    let (sources, _) = reader.take(sources.saturating_mul(8))?.as_chunks::<8>();
    let sources = sources
        .iter()
        .map(|id| ContainerId(u64::from_le_bytes(*id)));
    let (sources, mut entries) = (sources.collect(), Vec::new());
    while reader.remaining() > 0 {
        let (container, chunks, hooks) = (reader.u64()?, reader.u32()?, reader.u32()?);
        if hooks > chunks {
            let what = format!("{hooks} hooks of a container with {chunks} chunks");
            return Err(reader.damaged(what).into());
        }
        let (hooks, _) = reader.take(hooks as usize * 32)?.as_chunks::<32>();
        entries.push(CatalogEntry {
            container: ContainerId(container),
            chunks,
            hooks: hooks.iter().map(|hook| Fingerprint(*hook)).collect(),
        });
    }
    Ok(Catalog { sources, entries })
}

/// Puts a catalog of what a session stored, under a new name. It is advice: a catalog that cannot be put costs others
/// time.
pub(crate) fn put(objects: &dyn ObjectStore, catalog: &Catalog, keys: &Keys, entropy: &Entropy) {
    let put = || -> Result<()> {
        let object = format!("{CATALOG_FOLDER}/{:016x}", entropy.try_u64()?);
        objects.put_if_absent(&object, &[&encode(catalog, keys, entropy)?])
    };
    if let Err(error) = put() {
        tracing::warn!(
            "{error}: other machines read the descriptors of {} containers",
            catalog.entries.len()
        );
    }
}

/// Where the chunks of containers went whose living chunks a sweep copied.
#[derive(Default)]
pub(crate) struct Forwarding(HashMap<ContainerId, Vec<ContainerId>>);

impl Forwarding {
    /// Takes note of where the catalog's sources went.
    pub fn add(&mut self, catalog: &Catalog) {
        let entries = catalog.entries.iter();
        let targets: Vec<_> = entries.map(|entry| entry.container).collect();
        for source in &catalog.sources {
            self.0.entry(*source).or_default().extend(&targets);
        }
    }

    /// Containers in which chunks of `source` may be.
    pub fn of(&self, source: ContainerId) -> &[ContainerId] {
        self.0.get(&source).map_or(&[], Vec::as_slice)
    }
}

/// All catalogs, of which this machine keeps copies.
pub(crate) struct Copies<'a> {
    pub objects: &'a dyn ObjectStore,
    pub keys: &'a Keys,
    /// `None` where each catalog is to be read from the store.
    pub local_cache: Option<&'a LocalCache>,
}

impl Copies<'_> {
    /// Gives each catalog to `visit`. Copies of catalogs that the store has no longer are removed. Damaged catalogs are
    /// passed over.
    ///
    /// # Errors
    /// Failures of the store; those of `visit`.
    pub fn for_each(&self, visit: &mut dyn FnMut(Catalog) -> Result<()>) -> Result<()> {
        let objects = match self.objects.list(CATALOG_FOLDER) {
            Err(error) if error.is_not_found() => Vec::new(),
            listed => listed?,
        };
        let name = |object: &String| {
            object
                .strip_prefix(CATALOG_FOLDER)?
                .strip_prefix('/')
                .map(str::to_owned)
        };
        let names = objects.iter().filter_map(name);
        let names: HashSet<_> = names
            .filter(|name| hex_number(name, 16).is_some())
            .collect();
        if let Some(cache) = self.local_cache {
            cache.forget_all_but(CATALOG_FOLDER, &names);
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        for name in names {
            match self.read(&name) {
                Err(error) if error.is_unusable() => {
                    tracing::warn!("{error}: descriptors are read instead");
                }
                // A sweep has just put another in its place.
                Err(error) if error.is_not_found() => {}
                catalog => visit(catalog?)?,
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Catalog> {
        let object = format!("{CATALOG_FOLDER}/{name}");
        let of = Copied::Object(&object);
        if let Some(bytes) = self.local_cache.and_then(|cache| cache.get(of))
            && let Ok(catalog) = decode(&bytes, self.keys, &object)
        {
            return Ok(catalog);
        }
        let (bytes, catalog) = read_twice_at_most(self.objects, &object, || {
            let bytes = self.objects.get(&object)?;
            let catalog = decode(&bytes, self.keys, &object)?;
            Ok((bytes, catalog))
        })?;
        if let Some(cache) = self.local_cache {
            cache.put(of, &[&bytes]);
        }
        Ok(catalog)
    }
}
