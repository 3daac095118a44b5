//! A run: a file of extents, sorted by LBN and never changed.
//!
//! ```text
//! run     := page* frame(footer | salt[16] sealed(footer) tag[16])                1FVMAPRN
//! footer  := run:u64 lbn:u64 end:u64 mapped:u64 holes:u64 extents:u64 pages:varint fence:u64{pages}
//! ```
//!
//! A fence is the first LBN of a page. They are kept in RAM, so that an LBN costs one page read. In an encrypted depot
//! the salt gives the key of pages and footer; the footer is the message behind the last page.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use onefold_io::PageBuffer;
use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_varint};
use onefold_keys::{SALT_BYTES, TAG_BYTES};

use parking_lot::RwLock;

use super::extent::Extent;
use super::folder::{MapFolder, RunFile, file_name};
use super::page_cache::PageCache;
use super::run_id::RunId;
use super::run_page::{RunPage, identity, open_page};
use crate::Result;
use crate::log::layout::{Layout, PAGE_BYTES};
use crate::log::page_sealer::PageSealer;
use crate::log::seals::{Salt, Seals};
use crate::log::zone::damaged;

const KIND: FrameKind = FrameKind {
    magic: *b"1FVMAPRN",
    version: 1,
};
/// The frame of a sealed footer.
const SEALED: FrameKind = FrameKind { version: 2, ..KIND };

/// Entry of a manifest for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedRun {
    /// Its number.
    pub id: RunId,
    /// Its first LBN.
    pub first: u64,
    /// The LBN behind its last one.
    pub end: u64,
    /// LBNs that it maps to a chunk.
    pub mapped: u64,
    /// LBNs of its holes.
    pub holes: u64,
    /// Its extents.
    pub extents: u64,
    /// Its pages.
    pub pages: u32,
}

impl ListedRun {
    /// Bytes of its pages.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES as u64
    }

    /// LBNs from its first to its last.
    pub fn span(&self) -> Range<u64> {
        self.first..self.end
    }
}

/// An open run.
pub struct Run {
    /// The manifest's entry for it.
    pub listed: ListedRun,
    layout: Layout,
    file: Arc<RunFile>,
    sealer: PageSealer,
    /// First LBN of each page.
    fences: Vec<u64>,
    /// All pages, where they are kept in RAM.
    pinned: RwLock<Vec<Arc<RunPage>>>,
}

/// Whether a run's pages are kept in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// All of them.
    Pinned,
    /// Those that were used last.
    Cached,
}

impl Run {
    /// Opens a run that a manifest lists.
    ///
    /// # Errors
    /// The file is missing, or not what was written: [`Damaged`](crate::Error::Damaged).
    pub fn open(folder: &MapFolder, listed: ListedRun, pages: Pages) -> Result<Arc<Self>> {
        let file = folder.file(listed.id);
        let disk = file.disk()?;
        let (start, end) = (listed.bytes(), disk.len()?);
        let bytes_max = 64 + 8 * u64::from(listed.pages) + 64 + (SALT_BYTES + TAG_BYTES) as u64;
        if end < start || end - start > bytes_max {
            let what = format!("{end} bytes, expected {start} and a footer");
            return Err(damaged(&file_name(listed.id), 0, what));
        }
        let mut footer = vec![0; (end - start) as usize];
        disk.read_at(&mut footer, start)?;
        let name = file_name(listed.id);
        let (sealer, footer) = open_footer(&footer, &listed, &folder.seals, &name)?;
        let fences = decode_footer(&footer, &listed, &name)?;
        let file = SealedRunFile { file, sealer };
        Self::new(folder, listed, file, fences, pages)
    }

    /// A run whose file was written just now.
    ///
    /// # Errors
    /// Its pages cannot be read back, where they are to be kept.
    pub fn new(
        folder: &MapFolder,
        listed: ListedRun,
        file: SealedRunFile,
        fences: Vec<u64>,
        pages: Pages,
    ) -> Result<Arc<Self>> {
        let run = Self {
            listed,
            layout: folder.layout,
            file: file.file,
            sealer: file.sealer,
            fences,
            pinned: RwLock::default(),
        };
        if pages == Pages::Pinned {
            let read = run.read_pages(0..listed.pages)?;
            *run.pinned.write() = read.into_iter().map(Arc::new).collect();
        }
        Ok(Arc::new(run))
    }

    /// Reads neighbouring pages from the disk, past every cache.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn read_pages(&self, pages: Range<u32>) -> Result<Vec<RunPage>> {
        let mut bytes = PageBuffer::zeroed(pages.len() * PAGE_BYTES);
        self.file
            .disk()?
            .read_at(&mut bytes, u64::from(pages.start) * PAGE_BYTES as u64)?;
        let name = file_name(self.listed.id);
        (pages.zip(bytes.chunks_exact(PAGE_BYTES)))
            .map(|(no, page)| {
                let id = self.listed.id;
                let page = open_page(page.to_vec(), id, no, &self.sealer, &name)?;
                RunPage::decode(page, id, no, &self.layout, &name)
            })
            .collect()
    }

    /// Calls `visit` for each extent with an LBN in `lbns`, in order and cut to it, until it gives `false`. Returns
    /// whether it never did.
    ///
    /// # Errors
    /// The device failed, or a page is damaged.
    pub fn visit(
        &self,
        lbns: &Range<u64>,
        cache: &PageCache,
        visit: &mut dyn FnMut(Extent) -> Result<bool>,
    ) -> Result<bool> {
        for no in self.page_of(lbns.start) as usize..self.fences.len() {
            if self.fences[no] >= lbns.end {
                break;
            }
            let page = self.page(no as u32, cache)?;
            for at in page.first_behind(lbns.start)..page.len() {
                let extent = page.extent(at);
                if extent.lbn >= lbns.end {
                    return Ok(true);
                }
                if !visit(extent.cut(lbns, self.layout.chunk_pages))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The page that an extent with this LBN would lie in.
    pub fn page_of(&self, lbn: u64) -> u32 {
        let behind = self.fences.partition_point(|fence| *fence <= lbn);
        behind.saturating_sub(1) as u32
    }

    fn page(&self, no: u32, cache: &PageCache) -> Result<Arc<RunPage>> {
        if let Some(page) = self.pinned.read().get(no as usize) {
            return Ok(Arc::clone(page));
        }
        cache.get(self.listed.id, no, || {
            let mut read = self.read_pages(no..no + 1);
            if read.is_err() {
                self.file.disk()?.forget_cached();
                read = self.read_pages(no..no + 1);
            }
            Ok(read?.remove(0))
        })
    }

    /// Keeps its pages in RAM no longer.
    pub fn unpin(&self) {
        if !self.pinned.read().is_empty() {
            self.pinned.write().clear();
        }
    }

    /// RAM of fences, in bytes.
    pub fn fence_bytes(&self) -> u64 {
        (self.fences.capacity() * 8 + size_of::<Self>()) as u64
    }

    /// RAM of fences and of pages that are kept, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        let pinned = self.pinned.read().len() * (PAGE_BYTES + size_of::<RunPage>() + 16);
        self.fence_bytes() + pinned as u64
    }
}

/// A run's file, and what its pages are sealed with.
pub struct SealedRunFile {
    pub file: Arc<RunFile>,
    pub sealer: PageSealer,
}

/// The footer as it lies behind the pages, sealed where they are: then `salt` is theirs.
pub fn encode_footer(
    listed: &ListedRun,
    fences: &[u64],
    salt: Option<Salt>,
    sealer: &PageSealer,
) -> Vec<u8> {
    let mut payload = Vec::with_capacity(50 + 8 * fences.len());
    for number in [
        listed.id.0,
        listed.first,
        listed.end,
        listed.mapped,
        listed.holes,
        listed.extents,
    ] {
        payload.extend_from_slice(&number.to_le_bytes());
    }
    put_varint(&mut payload, fences.len() as u64);
    for fence in fences {
        payload.extend_from_slice(&fence.to_le_bytes());
    }
    let Some(salt) = salt else {
        return encode_frame(KIND, &payload);
    };
    sealer.seal_message(listed.pages, &identity(listed.id), &mut payload);
    encode_frame(SEALED, &[&salt[..], &payload].concat())
}

/// The seal of a run's pages, and its footer as a frame of a run that is not sealed.
fn open_footer<'a>(
    bytes: &'a [u8],
    listed: &ListedRun,
    seals: &Seals,
    name: &str,
) -> Result<(PageSealer, Cow<'a, [u8]>)> {
    if !seals.are_on() {
        return Ok((PageSealer::Crc32c, Cow::Borrowed(bytes)));
    }
    let offset = listed.bytes();
    let mut reader = ByteReader::new(decode_whole(SEALED, bytes, name, offset)?, name, offset);
    let sealer = seals.pages(Some(reader.array()?));
    let opened = sealer.open_message(listed.pages, &identity(listed.id), reader.rest());
    let Some(footer) = opened else {
        let what = "the footer's seal does not hold, expected that of the listed run";
        return Err(damaged(name, offset, what.into()));
    };
    let footer = encode_frame(KIND, &footer);
    Ok((sealer, Cow::Owned(footer)))
}

/// The fences, if the footer is that of the run that a manifest lists.
fn decode_footer(bytes: &[u8], listed: &ListedRun, name: &str) -> Result<Vec<u64>> {
    let offset = listed.bytes();
    let payload = decode_whole(KIND, bytes, name, offset)?;
    let mut reader = ByteReader::new(payload, name, offset);
    let found = ListedRun {
        id: RunId(reader.u64()?),
        first: reader.u64()?,
        end: reader.u64()?,
        mapped: reader.u64()?,
        holes: reader.u64()?,
        extents: reader.u64()?,
        pages: listed.pages,
    };
    let fences = (0..reader.count(8)?)
        .map(|_| reader.u64())
        .collect::<Result<Vec<u64>, _>>()?;
    reader.end()?;
    if found != *listed || fences.len() != listed.pages as usize || !fences.is_sorted() {
        let what = format!(
            "{found:?} with {} fences, expected {listed:?}",
            fences.len()
        );
        return Err(damaged(name, offset, what));
    }
    Ok(fences)
}
