//! Saves what is left of a damaged container: blocks are searched for from its header to its end, a window at a time.
//! Where the device fails to give the container's bytes, pages of it are read one by one; lost pages count as zeros,
//! and are never read again.
//!
//! Invariants: bytes count when two readings in a row gave the same bytes, both of the device as far as the system lets
//! that be said; every chunk that is returned stood in a block whose seal holds; RAM is one window and one block,
//! whatever the object's length. Reading in vain is bounded: somebody may have made a container of which every byte
//! seems to begin a block.

use std::collections::BTreeSet;
use std::ops::Range;

use onefold_index::ContainerId;
use onefold_io::ErrorKind;
use onefold_io::frame::crc64;
use onefold_keys::{SALT_BYTES, Sealer};

use crate::container::block::{self, BLOCK_HEADER_BYTES, BLOCK_STORED_BYTES_MAX, BlockHeader};
use crate::container::compression::Decompressor;
use crate::container::footer::{FOOTER_BYTES, Footer};
use crate::container::{self, HEADER_BYTES, Header, StreamKind};
use crate::objects::ObjectStore;
use crate::repository::RepositoryState;
use crate::{Error, Result};

/// Bytes of a container that are searched at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// Times that a container's bytes may be read behind false beginnings of blocks. Damage alone leads to some blocks with
/// a wrong length, each of them shorter than the container.
const VAIN_READS_MAX: u64 = 64;
/// Largest number of readings of a range until two in a row give the same bytes.
const READINGS_MAX: u32 = 4;
/// Unit in which unreadable parts are given up, in bytes: a device fails to give some sectors, and pages around them.
const PAGE_BYTES: u64 = 4096;

/// A damaged container that can be unsealed.
pub struct Salvage<'a> {
    medium: Medium<'a>,
    /// Bytes of the object, as far as there are any.
    len: u64,
    footer: Option<Footer>,
    /// Header and footer's copy of it, with their sealers. Where both are readable and differ, both stay until a block
    /// shows which of them is right.
    headers: Vec<(Header, Sealer)>,
    /// Bytes of the container that are being searched; they begin at `window_at`.
    window: Vec<u8>,
    window_at: u64,
    /// Bytes that may still be read in vain.
    vain_bytes_left: u64,
    /// Where the search was given up.
    given_up_at: Option<u64>,
    /// Where it first came upon what looks like a block of another version, or is one that cannot be had whole.
    strange_at: Option<u64>,
}

/// A block that was found.
pub struct Block {
    /// Where it begins in the container.
    pub start: u64,
    /// Number of the block, as its header says.
    pub number: u32,
    /// Bytes after its header.
    pub stored_len: u32,
    /// Its raw bytes, with their trailer.
    pub raw: Vec<u8>,
    /// Lengths of the block's chunks, in bytes.
    pub lens: Vec<u32>,
}

/// A finding of the search at a place of the container.
enum SearchResult {
    Nothing,
    Block(Block),
    /// A block that looks like another version's, with its end.
    Foreign(u64),
}

impl Block {
    /// The bytes of its chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.raw[..];
        self.lens.iter().map(move |len| {
            let (chunk, after) = rest.split_at(*len as usize);
            rest = after;
            chunk
        })
    }

    /// Where it ends in the container.
    fn end(&self) -> u64 {
        self.start + BLOCK_HEADER_BYTES as u64 + u64::from(self.stored_len)
    }
}

/// An object on a device that may not give all of it.
struct Medium<'a> {
    objects: &'a dyn ObjectStore,
    object: String,
    /// The pages that did not come.
    lost: BTreeSet<u64>,
}

impl Medium<'_> {
    /// The object's bytes from `offset` on into `buf`, whole; zeros for the pages that the device does not give.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        if self.lost.range(pages.clone()).next().is_none() {
            match self.read_alike(offset, buf) {
                Err(error) if error.is_unreadable() => {}
                other => return other,
            }
        }
        for page in pages {
            let from = (page * PAGE_BYTES).max(offset);
            let to = ((page + 1) * PAGE_BYTES).min(end);
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.read_page(page, from, part)?;
        }
        Ok(())
    }

    fn read_page(&mut self, page: u64, from: u64, part: &mut [u8]) -> Result<()> {
        if !self.lost.contains(&page) {
            match self.read_alike(from, part) {
                Err(error) if error.is_unreadable() => drop(self.lost.insert(page)),
                other => return other,
            }
        }
        part.fill(0);
        Ok(())
    }

    /// Reads until two readings in a row give the same bytes. Bytes that differ at every reading count as unreadable,
    /// so no result depends on a single reading.
    fn read_alike(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut before = None;
        for _ in 0..READINGS_MAX {
            self.objects.forget_cached(&self.object);
            self.objects.get_range(&self.object, offset, buf)?;
            let checksum = crc64(buf);
            if before.replace(checksum) == Some(checksum) {
                return Ok(());
            }
        }
        let what = "it comes otherwise at every reading";
        let error = onefold_io::Error::new("read", &self.object, ErrorKind::Medium, what);
        Err(error.at(offset).into())
    }

    /// Returns the ranges that could not be read, in bytes of the object; neighbouring pages are one range.
    fn lost(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in &self.lost {
            let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

impl<'a> Salvage<'a> {
    /// Header or footer tells the salt; `None`: neither does, and nothing can be unsealed. Without encryption there is
    /// nothing to unseal: a header is made up then, of data, which only says beside what the chunks are stored anew.
    /// Errors: the device failed altogether; another version made it.
    pub fn begin(shared: &'a RepositoryState, id: ContainerId) -> Result<Option<Self>> {
        let object = container::object_name(id);
        let len = match shared.objects.len(&object) {
            Err(error) if error.is_unreadable() => return Ok(None),
            // The name is there, but leads to something that is no file.
            Err(error) if error.is_damage() && !error.is_not_found() => return Ok(None),
            other => other?,
        };
        let mut medium = Medium {
            objects: &*shared.objects,
            object,
            lost: BTreeSet::new(),
        };
        let (mut header, mut footer) = (None, None);
        if len >= HEADER_BYTES as u64 {
            let mut bytes = [0; HEADER_BYTES];
            medium.read(0, &mut bytes)?;
            header = Some(Header::decode(id, &bytes));
        }
        if len >= FOOTER_BYTES as u64 {
            let mut bytes = [0; FOOTER_BYTES];
            medium.read(len - FOOTER_BYTES as u64, &mut bytes)?;
            footer = Some(Footer::decode(id, &bytes, len));
        }
        let (header, footer) = either(header, footer)?;
        let of_footer = footer.as_ref().map(|footer| footer.header.clone());
        let mut found: Vec<Header> = header.into_iter().chain(of_footer).collect();
        found.dedup();
        if found.is_empty() && !shared.keys.seals() {
            found.push(Header {
                id,
                stream: StreamKind::Data,
                salt: [0; SALT_BYTES],
            });
        }
        let sealer = |header: &Header| shared.keys.container_sealer(&header.salt);
        let headers: Vec<_> = found
            .into_iter()
            .map(|header| (header.clone(), sealer(&header)))
            .collect();
        Ok((!headers.is_empty()).then_some(Self {
            medium,
            len,
            footer,
            headers,
            window: Vec::new(),
            window_at: 0,
            vain_bytes_left: len.saturating_mul(VAIN_READS_MAX),
            given_up_at: None,
            strange_at: None,
        }))
    }

    /// Returns the container's header, or the footer's copy of it.
    pub fn header(&self) -> &Header {
        &self.headers[0].0
    }

    /// Returns the header and the footer's copy of it, where they differ; else one of them.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.headers.iter().map(|(header, _)| header)
    }

    /// The footer, if it is whole.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Returns the ranges that the device did not give, in bytes of the container, as far as they were read.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        self.medium.lost()
    }

    /// Where the search was given up, since too much was read behind what only seemed to begin a block.
    pub fn given_up_at(&self) -> Option<u64> {
        self.given_up_at
    }

    /// Where a block begins whose seal holds (or its checksum, where nothing is sealed) and that is none of this
    /// version: longer than any, or of chunks that cannot be. Or what looks like one of another version: unless the
    /// block before leads there, it may be a chunk's content that somebody made so.
    pub fn strange_at(&self) -> Option<u64> {
        self.strange_at
    }

    /// Visits every chunk of every block that can be read. Where a block's header is damaged, the next one is searched
    /// for.
    pub fn chunks(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.blocks(usize::MAX, &mut |block| {
            block.chunks().try_for_each(&mut *visit).map(|()| true)
        })
    }

    /// Visits every block that can be read, until `visit` says that it is enough, or the device has not given more
    /// pages than `lost_max`.
    ///
    /// # Errors
    /// Failures of the device as a whole, those of `visit`.
    pub fn blocks(
        &mut self,
        lost_max: usize,
        visit: &mut dyn FnMut(&Block) -> Result<bool>,
    ) -> Result<()> {
        let mut zstd = Decompressor::new()?;
        let mut at = HEADER_BYTES as u64;
        // Where a block begins for certain: behind the one before.
        let mut next = at;
        while let Some(start) = self.next_header(at, lost_max)? {
            if self.vain_bytes_left == 0 {
                self.given_up_at = Some(start);
                break;
            }
            at = match self.block(start, &mut zstd)? {
                SearchResult::Nothing => start + 1,
                SearchResult::Foreign(end) => {
                    self.strange_at.get_or_insert(start);
                    if start == next {
                        next = end;
                        end
                    } else {
                        start + 1
                    }
                }
                SearchResult::Block(block) => {
                    if !visit(&block)? {
                        break;
                    }
                    next = block.end();
                    next
                }
            };
        }
        Ok(())
    }

    /// Where a block may begin, from `at` on.
    fn next_header(&mut self, mut at: u64, lost_max: usize) -> Result<Option<u64>> {
        while at + BLOCK_HEADER_BYTES as u64 <= self.len && self.medium.lost.len() <= lost_max {
            let window = self.window(at)?;
            if let Some(found) = block::find_header(window) {
                return Ok(Some(at + found as u64));
            }
            at += (window.len() - BLOCK_HEADER_BYTES + 1) as u64;
        }
        Ok(None)
    }

    /// Returns the window's bytes from `at` on, at least as many as a header has. The container must have these.
    fn window(&mut self, at: u64) -> Result<&[u8]> {
        let end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + BLOCK_HEADER_BYTES as u64 > end {
            self.window
                .resize(WINDOW_BYTES.min(self.len - at) as usize, 0);
            self.medium.read(at, &mut self.window)?;
            self.window_at = at;
        }
        Ok(&self.window[(at - self.window_at) as usize..])
    }

    /// The block that begins at `start`, if one does.
    fn block(&mut self, start: u64, zstd: &mut Decompressor) -> Result<SearchResult> {
        let header = BlockHeader::decode_unbounded(self.window(start)?, "block", start);
        let Ok(header) = header else {
            return Ok(SearchResult::Nothing);
        };
        let body = u64::from(header.stored_len);
        let end = start + BLOCK_HEADER_BYTES as u64 + body;
        if end > self.len {
            return Ok(SearchResult::Nothing);
        }
        if header.stored_len as usize > BLOCK_STORED_BYTES_MAX {
            // The block is not read, so nothing proves that it is no block.
            self.strange_at.get_or_insert(start);
            return Ok(SearchResult::Nothing);
        }
        let mut stored = vec![0; (end - start) as usize];
        self.medium.read(start, &mut stored)?;
        for candidate in 0..self.headers.len() {
            let (own, sealer) = &self.headers[candidate];
            // Opening destroys it where the key is another's.
            let mut own_stored = stored.clone();
            let unsealed = block::unseal_block(own, header.number, &mut own_stored, start, sealer);
            let (codec, coded) = match unsealed {
                Ok(unsealed) => unsealed,
                Err(error) if error.is_other_version() => return Ok(SearchResult::Foreign(end)),
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error),
            };
            // All blocks of a container have one salt.
            self.headers.swap(0, candidate);
            self.headers.truncate(1);
            let object = &self.medium.object;
            let whole = BlockHeader::decode(&stored, object, start).and_then(|header| {
                let raw = zstd
                    .decode(codec, coded, header.raw_len as usize)
                    .map_err(|what| Error::damaged(object, Some(start), what))?;
                let lens = block::chunk_lengths(&raw, object, start)?;
                Ok(Block {
                    start,
                    number: header.number,
                    stored_len: header.stored_len,
                    raw,
                    lens,
                })
            });
            match whole {
                Ok(block) => return Ok(SearchResult::Block(block)),
                Err(error) if error.is_damage() => drop(self.strange_at.get_or_insert(start)),
                Err(error) => return Err(error),
            }
            break;
        }
        // The bytes were read twice. Each request has a cost of its own, however short the block.
        let cost = 2 * (end - start).max(PAGE_BYTES);
        self.vain_bytes_left = self.vain_bytes_left.saturating_sub(cost);
        Ok(SearchResult::Nothing)
    }
}

/// Header and footer, as far as they are whole. What one says of another version counts only where the other does not
/// speak against it.
fn either(
    header: Option<Result<Header>>,
    footer: Option<Result<Footer>>,
) -> Result<(Option<Header>, Option<Footer>)> {
    match (header, footer) {
        (Some(Ok(header)), footer) => Ok((Some(header), footer.and_then(Result::ok))),
        (_, Some(Ok(footer))) => Ok((None, Some(footer))),
        (Some(Err(error)), _) | (_, Some(Err(error))) if error.is_other_version() => Err(error),
        _ => Ok((None, None)),
    }
}
