//! How far a content may expand. A few stored bytes can say of very many items that they are there: recipe chunks that
//! name one recipe chunk again and again, layer upon layer, come to 65,536^8 items.
//!
//! Always holds, of each content that has recipe chunks of its own:
//! 1. Its items are paid for by its data. Whoever writes it out, or compares it with a file, does no more than the
//!    file's bytes of data are worth. Holes pay for nothing: a hole of 2^60 bytes costs three bytes.
//! 2. Whoever only asks what is in it goes into each recipe chunk once ([`Once`]), so that the work is bounded by what
//!    is stored.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;
use onefold_store::ChunkRef;

use crate::wire::Reader;
use crate::{Item, Result};

/// Items that nothing has to pay for.
const ITEMS_FREE: u64 = 4096;
/// Bytes of data that pay for an item. What a backup stores has hundreds: no chunker cuts to less but at the end of a
/// file or of a tar's member, whose header has 512; a hole has 512 bytes beside it in the finest file system.
const ITEM_BYTES_MIN: u64 = 8;
/// Items of recipe chunks that were met before in the same content, as [`is_same`](crate::content::is_same) and
/// [`name`](crate::content::name) go through them. A file of one repeated block has so many at 1 TiB.
const ITEMS_AGAIN_MAX: u64 = 1 << 24;

/// What is counted while a content's items are gone through.
#[derive(Default)]
pub(crate) struct Expansion {
    items: u64,
    data_bytes: u64,
}

impl Expansion {
    /// Counts an item that is passed: data, a hole, or a recipe chunk that nobody goes into, which stands for what it
    /// covers.
    pub fn pass(&mut self, item: &Item) {
        self.items += 1;
        if item.chunk().is_some() {
            self.data_bytes = self.data_bytes.saturating_add(item.span());
        }
    }

    /// Counts a recipe chunk that is gone into.
    ///
    /// # Errors
    /// Those of [`confirm`](Self::confirm).
    pub fn open(&mut self) -> Result<()> {
        self.items += 1;
        self.confirm()
    }

    /// That the items so far are paid for.
    ///
    /// # Errors
    /// [`Error::Malformed`](crate::Error::Malformed): they are not.
    pub fn confirm(&self) -> Result<()> {
        let paid = ITEMS_FREE.saturating_add(self.data_bytes / ITEM_BYTES_MIN);
        match self.items <= paid {
            true => Ok(()),
            false => Err(Reader::new("recipe", b"").fail(format_args!(
                "it expands to more than {} items of {} bytes of data together: no backup makes such",
                self.items - 1,
                self.data_bytes
            ))),
        }
    }
}

/// The recipe chunks of a content that were gone into.
#[derive(Default)]
pub(crate) struct Once(HashSet<Fingerprint>);

impl Once {
    /// Whether this one was not met before.
    pub fn is_new(&mut self, chunk: &ChunkRef) -> bool {
        self.0.insert(chunk.fingerprint)
    }
}

/// How much of a content was met before, for who must go through all of it.
#[derive(Default)]
pub(crate) struct Repetition {
    met: Once,
    again: u64,
}

impl Repetition {
    /// Counts what a recipe chunk holds. False: it repeats too much for anybody to go through.
    pub fn meet(&mut self, chunk: &ChunkRef, items: usize) -> bool {
        if !self.met.is_new(chunk) {
            self.again += items as u64;
        }
        self.again <= ITEMS_AGAIN_MAX
    }
}
