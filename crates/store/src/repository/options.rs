//! Options for making and opening a repository.

use onefold_index::IndexKind;
use onefold_keys::{Entropy, KdfCost};

use crate::container::compression::Compression;
use crate::objects::local_cache::LOCAL_CACHE_BYTES;
use crate::registry::PinInfo;
use crate::repository::config::{CHUNK_BYTES_MEAN_DEFAULT, Encryption};

/// Options of a new repository.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The chunker of file contents, by name.
    pub chunker: String,
    /// Its mean, in bytes.
    pub chunk_bytes_mean: u32,
    /// Encryption of the stored data.
    pub encryption: Encryption,
    /// The fingerprint index: `ram`, or one of `indexes`, as `NAME` or `NAME:key=value,…`.
    pub index: String,
    /// The kinds of indexes that may be chosen.
    pub indexes: &'static [IndexKind],
    /// The cost of the first key slot.
    pub kdf_cost: KdfCost,
    /// Whom the first key slot belongs to.
    pub label: String,
    /// Time of the first key slot, in seconds since 1970.
    pub now_unix_s: u64,
    /// Names, salts, the master key.
    pub entropy: Entropy,
}

impl InitOptions {
    /// The defaults: sieve-adaptive, AES-256-GCM, strata.
    pub fn new(label: impl Into<String>, now_unix_s: u64) -> Self {
        Self {
            chunker: "sieve-adaptive".into(),
            chunk_bytes_mean: CHUNK_BYTES_MEAN_DEFAULT,
            encryption: Encryption::Aes256Gcm,
            index: "strata".into(),
            indexes: onefold_index::KINDS,
            kdf_cost: KdfCost::default(),
            label: label.into(),
            now_unix_s,
            entropy: Entropy::system(),
        }
    }
}

/// How an opened repository works: chosen anew at each opening, and no part of its configuration.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// RAM for the index, in bytes.
    pub index_ram_bytes: usize,
    /// The kinds of indexes that there are; a repository of another kind is not opened.
    pub indexes: &'static [IndexKind],
    /// Threads that compress. One makes everything run inline and in a fixed order.
    pub threads: usize,
    /// How hard new blocks are compressed.
    pub compression: Compression,
    /// Where a container is closed, in stored bytes.
    pub container_bytes: usize,
    /// Raw bytes a block, where the compression's own choice is not wanted.
    pub block_bytes: Option<usize>,
    /// The sessions' description of themselves.
    pub pin: PinInfo,
    /// Bytes of the copies of roots, catalogs, descriptors and metadata in this machine's own folder, where a request
    /// costs much; 0 where none are to be kept or used.
    pub local_cache_bytes: u64,
    /// Names and salts.
    pub entropy: Entropy,
    /// Chunks are looked up, compressed and counted, but no container is stored. Costs some 20 bytes of RAM for each
    /// new chunk, at most 28 MiB; beyond [`DRY_RUN_EXACT_CHUNKS`](crate::DRY_RUN_EXACT_CHUNKS) new ones the counts are
    /// approximate.
    pub dry_run: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            index_ram_bytes: 32 << 20,
            indexes: onefold_index::KINDS,
            threads: Compression::default().threads(),
            compression: Compression::default(),
            container_bytes: 16 << 20,
            block_bytes: None,
            pin: PinInfo::default(),
            local_cache_bytes: LOCAL_CACHE_BYTES,
            entropy: Entropy::system(),
            dry_run: false,
        }
    }
}
