//! The superblock: where a transaction's trees begin (FORMAT.md, "B-trees"). There are two places; transaction t is
//! written to place t mod 2, so a torn one loses nothing that was acknowledged.

use onefold_io::Disk;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use super::page::{FILE, LEVEL_MAX};
use super::space::{GROUP_PAGES, GROUPS_MAX, Space};
use super::tree::CbtTree;
use crate::page_cache::PAGE_BYTES;
use crate::store_shape::StoreShape;
use crate::{Error, Result};

/// The frame of a superblock.
pub const CBT_SUPERBLOCK: FrameKind = FrameKind {
    magic: *b"1FVCBTSB",
    version: 1,
};

/// No metadata has more stores.
pub(super) const STORES_MAX: usize = 12;
const PAGES_MAX: u64 = GROUP_PAGES * GROUPS_MAX as u64;

/// Content of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Superblock {
    pub transaction: u64,
    /// Blocks of the data device.
    pub blocks: u64,
    /// Blocks with a count above 0.
    pub used: u64,
    /// Where the search for a free block goes on.
    pub block_cursor: u64,
    /// Pages below were in use at some time.
    pub end: u64,
    /// Where the search for a free page goes on.
    pub page_cursor: u64,
    /// The tree that leads to pages of counts.
    pub counts: CbtTree,
    pub stores: Vec<(StoreShape, CbtTree)>,
    /// For each group which of its two pages of bits counts.
    pub slots: Vec<u8>,
}

impl Superblock {
    /// Where it is written, as a page.
    pub fn place(&self) -> u64 {
        self.transaction % 2
    }

    /// The state of the space as it is now.
    #[must_use]
    pub fn with_space(self, space: &Space) -> Self {
        Self {
            end: space.end(),
            page_cursor: space.cursor(),
            slots: space.slots().collect(),
            ..self
        }
    }

    /// The whole page.
    ///
    /// # Errors
    /// [`Error::Invalid`]: more stores than there can be.
    pub fn page(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for number in [
            self.transaction,
            self.blocks,
            self.used,
            self.block_cursor,
            self.end,
            self.page_cursor,
        ] {
            put_varint(&mut out, number);
        }
        put_tree(&mut out, &self.counts);
        put_varint(&mut out, self.stores.len() as u64);
        for (shape, tree) in &self.stores {
            shape.encode(&mut out);
            put_tree(&mut out, tree);
        }
        put_varint(&mut out, self.slots.len() as u64);
        let eighths = self.slots.chunks(8);
        let bits: Vec<u8> = eighths
            .map(|some| (0..).zip(some).map(|(at, slot)| (slot & 1) << at).sum())
            .collect();
        put_bytes(&mut out, &bits);
        let mut page = frame::encode_frame(CBT_SUPERBLOCK, &out);
        if page.len() > PAGE_BYTES || self.stores.len() > STORES_MAX {
            return Err(Error::Invalid {
                what: format!("{} stores, at most {STORES_MAX}", self.stores.len()),
            });
        }
        page.resize(PAGE_BYTES, 0);
        Ok(page)
    }

    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made it.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Self> {
        let payload = frame::decode_frame(CBT_SUPERBLOCK, bytes, FILE, offset)?.payload;
        let mut reader = ByteReader::new(payload, FILE, offset + frame::HEADER_BYTES as u64);
        let transaction = reader.varint()?;
        let blocks = reader.varint_max(1 << 48)?;
        let mut found = Self {
            transaction,
            blocks,
            used: reader.varint_max(blocks)?,
            block_cursor: reader.varint_max(blocks.saturating_sub(1))?,
            end: reader.varint_max(PAGES_MAX)?,
            page_cursor: reader.varint_max(PAGES_MAX)?,
            counts: tree(&mut reader, 8)?,
            stores: Vec::new(),
            slots: Vec::new(),
        };
        for _ in 0..reader.varint_max(STORES_MAX as u64)? {
            let shape = StoreShape::decode(&mut reader)?;
            found
                .stores
                .push((shape, tree(&mut reader, key_bytes(shape))?));
        }
        let groups = reader.varint_max(GROUPS_MAX as u64)? as usize;
        let bits = reader.bytes()?;
        if groups as u64 != found.end.div_ceil(GROUP_PAGES) || bits.len() != groups.div_ceil(8) {
            return Err(reader
                .damaged(format!("{groups} groups, and {} pages", found.end))
                .into());
        }
        found.slots = (0..groups).map(|at| bits[at / 8] >> (at % 8) & 1).collect();
        reader.end()?;
        Ok(found)
    }
}

/// Bytes of a key in the tree of a store.
pub(super) fn key_bytes(shape: StoreShape) -> u8 {
    match shape {
        StoreShape::Linear(_) => 8,
        // At most 64.
        StoreShape::Sparse { key_bytes, .. } => key_bytes as u8,
    }
}

/// The last superblock.
///
/// # Errors
/// [`Error::Damaged`] where neither is whole; [`Error::Unsupported`] where another version of the program made one.
pub(super) fn newest(disk: &dyn Disk) -> Result<Superblock> {
    let (mut newest, mut damage): (Option<Superblock>, _) = (None, None);
    for place in 0..2 {
        let offset = place * PAGE_BYTES as u64;
        let mut bytes = vec![0; PAGE_BYTES];
        let read = disk.read_at(&mut bytes, offset).map_err(Error::from);
        match read.and_then(|()| Superblock::decode(&bytes, offset)) {
            Ok(found) if found.place() != place => {}
            Ok(found) => {
                let is_newer = |other: &Superblock| other.transaction < found.transaction;
                if newest.as_ref().is_none_or(is_newer) {
                    newest = Some(found);
                }
            }
            Err(error @ Error::Damaged { .. }) => damage = Some(error),
            Err(error) => return Err(error),
        }
    }
    newest.ok_or_else(|| {
        damage.unwrap_or_else(|| Error::Damaged {
            place: FILE.into(),
            what: "no superblock is in its place".into(),
        })
    })
}

fn put_tree(out: &mut Vec<u8>, tree: &CbtTree) {
    put_varint(out, tree.root);
    out.push(tree.level);
    put_varint(out, tree.entries);
}

fn tree(reader: &mut ByteReader<'_>, key_bytes: u8) -> Result<CbtTree> {
    let tree = CbtTree {
        root: reader.varint_max(PAGES_MAX)?,
        level: reader.u8()?,
        entries: reader.varint()?,
        key_bytes,
    };
    if tree.level <= LEVEL_MAX && (tree.root != 0 || tree.entries == 0) {
        Ok(tree)
    } else {
        Err(reader.damaged(format!("{tree:?} cannot be")).into())
    }
}
