//! Pages of `cbt` on the device: a frame that fills the page, with the page's own number and the transaction that wrote
//! it (FORMAT.md, "B-trees").
//!
//! ```text
//! frame header[24] page:u64 transaction:u64 kind:u8 level:u8 count:u16 key_bytes:u8 0[3] body[4040] crc64:u64
//! ```
//!
//! Thus a lost or misplaced write is damage, and so is a page that is newer than the superblock that leads to it.

use onefold_io::frame::{self, FrameKind};

use crate::page_cache::{PAGE_BYTES, PageFormat};
use crate::{Error, Result};

/// The frame of a page.
pub const CBT_PAGE: FrameKind = FrameKind {
    magic: *b"1FVCBTPG",
    version: 1,
};

/// The file of the metadata.
pub(super) const FILE: &str = "meta";

const PAGE_AT: usize = frame::HEADER_BYTES;
const TRANSACTION_AT: usize = PAGE_AT + 8;
const KIND_AT: usize = TRANSACTION_AT + 8;
const LEVEL_AT: usize = KIND_AT + 1;
const COUNT_AT: usize = LEVEL_AT + 1;
const KEY_BYTES_AT: usize = COUNT_AT + 2;
/// Offset of the body in a page.
pub(super) const BODY_AT: usize = KEY_BYTES_AT + 4;
const BODY_END: usize = PAGE_BYTES - frame::TRAILER_BYTES;
/// Bytes of a body.
pub(super) const BODY_BYTES: usize = BODY_END - BODY_AT;

/// No tree is higher: with two entries a node, more keys than there are.
pub(super) const LEVEL_MAX: u8 = 48;

/// Kind of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PageKind {
    /// Entries of a tree.
    Node,
    /// Reference counts of neighbouring blocks.
    Counts,
    /// A bit for each page of a group.
    Bits,
}

impl PageKind {
    fn code(self) -> u8 {
        match self {
            Self::Node => 1,
            Self::Counts => 2,
            Self::Bits => 3,
        }
    }
}

/// Header fields of a page besides number and transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CbtPageHead {
    pub kind: PageKind,
    /// 0 in a leaf, and in all that is no node.
    pub level: u8,
    /// Bytes of a key in a node, otherwise 0.
    pub key_bytes: u8,
}

/// Begins a page of zeros.
pub(super) fn begin(bytes: &mut [u8], head: CbtPageHead, transaction: u64) {
    bytes[KIND_AT] = head.kind.code();
    bytes[LEVEL_AT] = head.level;
    bytes[KEY_BYTES_AT] = head.key_bytes;
    set_transaction(bytes, transaction);
}

pub(super) fn transaction(bytes: &[u8]) -> u64 {
    u64_at(bytes, TRANSACTION_AT)
}

pub(super) fn set_transaction(bytes: &mut [u8], transaction: u64) {
    bytes[TRANSACTION_AT..TRANSACTION_AT + 8].copy_from_slice(&transaction.to_le_bytes());
}

/// Entries of a node.
pub(super) fn count(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[COUNT_AT], bytes[COUNT_AT + 1]]))
}

pub(super) fn set_count(bytes: &mut [u8], count: usize) {
    bytes[COUNT_AT..COUNT_AT + 2].copy_from_slice(&(count as u16).to_le_bytes());
}

pub(super) fn key_bytes(bytes: &[u8]) -> usize {
    usize::from(bytes[KEY_BYTES_AT])
}

/// # Errors
/// [`Error::Damaged`]: the page is whole, and not the one that was expected here.
pub(super) fn expect(bytes: &[u8], page: u64, head: CbtPageHead) -> Result<()> {
    let found = (bytes[KIND_AT], bytes[LEVEL_AT], bytes[KEY_BYTES_AT]);
    let expected = (head.kind.code(), head.level, head.key_bytes);
    if found == expected {
        Ok(())
    } else {
        Err(damaged(
            page,
            format!("expected kind, level and key length {expected:?}, found {found:?}"),
        ))
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

pub(super) fn damaged(page: u64, what: String) -> Error {
    Error::Damaged {
        place: format!("{FILE}, page {page}"),
        what,
    }
}

/// Checks and seals pages.
pub(super) struct CbtFormat {
    /// No page that can be reached is of a later transaction.
    pub transaction_max: u64,
}

impl PageFormat for CbtFormat {
    fn check(&self, page: u64, bytes: &[u8]) -> Result<()> {
        frame::decode_whole(CBT_PAGE, bytes, FILE, page * PAGE_BYTES as u64)?;
        let (found, transaction) = (u64_at(bytes, PAGE_AT), transaction(bytes));
        if found != page {
            return Err(damaged(page, format!("it says that it is page {found}")));
        }
        if transaction > self.transaction_max {
            return Err(damaged(
                page,
                format!(
                    "it is of transaction {transaction}, and the last one is {}",
                    self.transaction_max
                ),
            ));
        }
        let entry = key_bytes(bytes) + 8;
        if bytes[LEVEL_AT] > LEVEL_MAX || count(bytes) * entry > BODY_BYTES {
            return Err(damaged(
                page,
                format!("{} entries of {entry} bytes", count(bytes)),
            ));
        }
        Ok(())
    }

    fn seal(&self, page: u64, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&CBT_PAGE.magic);
        bytes[8..16].fill(0);
        bytes[8..10].copy_from_slice(&CBT_PAGE.version.to_le_bytes());
        let payload = (PAGE_BYTES - frame::OVERHEAD_BYTES) as u64;
        bytes[16..24].copy_from_slice(&payload.to_le_bytes());
        bytes[PAGE_AT..PAGE_AT + 8].copy_from_slice(&page.to_le_bytes());
        let check = frame::crc64(&bytes[..BODY_END]);
        bytes[BODY_END..].copy_from_slice(&check.to_le_bytes());
    }
}
