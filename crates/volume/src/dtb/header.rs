//! The header page of `dtb`: what the tables are of, and whether they mean anything (FORMAT.md, "Tables").

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_varint};
use onefold_io::{Dir, Disk, ErrorKind};

use super::FILE;
use crate::page_cache::PAGE_BYTES;
use crate::store_shape::StoreShape;
use crate::{Error, Result};

/// The frame of the header.
pub const DTB: FrameKind = FrameKind {
    magic: *b"1FVDTBHD",
    version: 1,
};

/// The frame is no longer: devices write as many bytes whole or not at all.
const HEADER_BYTES_MAX: usize = 512;
/// Stores that fit for sure.
const STORES_MAX: u64 = 12;

const CLEAN: u8 = 1;
const OPEN: u8 = 2;

/// Whether the tables can be used by who opens them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TablesMark {
    /// They are whole.
    Clean,
    /// They are being changed.
    Open,
}

/// Content of the header page.
pub(super) struct DtbHeader {
    pub mark: TablesMark,
    pub blocks: u64,
    /// Blocks with a count; right only where the mark is clean.
    pub used: u64,
    /// Where the search for a free block goes on.
    pub cursor: u64,
    pub stores: Vec<StoreHeader>,
}

/// A store; the number of its entries is right only where the mark is clean.
pub(super) struct StoreHeader {
    pub shape: StoreShape,
    pub entries: u64,
}

/// # Errors
/// [`Error::Damaged`], also where there is no file.
pub(super) fn read(folder: &dyn Dir) -> Result<DtbHeader> {
    let disk = match folder.open(FILE) {
        Err(error) if error.kind == ErrorKind::NotFound => {
            return Err(Error::Damaged {
                place: FILE.into(),
                what: "the file of the metadata is not there".into(),
            });
        }
        other => other?,
    };
    read_disk(&*disk)
}

/// # Errors
/// [`Error::Damaged`]; the device failed.
pub(super) fn read_disk(disk: &dyn Disk) -> Result<DtbHeader> {
    let mut bytes = vec![0; disk.len()?.min(PAGE_BYTES as u64) as usize];
    disk.read_at(&mut bytes, 0)?;
    DtbHeader::decode(&bytes, FILE)
}

impl DtbHeader {
    /// The whole page.
    ///
    /// # Errors
    /// [`Error::Invalid`]: more stores than a header can have.
    pub fn page(&self) -> Result<Vec<u8>> {
        let mut out = vec![match self.mark {
            TablesMark::Clean => CLEAN,
            TablesMark::Open => OPEN,
        }];
        for number in [
            self.blocks,
            self.used,
            self.cursor,
            self.stores.len() as u64,
        ] {
            put_varint(&mut out, number);
        }
        for store in &self.stores {
            store.shape.encode(&mut out);
            put_varint(&mut out, store.entries);
        }
        let mut page = frame::encode_frame(DTB, &out);
        if page.len() > HEADER_BYTES_MAX || self.stores.len() as u64 > STORES_MAX {
            return Err(Error::Invalid {
                what: format!("{} stores, at most {STORES_MAX}", self.stores.len()),
            });
        }
        page.resize(PAGE_BYTES, 0);
        Ok(page)
    }

    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made it.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let payload = frame::decode_frame(DTB, bytes, path, 0)?.payload;
        let mut reader = ByteReader::new(payload, path, frame::HEADER_BYTES as u64);
        let mark = match reader.u8()? {
            CLEAN => TablesMark::Clean,
            OPEN => TablesMark::Open,
            mark => return Err(reader.damaged(format!("a mark {mark}")).into()),
        };
        let blocks = reader.varint_max(1 << 48)?;
        let mut header = Self {
            mark,
            blocks,
            used: reader.varint_max(blocks)?,
            cursor: reader.varint_max(blocks.saturating_sub(1))?,
            stores: Vec::new(),
        };
        for _ in 0..reader.varint_max(STORES_MAX)? {
            let shape = StoreShape::decode(&mut reader)?;
            let entries_max = match shape {
                StoreShape::Linear(keys) => keys,
                StoreShape::Sparse { keys_max, .. } => keys_max,
            };
            let entries = reader.varint_max(entries_max)?;
            header.stores.push(StoreHeader { shape, entries });
        }
        reader.end()?;
        Ok(header)
    }
}
