//! The table of kinds that a program offers: the published indexes with their parameters, and the engine's own.

use onefold_chunk::knobs::{Knob, Knobs, Values};
use onefold_index::{ChunkIndex, IndexKind, OpenIndex, Openers, Result, STRATA};
use onefold_io::{Dir, remove_if_there};

use crate::tablets::number_of;
use crate::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkStash,
    ChunkStashOptions, Search, SkimpyStash, SkimpyStashOptions, Sparse, SparseOptions, Tablets,
    TabletsOptions,
};

/// All kinds: `strata`, the default, and the published ones.
///
/// The published kinds are made for the number of keys that suits the budget: 1.4 bytes a key in BloomStore and
/// SkimpyStash, 10 in BufferHash. More keys make them slower, and BufferHash, ChunkStash and Sparse may forget some;
/// Tablets take 2.3 bytes a key at any budget. All keep the shape that they were made with.
pub const KINDS: &[IndexKind] = &[
    STRATA,
    CHUNKSTASH,
    BLOOMSTORE,
    SKIMPYSTASH,
    BUFFERHASH,
    BTREE,
    TABLETS,
    SPARSE,
];

/// ChunkStash: Debnath, Sengupta, Li 2010.
pub const CHUNKSTASH: IndexKind = IndexKind {
    name: "chunkstash",
    knobs: &[Knob {
        key: "sample",
        values: Values::Whole(1, 1_000_000),
        default: "1",
        about: "one chunk in this many of each container has a place in RAM; the slides try 1, 10 and 100",
    }],
    openers: Openers::One,
    open: |at| {
        let options = ChunkStashOptions {
            ram_budget_bytes: at.ram_budget_bytes,
            cache_bytes: None,
            sample: at.knobs.whole("sample").unwrap_or(1) as u32,
        };
        Ok(Box::new(ChunkStash::open(at.dir, options)?))
    },
    delete: |dir| delete(dir, &["stash-log", "stash-retired", "stash-lock"], &[]),
};

/// BloomStore: Lu's dissertation, §4.4.
pub const BLOOMSTORE: IndexKind = IndexKind {
    name: "bloomstore",
    knobs: &[
        Knob {
            key: "chain",
            values: Values::Whole(1, 4095),
            default: "96",
            about: "M: Bloom filters of a chain (§4.5.3)",
        },
        Knob {
            key: "filter",
            values: Values::Whole(5, 4096),
            default: "64",
            about: "δ: bytes of a Bloom filter, its pointer of 4 bytes included (§4.5.3: 64 or 128)",
        },
        Knob {
            key: "prefilter",
            values: Values::Real(0.0, 64.0),
            default: "4",
            about: "bits a key of the pre-filter, as far as the RAM goes; 0 for none (§4.4.3)",
        },
        Knob {
            key: "timeout",
            values: Values::Whole(0, 3_600_000),
            default: "0",
            about: "milliseconds until an insertion in a write buffer is made durable; 0: at checkpoints only (§4.4.1: such as 1)",
        },
        Knob {
            key: "garbage",
            values: Values::Real(0.01, 1.0),
            default: "0.25",
            about: "share of garbage at which it is collected (§4.4.2 names none)",
        },
    ],
    openers: Openers::One,
    open: |at| Ok(Box::new(BloomStore::open(at.dir.clone(), bloomstore(&at))?)),
    delete: |dir| {
        let names = ["log", "journal", "shape", "chains", "lock"].map(|end| format!("bloom-{end}"));
        delete(dir, &names.each_ref().map(|name| &**name), &[])
    },
};

/// SkimpyStash: Debnath, Sengupta, Li 2011.
pub const SKIMPYSTASH: IndexKind = IndexKind {
    name: "skimpystash",
    knobs: &[Knob {
        key: "bucket",
        values: Values::Whole(1, 1000),
        default: "10",
        about: "mean number of keys in a bucket, which a lookup follows page by page (§4.2.1: 10)",
    }],
    openers: Openers::One,
    open: |at| {
        let options = SkimpyStashOptions {
            keys_expected: keys(&at, 1.4),
            bucket_keys: at.knobs.whole("bucket").unwrap_or(10) as u32,
        };
        Ok(Box::new(SkimpyStash::open(at.dir, options)?))
    },
    delete: |dir| delete(dir, &["skimpy-log", "skimpy-journal", "skimpy-lock"], &[]),
};

/// BufferHash: Anand and others 2010.
pub const BUFFERHASH: IndexKind = IndexKind {
    name: "bufferhash",
    knobs: &[],
    openers: Openers::One,
    open: |at| {
        let options = BufferHashOptions::within(at.ram_budget_bytes);
        Ok(Box::new(BufferHash::open(at.dir, options)?))
    },
    delete: |dir| {
        let names = ["log", "journal", "shape", "lock"].map(|end| format!("bufferhash-{end}"));
        delete(dir, &names.each_ref().map(|name| &**name), &[])
    },
};

/// A B-tree: an embedded database with a filter and container prefetch, as in Zhu 2008.
pub const BTREE: IndexKind = IndexKind {
    name: "btree",
    knobs: &[],
    openers: Openers::One,
    open: |at| {
        let options = BTreeOptions::new(keys(&at, 4.0), at.ram_budget_bytes);
        Ok(Box::new(BTree::open(at.dir, options)?))
    },
    delete: |dir| delete(dir, BTREE_FILES, &[]),
};
const BTREE_FILES: &[&str] = &["btree", "btree-lock"];

/// Tablets: Min and others 2010 (PRUNE).
pub const TABLETS: IndexKind = IndexKind {
    name: "tablets",
    knobs: &[
        Knob {
            key: "tablet-kib",
            values: Values::Whole(4, 64 << 10),
            default: "1536",
            about: "KiB of a tablet (§5.4); smaller where the budget is small",
        },
        Knob {
            key: "policy",
            values: Values::Word(&["single", "linear", "lru", "lru-prefetch"]),
            default: "lru-prefetch",
            about: "order in which tablets are searched (§3.3): one table, a list from its head, the last hit first, and its successor behind it",
        },
    ],
    openers: Openers::One,
    open: tablets,
    delete: |dir| {
        let names = [&["tablets", "tablets-lock"], BTREE_FILES].concat();
        delete(dir, &names, &["tablet-", "tablets-journal-"])
    },
};

/// Sparse indexing: Lillibridge and others 2009; inexact where the budget is small.
pub const SPARSE: IndexKind = IndexKind {
    name: "sparse",
    knobs: &[],
    openers: Openers::One,
    open: |at| {
        let options = SparseOptions::new(at.ram_budget_bytes);
        Ok(Box::new(Sparse::open(at.dir, options)?))
    },
    delete: |dir| delete(dir, &["sparse-log", "sparse-lock"], &[]),
};

/// The number of keys for which the budget is enough at `bytes_a_key` bytes each.
fn keys(at: &OpenIndex, bytes_a_key: f64) -> u64 {
    (at.ram_budget_bytes as f64 / bytes_a_key) as u64
}

fn bloomstore(at: &OpenIndex) -> BloomStoreOptions {
    let knobs: &Knobs = &at.knobs;
    let shaped = BloomStoreOptions {
        chain_max: knobs.whole("chain").unwrap_or(96) as u32,
        filter_bytes: knobs.whole("filter").unwrap_or(64) as u32,
        ..BloomStoreOptions::new(keys(at, 1.4), 0)
    };
    BloomStoreOptions {
        garbage_max: knobs.real("garbage").unwrap_or(shaped.garbage_max),
        flush_interval_ms: knobs.whole("timeout").filter(|ms| *ms > 0),
        ..shaped.within(at.ram_budget_bytes, knobs.real("prefilter").unwrap_or(4.0))
    }
}

fn tablets(at: OpenIndex) -> Result<Box<dyn ChunkIndex>> {
    let search = match at.knobs.word("policy") {
        Some("single") => {
            // PRUNE's single table: a database without filter and prefetch
            let options = BTreeOptions {
                cache_bytes: at.ram_budget_bytes,
                filter_bytes: 0,
                prefetch_bytes: 0,
                ..BTreeOptions::new(keys(&at, 4.0), 0)
            };
            return Ok(Box::new(BTree::open(at.dir, options)?));
        }
        Some("linear") => Search::Linear,
        Some("lru") => Search::Lru,
        _ => Search::LruPrefetch,
    };
    let mut options = TabletsOptions::new(search, at.ram_budget_bytes);
    if let Some(kib) = at.knobs.whole("tablet-kib") {
        options.tablet_bytes = (kib << 10) as usize;
        options.cache_tablets = (at.ram_budget_bytes / 4 / options.tablet_bytes).max(2);
    }
    Ok(Box::new(Tablets::open(at.dir, options)?))
}

/// Deletes files with these names, and with one of these prefixes and a number. The temporary file of a replacement has
/// the suffix `-tmp`. All other files stay, because the folder may have a user's files.
fn delete(dir: &dyn Dir, names: &[&str], numbered: &[&str]) -> Result<()> {
    let is_ours = |name: &str| {
        names.contains(&name.strip_suffix("-tmp").unwrap_or(name))
            || numbered
                .iter()
                .any(|begin| number_of(name, begin).is_some())
    };
    for entry in dir.list()?.iter().filter(|entry| is_ours(&entry.name)) {
        remove_if_there(dir, &entry.name)?;
    }
    Ok(dir.sync()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_chunk::Fingerprint;
    use onefold_io::MemDir;

    use super::*;
    use onefold_index::{ContainerId, Location};

    #[test]
    fn deleting_an_index_removes_all_that_it_makes_and_nothing_else() {
        for kind in KINDS {
            let dir = Arc::new(MemDir::new());
            for unique in 0..2 {
                let mut opened = (kind.open)(OpenIndex::new(dir.clone(), 1 << 20, unique)).unwrap();
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
            (kind.delete)(&*dir).unwrap();
            let left: Vec<_> = dir.list().unwrap().into_iter().map(|e| e.name).collect();
            let ours = ["lock", "merge"];
            let strangers: Vec<_> = left.iter().filter(|n| !ours.contains(&&n[..])).collect();
            assert_eq!(
                strangers,
                ["btree.txt", "notes", "photos", "tablet-photo"],
                "{kind:?}"
            );
            assert_eq!(sub.list().unwrap().len(), 1);
        }
    }
}
