//! Indexes by their names, each made for a RAM budget: what a switch of a program needs.

use std::str::FromStr;
use std::sync::Arc;

use onefold_io::Dir;

use crate::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkIndex,
    ChunkStash, ChunkStashOptions, Result, Search, SkimpyStash, SkimpyStashOptions, Sparse,
    SparseOptions, Strata, StrataOptions, Tablets, TabletsOptions,
};

/// A persistent index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexName {
    /// The default.
    Strata,
    /// Debnath 2010, every key in RAM.
    ChunkStash,
    /// Lu's dissertation, §4.4.
    BloomStore,
    /// Debnath 2011.
    SkimpyStash,
    /// Anand 2010.
    BufferHash,
    /// An embedded database with a filter and container prefetch, as in Zhu 2008.
    BTree,
    /// Min 2010 (PRUNE).
    Tablets,
    /// Lillibridge 2009; inexact where the budget is small.
    Sparse,
}

impl IndexName {
    /// All of them, with their names.
    pub const ALL: [(&'static str, IndexName); 8] = [
        ("strata", IndexName::Strata),
        ("chunkstash", IndexName::ChunkStash),
        ("bloomstore", IndexName::BloomStore),
        ("skimpystash", IndexName::SkimpyStash),
        ("bufferhash", IndexName::BufferHash),
        ("btree", IndexName::BTree),
        ("tablets", IndexName::Tablets),
        ("sparse", IndexName::Sparse),
    ];

    /// Opens the index in `dir`, or begins one. `unique` names the opener, as in [`StrataOptions`]; `strata` alone can have several.
    ///
    /// The others are made for as many keys as the budget serves well: 1.4 bytes a key in BloomStore and SkimpyStash, 10 in BufferHash.
    /// More keys than that make them slower, and in BufferHash, ChunkStash and Sparse may be forgotten; Tablets take 2.3 bytes a key, whatever the budget. All keep the
    /// shape that they were made with.
    pub fn open(
        self,
        dir: Arc<dyn Dir>,
        ram_budget_bytes: usize,
        unique: u64,
    ) -> Result<Box<dyn ChunkIndex>> {
        let keys = |bytes_a_key: f64| (ram_budget_bytes as f64 / bytes_a_key) as u64;
        Ok(match self {
            IndexName::Strata => {
                let options = StrataOptions {
                    ram_budget_bytes,
                    ..StrataOptions::new(unique)
                };
                Box::new(Strata::open(dir, options)?)
            }
            IndexName::ChunkStash => {
                let options = ChunkStashOptions {
                    ram_budget_bytes,
                    cache_bytes: None,
                    sample: 1,
                };
                Box::new(ChunkStash::open(dir, options)?)
            }
            IndexName::BloomStore => {
                let options = BloomStoreOptions::new(keys(1.4), ram_budget_bytes);
                Box::new(BloomStore::open(dir, options)?)
            }
            IndexName::SkimpyStash => {
                let options = SkimpyStashOptions {
                    keys_expected: keys(1.4),
                    bucket_keys: 10,
                };
                Box::new(SkimpyStash::open(dir, options)?)
            }
            IndexName::BufferHash => {
                let options = BufferHashOptions::within(ram_budget_bytes);
                Box::new(BufferHash::open(dir, options)?)
            }
            IndexName::BTree => {
                let options = BTreeOptions::new(keys(4.0), ram_budget_bytes);
                Box::new(BTree::open(dir, options)?)
            }
            IndexName::Tablets => {
                let options = TabletsOptions::new(Search::LruPrefetch, ram_budget_bytes);
                Box::new(Tablets::open(dir, options)?)
            }
            IndexName::Sparse => {
                let options = SparseOptions::new(ram_budget_bytes);
                Box::new(Sparse::open(dir, options)?)
            }
        })
    }
}

impl FromStr for IndexName {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<IndexName, String> {
        let known = IndexName::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, index)| *index).ok_or_else(|| {
            let names = IndexName::ALL.map(|(name, _)| name).join(", ");
            format!("unknown index {name:?}, expected one of {names}")
        })
    }
}
