//! Indexes by their names, each made for a RAM budget: what a switch of a program needs.

use std::str::FromStr;
use std::sync::Arc;

use onefold_io::{Dir, remove_if_there};

use crate::tablets::number_of;
use crate::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkStash,
    ChunkStashOptions, Search, SkimpyStash, SkimpyStashOptions, Sparse, SparseOptions, Tablets,
    TabletsOptions,
};
use onefold_index::{ChunkIndex, Result, Strata, StrataOptions};

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

    /// Opens the index in `dir`, or begins one. `unique` names the opener, as in [`StrataOptions`]; `strata` alone can
    /// have several.
    ///
    /// The others are made for as many keys as the budget serves well: 1.4 bytes a key in BloomStore and SkimpyStash,
    /// 10 in BufferHash. More keys than that make them slower, and in BufferHash, ChunkStash and Sparse may be
    /// forgotten; Tablets take 2.3 bytes a key, whatever the budget. All keep the shape that they were made with.
    ///
    /// # Errors
    /// Those of the index's own `open`: [`Error::Held`](onefold_index::Error::Held), [`Error::Damaged`](onefold_index::Error::Damaged),
    /// [`Error::Budget`](onefold_index::Error::Budget) or [`Error::Io`](onefold_index::Error::Io).
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

impl IndexName {
    /// Deletes the index in `dir`, damaged or not, by the names that it makes and by no others: its folder may be one
    /// of the user's. Only `strata` may be open meanwhile ([`Strata::delete`]).
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io) where the folder cannot be listed, or a file be removed.
    pub fn delete(self, dir: &dyn Dir) -> Result<()> {
        if self == IndexName::Strata {
            return Strata::delete(dir);
        }
        for entry in dir.list()?.iter().filter(|entry| self.makes(&entry.name)) {
            // What somebody keeps in a folder stays, under another name.
            remove_if_there(dir, &entry.name)?;
        }
        Ok(dir.sync()?)
    }

    /// Whether an index that is not `strata` makes a file of this name. A file that is replaced is made under its name
    /// with `-tmp` behind it.
    fn makes(self, name: &str) -> bool {
        let fixed: &[&str] = match self {
            IndexName::Strata => &[],
            IndexName::ChunkStash => &["stash-log", "stash-retired", "stash-lock"],
            IndexName::BloomStore => &[
                "bloom-log",
                "bloom-journal",
                "bloom-shape",
                "bloom-chains",
                "bloom-lock",
            ],
            IndexName::SkimpyStash => &["skimpy-log", "skimpy-journal", "skimpy-lock"],
            IndexName::BufferHash => &[
                "bufferhash-log",
                "bufferhash-journal",
                "bufferhash-shape",
                "bufferhash-lock",
            ],
            IndexName::BTree => &["btree", "btree-lock"],
            IndexName::Tablets => &["tablets", "tablets-lock"],
            IndexName::Sparse => &["sparse-log", "sparse-lock"],
        };
        let is_numbered = |prefix| number_of(name, prefix).is_some();
        fixed.contains(&name.strip_suffix("-tmp").unwrap_or(name))
            || self == IndexName::Tablets
                && (is_numbered("tablet-") || is_numbered("tablets-journal-"))
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

#[cfg(test)]
mod tests {
    use onefold_chunk::Fingerprint;
    use onefold_io::MemDir;

    use super::*;
    use onefold_index::{ContainerId, Location};

    #[test]
    fn deleting_an_index_removes_all_that_it_makes_and_nothing_else() {
        for (name, index) in IndexName::ALL {
            let dir = Arc::new(MemDir::new());
            for unique in 0..2 {
                let mut opened = index.open(dir.clone(), 1 << 20, unique).unwrap();
                for container in 0..8 {
                    let entry = |i: u64| {
                        let key = Fingerprint::of(&(container << 32 | i).to_le_bytes());
                        let container = ContainerId(container);
                        (key, Location { container })
                    };
                    let entries: Vec<_> = (0..10_000).map(entry).collect();
                    opened.insert(&entries).unwrap();
                    opened.checkpoint().unwrap();
                }
                opened.retire(&[ContainerId(3)]).unwrap();
                opened.checkpoint().unwrap();
            }
            for kept in ["btree.txt", "tablet-photo", "notes"] {
                dir.create(kept).unwrap();
            }
            let sub = dir.subdir("photos").unwrap();
            sub.create("stash-log").unwrap();
            index.delete(&*dir).unwrap();
            let left: Vec<_> = dir.list().unwrap().into_iter().map(|e| e.name).collect();
            let ours = ["lock", "merge"];
            let strangers: Vec<_> = left.iter().filter(|n| !ours.contains(&&n[..])).collect();
            assert_eq!(
                strangers,
                ["btree.txt", "notes", "photos", "tablet-photo"],
                "{name}"
            );
            assert_eq!(sub.list().unwrap().len(), 1);
        }
    }
}
