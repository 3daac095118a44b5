//! Shared by tests of `dtb` and `cbt`: a backend beside a twin, and random changes of both.

use std::collections::BTreeMap;

use onefold_io::Random;
use onefold_volume::{Error, Key, MetadataBackend, Pbn, Result, StoreId};

pub const BLOCKS: u64 = 300;
pub const LBNS: u64 = 500;

/// All that a backend holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TableContents {
    pub lbns: BTreeMap<u64, u64>,
    pub hashes: BTreeMap<[u8; 16], u64>,
    pub counts: BTreeMap<u64, u32>,
}

/// A hash like no other.
pub fn hash(random: &mut Random) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&random.bytes(16));
    hash
}

/// A backend with both stores.
pub struct Tables<B> {
    pub backend: B,
    pub lbns: StoreId,
    pub hashes: StoreId,
}

impl<B: MetadataBackend> Tables<B> {
    pub fn new(backend: B) -> Self {
        Self::of(backend, LBNS, BLOCKS)
    }

    pub fn of(mut backend: B, lbns: u64, hashes: u64) -> Self {
        let lbns = backend.create_linear(lbns).expect("a store");
        let hashes = backend.create_sparse(16, hashes).expect("a store");
        Self {
            backend,
            lbns,
            hashes,
        }
    }

    /// A write of new content, as the engine does it.
    pub fn write(&mut self, lbn: u64, hash: &[u8; 16], pbn: Pbn) -> Result<()> {
        let backend = &mut self.backend;
        backend.insert(self.hashes, Key::Sparse(hash), pbn)?;
        backend.inc_ref(pbn)?;
        backend.insert(self.lbns, Key::Linear(lbn), pbn)?;
        backend.inc_ref(pbn)?;
        Ok(())
    }

    /// One random change, here and in the twin.
    pub fn change(&mut self, twin: &mut TableContents, random: &mut Random) -> Result<()> {
        let backend = &mut self.backend;
        let (lbn, block) = (random.below(LBNS), random.below(BLOCKS));
        let mut hash = [random.below(3) as u8; 16];
        hash[8..].copy_from_slice(&random.below(120).to_le_bytes());
        match random.below(8) {
            0..2 => {
                backend.insert(self.lbns, Key::Linear(lbn), Pbn(block))?;
                twin.lbns.insert(lbn, block);
            }
            2 => {
                backend.delete(self.lbns, Key::Linear(lbn))?;
                twin.lbns.remove(&lbn);
            }
            3 => {
                backend.insert(self.hashes, Key::Sparse(&hash), Pbn(block))?;
                twin.hashes.insert(hash, block);
            }
            4 => {
                backend.delete(self.hashes, Key::Sparse(&hash))?;
                twin.hashes.remove(&hash);
            }
            5 | 6 => {
                if let Some(Pbn(block)) = backend.alloc_block()? {
                    let count = backend.inc_ref(Pbn(block))?;
                    twin.counts.insert(block, count);
                }
            }
            _ => {
                let known = twin.counts.range(block..).next();
                if let Some((block, count)) = known.map(|(block, count)| (*block, *count)) {
                    assert_eq!(backend.dec_ref(Pbn(block))?, count - 1);
                    match count {
                        1 => twin.counts.remove(&block),
                        _ => twin.counts.insert(block, count - 1),
                    };
                }
            }
        }
        Ok(())
    }

    /// Everything that it holds. References are raised for it: only of a backend that is not used afterwards.
    pub fn state(&mut self) -> Result<TableContents> {
        let mut state = TableContents::default();
        self.backend.iterate(self.lbns, &mut |key, pbn| {
            if let Key::Linear(lbn) = key {
                state.lbns.insert(lbn, pbn.0);
            }
            Ok(())
        })?;
        self.backend.iterate(self.hashes, &mut |key, pbn| {
            if let Key::Sparse(hash) = key {
                state.hashes.insert(hash.try_into().expect("16"), pbn.0);
            }
            Ok(())
        })?;
        for block in 0..BLOCKS {
            match self.backend.inc_ref(Pbn(block)) {
                Ok(count) => {
                    state.counts.insert(block, count - 1);
                }
                Err(Error::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(state)
    }
}
