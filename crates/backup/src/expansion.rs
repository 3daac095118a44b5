//! Limits how far a content may expand. A few stored bytes can claim very many items: recipe chunks that name one
//! recipe chunk again and again, layer upon layer, come to 65,536^8 items.
//!
//! Invariants for each content that has recipe chunks of its own:
//! 1. Its data pays for its items. Code that writes a content out, or compares it with a file, does no more work than
//!    the file's bytes of data are worth. Holes pay for nothing: a hole of 2^60 bytes costs ten bytes.
//! 2. Code that only asks which chunks are in a content goes into each recipe chunk once ([`SeenRecipes`]), so the
//!    work is bounded by the stored bytes.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;
use onefold_store::ChunkRef;

use crate::wire::WireReader;
use crate::{Item, Result};

/// Number of items that no data has to pay for.
const ITEMS_FREE: u64 = 4096;
/// Bytes of data that pay for an item. A backup's items have hundreds: no chunker cuts shorter chunks except at the end
/// of a file or of a tar's member, whose header has 512; a hole has 512 bytes beside it in the finest file system.
const ITEM_BYTES_MIN: u64 = 8;
/// Largest number of items of recipe chunks that come again in the same content, for
/// [`is_same`](crate::content::is_same) and [`name`](crate::content::name). A file of one repeated block reaches this
/// at 1 TiB.
const ITEMS_AGAIN_MAX: u64 = 1 << 24;

/// Counters of a content's items and data, while its items pass.
#[derive(Default)]
pub(crate) struct Expansion {
    items: u64,
    data_bytes: u64,
}

impl Expansion {
    /// Counts an item that passes: data, a hole, or a recipe chunk that is not opened, which counts with the bytes that
    /// it covers.
    pub fn pass(&mut self, item: &Item) {
        self.items += 1;
        if item.chunk().is_some() {
            self.data_bytes = self.data_bytes.saturating_add(item.span());
        }
    }

    /// Counts a recipe chunk that is opened.
    ///
    /// # Errors
    /// Errors of [`confirm`](Self::confirm).
    pub fn open(&mut self) -> Result<()> {
        self.items += 1;
        self.confirm()
    }

    /// Checks that the data so far pays for the items.
    ///
    /// # Errors
    /// [`Error::Malformed`](crate::Error::Malformed): it does not.
    pub fn confirm(&self) -> Result<()> {
        let paid = ITEMS_FREE.saturating_add(self.data_bytes / ITEM_BYTES_MIN);
        if self.items <= paid {
            Ok(())
        } else {
            Err(WireReader::new("recipe", b"").fail(format_args!(
            "it expands to more than {} items of {} bytes of data together: no backup makes such",
            self.items - 1,
            self.data_bytes
        )))
        }
    }
}

/// Recipe chunks of a content that were opened.
#[derive(Default)]
pub(crate) struct SeenRecipes(HashSet<Fingerprint>);

impl SeenRecipes {
    /// Returns whether this recipe chunk comes for the first time.
    pub fn is_new(&mut self, chunk: &ChunkRef) -> bool {
        self.0.insert(chunk.fingerprint)
    }
}

/// Counter of items of recipe chunks that come again, for comparing and naming contents: beyond the limit, two contents
/// count as different unless their recipe chunks are the same.
#[derive(Default)]
pub(crate) struct Repetition {
    seen: SeenRecipes,
    again: u64,
}

impl Repetition {
    /// Counts the items of a recipe chunk. Returns false where the content repeats too much to go through it.
    pub fn meet(&mut self, chunk: &ChunkRef, items: usize) -> bool {
        if !self.seen.is_new(chunk) {
            self.again += items as u64;
        }
        self.again <= ITEMS_AGAIN_MAX
    }
}
