//! The suite of metadata backends: the twelve methods, against maps of the standard library.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onefold_io::{Dir, MemDir, Random};

use crate::{Key, MetadataBackend, Pbn, Result, StoreId, Supported};

/// How much the suite does, and with which random numbers.
#[derive(Clone, Copy, Debug)]
pub struct BackendTrial {
    /// The random numbers.
    pub seed: u64,
    /// How many methods are called.
    pub calls: u64,
    /// Blocks of the data device.
    pub blocks: u64,
    /// Keys of the linear store.
    pub keys: u64,
    /// Whether everything is there again after the backend was closed and opened.
    pub is_kept: bool,
}

/// Gives the backend that keeps its files in a folder, for so many blocks.
pub type OpenBackend<'a> =
    &'a mut dyn FnMut(&Arc<dyn Dir>, u64) -> Result<Box<dyn MetadataBackend>>;

const KEY_BYTES: usize = 16;

/// Runs the suite. `open` gives the backend for a folder and a number of blocks, for the first time and whenever it was
/// closed.
pub fn backend(trial: BackendTrial, open: OpenBackend<'_>) {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut suite = BackendSuite::open(trial, &folder, open, Twin::default());
    let mut random = Random(trial.seed);
    for _ in 0..trial.calls {
        match random.below(64) {
            0..10 => suite.insert(&mut random),
            10..20 => suite.lookup(&mut random),
            20..26 => suite.delete(&mut random),
            26..36 => {
                suite.allocate();
            }
            36..46 => suite.raise(&mut random),
            46..56 => suite.lower(&mut random),
            56..59 => suite.iterate(),
            59..61 => suite.flush(),
            61 => suite.save(),
            62 => suite.fill(&mut random),
            _ if trial.is_kept && random.one_in(4) => {
                let twin = suite.close();
                suite = BackendSuite::open(trial, &folder, open, twin);
                suite.iterate();
            }
            _ => suite.check_stats(),
        }
    }
    suite.iterate();
    suite.check_stats();
}

/// Naive twin: the content that the backend should have.
#[derive(Default)]
struct Twin {
    linear: BTreeMap<u64, Pbn>,
    sparse: BTreeMap<[u8; KEY_BYTES], Pbn>,
    counts: BTreeMap<u64, u32>,
    /// Allocated, their counts not raised yet.
    allocated: BTreeSet<u64>,
    /// Freed since the last flush that frees.
    waiting: BTreeSet<u64>,
}

struct BackendSuite {
    trial: BackendTrial,
    backend: Box<dyn MetadataBackend>,
    linear: StoreId,
    sparse: StoreId,
    twin: Twin,
}

impl BackendSuite {
    fn open(trial: BackendTrial, folder: &Arc<dyn Dir>, open: OpenBackend<'_>, twin: Twin) -> Self {
        let mut backend = open(folder, trial.blocks).expect("the backend can be opened");
        let linear = backend.create_linear(trial.keys).expect("a linear store");
        let sparse = backend
            .create_sparse(KEY_BYTES, trial.blocks)
            .expect("a sparse store");
        Self {
            trial,
            backend,
            linear,
            sparse,
            twin,
        }
    }

    /// Blocks that were allocated and not raised are free after that, as after a crash.
    fn close(mut self) -> Twin {
        self.backend.close().expect("the backend can be closed");
        self.twin.allocated.clear();
        self.twin.waiting.clear();
        self.twin
    }

    fn pbn(&self, random: &mut Random) -> Pbn {
        Pbn(random.below(self.trial.blocks))
    }

    /// Many keys begin alike, so that they collide in a table that goes by their first bytes.
    fn key(&self, random: &mut Random) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[0] = random.below(3) as u8;
        key[KEY_BYTES - 8..]
            .copy_from_slice(&random.below(self.trial.blocks / 3 + 1).to_le_bytes());
        key
    }

    fn insert(&mut self, random: &mut Random) {
        let pbn = self.pbn(random);
        if random.one_in(2) {
            let key = random.below(self.trial.keys);
            self.backend
                .insert(self.linear, Key::Linear(key), pbn)
                .expect("a linear insertion");
            self.twin.linear.insert(key, pbn);
            return;
        }
        let key = self.key(random);
        let is_full = self.twin.sparse.len() as u64 >= self.trial.blocks;
        if !is_full || self.twin.sparse.contains_key(&key) {
            self.backend
                .insert(self.sparse, Key::Sparse(&key), pbn)
                .expect("a sparse insertion");
            self.twin.sparse.insert(key, pbn);
        }
    }

    fn lookup(&mut self, random: &mut Random) {
        let count = random.below(40);
        let lbns: Vec<u64> = (0..count).map(|_| random.below(self.trial.keys)).collect();
        let keys: Vec<_> = lbns.iter().map(|lbn| Key::Linear(*lbn)).collect();
        let expected: Vec<_> = lbns
            .iter()
            .map(|lbn| self.twin.linear.get(lbn).copied())
            .collect();
        self.compare(self.linear, &keys, &expected);
        let hashes: Vec<_> = (0..count).map(|_| self.key(random)).collect();
        let keys: Vec<_> = hashes.iter().map(|hash| Key::Sparse(hash)).collect();
        let expected: Vec<_> = hashes
            .iter()
            .map(|hash| self.twin.sparse.get(hash).copied())
            .collect();
        self.compare(self.sparse, &keys, &expected);
    }

    fn compare(&mut self, store: StoreId, keys: &[Key<'_>], expected: &[Option<Pbn>]) {
        // Earlier answers in this buffer must be overwritten.
        let mut found = vec![Some(Pbn(u64::MAX)); keys.len()];
        self.backend
            .lookup(store, keys, &mut found)
            .expect("a lookup");
        assert_eq!(found, expected, "{:?}: {keys:?}", self.trial);
    }

    fn delete(&mut self, random: &mut Random) {
        let lbn = random.below(self.trial.keys);
        self.backend
            .delete(self.linear, Key::Linear(lbn))
            .expect("a linear deletion");
        self.twin.linear.remove(&lbn);
        let key = self.key(random);
        self.backend
            .delete(self.sparse, Key::Sparse(&key))
            .expect("a sparse deletion");
        self.twin.sparse.remove(&key);
    }

    /// A block that nobody has; none only where none is left.
    fn allocate(&mut self) -> bool {
        let twin = &mut self.twin;
        let taken = twin.counts.len() + twin.allocated.len() + twin.waiting.len();
        match self.backend.alloc_block().expect("an allocation") {
            None => {
                assert_eq!(
                    taken as u64, self.trial.blocks,
                    "{:?}: a block is left",
                    self.trial
                );
                false
            }
            Some(Pbn(block)) => {
                let is_free = block < self.trial.blocks
                    && !twin.counts.contains_key(&block)
                    && !twin.waiting.contains(&block)
                    && twin.allocated.insert(block);
                assert!(is_free, "{:?}: block {block} is not free", self.trial);
                true
            }
        }
    }

    fn raise(&mut self, random: &mut Random) {
        let Some(block) = any(
            self.twin.allocated.iter().chain(self.twin.counts.keys()),
            random,
        ) else {
            return;
        };
        self.twin.allocated.remove(&block);
        let count = self.twin.counts.entry(block).or_default();
        *count += 1;
        assert_eq!(
            self.backend.inc_ref(Pbn(block)).expect("a block in use"),
            *count
        );
        let counted = self.backend.ref_count(Pbn(block));
        assert_eq!(counted.expect("a block in use"), *count);
    }

    fn lower(&mut self, random: &mut Random) {
        let Some(block) = any(self.twin.counts.keys(), random) else {
            return;
        };
        let left = self.twin.counts[&block] - 1;
        assert_eq!(
            self.backend.dec_ref(Pbn(block)).expect("a block in use"),
            left
        );
        if left == 0 {
            self.twin.counts.remove(&block);
            self.twin.waiting.insert(block);
        } else {
            self.twin.counts.insert(block, left);
        }
    }

    fn iterate(&mut self) {
        let mut linear = BTreeMap::new();
        let visited = self.backend.iterate(self.linear, &mut |key, pbn| {
            if let Key::Linear(key) = key {
                assert!(linear.insert(key, pbn).is_none(), "key {key} comes twice");
            }
            Ok(())
        });
        if visited.expect("an iteration") == Supported::No {
            return;
        }
        assert!(linear == self.twin.linear, "{:?}: LBNs differ", self.trial);
        let mut sparse = BTreeMap::new();
        let visited = self.backend.iterate(self.sparse, &mut |key, pbn| {
            if let Key::Sparse(key) = key {
                assert!(
                    sparse.insert(key.to_vec(), pbn).is_none(),
                    "a key comes twice"
                );
            }
            Ok(())
        });
        visited.expect("an iteration");
        let expected: BTreeMap<_, _> = self
            .twin
            .sparse
            .iter()
            .map(|(key, pbn)| (key.to_vec(), *pbn))
            .collect();
        assert!(sparse == expected, "{:?}: hashes differ", self.trial);
    }

    /// A flush may put off freeing blocks while others are left, and says how many wait.
    fn flush(&mut self) {
        self.backend.flush().expect("a flush");
        if self.backend.stats().blocks_waiting == 0 {
            self.twin.waiting.clear();
        }
    }

    fn save(&mut self) {
        self.backend.save().expect("a save");
        self.twin.waiting.clear();
        assert_eq!(self.backend.stats().blocks_waiting, 0, "{:?}", self.trial);
    }

    /// The last block can be had; once all is full, a flush gives back what was freed.
    fn fill(&mut self, random: &mut Random) {
        while self.allocate() {}
        self.lower(random);
        let is_waiting = !self.twin.waiting.is_empty();
        self.flush();
        assert!(
            !is_waiting || self.allocate(),
            "{:?}: a freed block is lost",
            self.trial
        );
        let allocated = std::mem::take(&mut self.twin.allocated);
        for block in allocated {
            // Most are given back, so that others find some.
            self.backend.inc_ref(Pbn(block)).expect("a block in use");
            if random.one_in(8) {
                self.twin.counts.insert(block, 1);
                continue;
            }
            self.backend.dec_ref(Pbn(block)).expect("a block in use");
            self.twin.waiting.insert(block);
        }
        self.save();
    }

    fn check_stats(&self) {
        let stats = self.backend.stats();
        let twin = &self.twin;
        let taken = twin.counts.len() + twin.allocated.len() + twin.waiting.len();
        assert_eq!(stats.blocks, self.trial.blocks);
        assert_eq!(stats.blocks_free, self.trial.blocks - taken as u64);
        assert_eq!(stats.blocks_waiting, twin.waiting.len() as u64);
        assert_eq!(stats.linear_entries, twin.linear.len() as u64);
        assert_eq!(stats.sparse_entries, twin.sparse.len() as u64);
    }
}

fn any<'a>(blocks: impl Iterator<Item = &'a u64> + Clone, random: &mut Random) -> Option<u64> {
    let count = blocks.clone().count() as u64;
    blocks.clone().nth(random.below(count) as usize).copied()
}
