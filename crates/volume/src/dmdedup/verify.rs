//! Checking blocks by their hashes: blocks have no checksums, but a block whose bytes do not have the hash that names it
//! is not what was written. Blocks without deduplication have none, and are only read.

use std::collections::HashMap;
use std::ops::Range;

use onefold_chunk::Fingerprint;

use super::{HASH_KEY_BYTES, Shared};
use crate::{FINDINGS_MAX, Finding, HeadId, Key, NameChunks, Pbn, Result, Supported};

/// Blocks of which the hashes are in RAM at once, 24 bytes each: the table is gone through once for each pass.
const BLOCKS_A_PASS: u64 = 1 << 20;
/// Blocks that are read together.
const BLOCKS_AT_ONCE: usize = 256;

type Named = ([u8; HASH_KEY_BYTES], Pbn);

impl Shared {
    /// Blocks that are not what their hashes say. Runs beside the writer: a block that goes meanwhile is none of them.
    ///
    /// # Errors
    /// The devices failed.
    pub(super) fn check_blocks(
        &self,
        name: NameChunks<'_>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Finding>> {
        let mut wrong = Vec::new();
        let mut first = 0;
        while first < self.data.blocks() && wrong.len() < FINDINGS_MAX {
            let end = first.saturating_add(BLOCKS_A_PASS);
            let Some(named) = self.named(first..end)? else {
                break;
            };
            for some in named.chunks(BLOCKS_AT_ONCE) {
                goes_on()?;
                for (key, pbn) in self.wrongly_named(some, name)? {
                    let mut now = [None];
                    self.backend()?
                        .lookup(self.hashes, &[Key::Sparse(&key)], &mut now)?;
                    wrong.extend((now == [Some(pbn)]).then_some(pbn));
                }
            }
            first = end;
        }
        wrong.truncate(FINDINGS_MAX);
        self.findings(&wrong)
    }

    /// Hashes and the blocks that they name, of blocks in a range, by block. `None`: the backend cannot tell.
    fn named(&self, blocks: Range<u64>) -> Result<Option<Vec<Named>>> {
        let mut named: Vec<Named> = Vec::new();
        let supported = self.backend()?.iterate(self.hashes, &mut |key, pbn| {
            if let Key::Sparse(key) = key
                && blocks.contains(&pbn.0)
            {
                named.extend(key.first_chunk().map(|key| (*key, pbn)));
            }
            Ok(())
        })?;
        named.sort_unstable_by_key(|(_, pbn)| *pbn);
        Ok((supported == Supported::Yes).then_some(named))
    }

    /// With the chunks that are mapped to them.
    fn findings(&self, wrong: &[Pbn]) -> Result<Vec<Finding>> {
        let mut mapped: HashMap<Pbn, Vec<(HeadId, u64)>> =
            wrong.iter().map(|pbn| (*pbn, Vec::new())).collect();
        if !wrong.is_empty() {
            self.backend()?.iterate(self.lbns, &mut |key, pbn| {
                if let (Key::Linear(lbn), Some(chunks)) = (key, mapped.get_mut(&pbn)) {
                    chunks.push((HeadId(0), lbn));
                }
                Ok(())
            })?;
        }
        let finding = |pbn: &Pbn| Finding {
            place: format!("data device, block {}", pbn.0),
            what: "its bytes do not have the hash that names them".into(),
            chunks: mapped.remove(pbn).unwrap_or_default(),
        };
        Ok(wrong.iter().map(finding).collect())
    }

    fn wrongly_named(&self, some: &[Named], name: NameChunks<'_>) -> Result<Vec<Named>> {
        let block_bytes = self.data.block_bytes();
        let mut bytes = vec![0; some.len() * block_bytes];
        let pieces = some.iter().map(|(_, pbn)| *pbn);
        self.data
            .read(pieces.zip(bytes.chunks_exact_mut(block_bytes)).collect())?;
        let blocks: Vec<&[u8]> = bytes.chunks_exact(block_bytes).collect();
        let found = name(&blocks);
        let is_wrong = |(named, found): &(&Named, &Fingerprint)| !found.0.starts_with(&named.0);
        let wrong = some.iter().zip(&found).filter(is_wrong);
        Ok(wrong.map(|(named, _)| *named).collect())
    }
}
