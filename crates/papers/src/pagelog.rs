//! A log of frames, each from a page boundary, to which `tablets` and `sparse` append.
//!
//! Invariant: a frame's payload begins with the number of its own page and the number of durable pages when it was
//! written. At open, a frame that is not whole is therefore either the torn end, which is cut off, or damage, if a
//! whole frame behind it knew it to be durable.

use std::sync::Arc;

use onefold_io::frame::{FrameKind, OVERHEAD_BYTES, decode_frame, encode_frame, read_frame};
use onefold_io::{Disk, ErrorKind, ReadAt};

use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{Error, Result};

/// Bytes before the content of a payload: page 4, durable pages 4.
const HEAD_BYTES: usize = 8;
/// Largest payload of a frame, in bytes.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

/// A log of frames on a disk, each from a page boundary.
pub struct PageLog {
    disk: Arc<dyn Disk>,
    path: String,
    kind: FrameKind,
    pages: u32,
    durable: u32,
    /// Bytes appended since the log was opened.
    pub bytes_written: u64,
}

/// A run of pages of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// Number of the first page.
    pub page: u32,
    /// Number of pages.
    pub pages: u32,
}

impl PageLog {
    /// Opens the log on `disk` and passes all frames to `visit`, in their order.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &str,
        kind: FrameKind,
        visit: &mut dyn FnMut(PageRun, &[u8]) -> Result<()>,
    ) -> Result<PageLog> {
        let mut log = PageLog {
            disk,
            path: path.to_string(),
            kind,
            pages: 0,
            durable: 0,
            bytes_written: 0,
        };
        let bytes = log.disk.len()?;
        let there = bytes
            .div_ceil(PAGE_BYTES as u64)
            .min(u64::from(u32::MAX - 1)) as u32;
        while log.pages < there {
            let Some((payload, _)) = log.frame(log.pages)? else {
                break;
            };
            let extent = PageRun {
                page: log.pages,
                pages: pages_of(payload.len()),
            };
            visit(extent, &payload[HEAD_BYTES..])?;
            log.pages += extent.pages;
        }
        for page in log.pages + 1..there {
            if log
                .frame(page)?
                .is_some_and(|(_, durable)| durable > log.pages)
            {
                let what = format!("no frame before page {page}, which knew it to be durable");
                return Err(Error::damaged(path, place_of(log.pages), what));
            }
        }
        if log.pages < there {
            log.disk.set_len(place_of(log.pages))?;
            log.disk.sync()?;
        }
        log.durable = log.pages;
        Ok(log)
    }

    /// The frame at `page` with the number of pages that it knew to be durable; `None` where it is not whole or was
    /// written for another page.
    fn frame(&self, page: u32) -> Result<Option<(Vec<u8>, u32)>> {
        let read = read_frame(
            &*self.disk,
            self.kind,
            place_of(page),
            PAYLOAD_BYTES_MAX,
            &self.path,
        );
        match read {
            Ok(payload) if payload.len() >= HEAD_BYTES && four(&payload, 0) == page => {
                let durable = four(&payload, 4);
                Ok(Some((payload, durable)))
            }
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind, ErrorKind::Damaged | ErrorKind::Short) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends a frame, durable after the next sync. A payload above 64 MiB is refused, because it could not be read
    /// again.
    pub fn append(&mut self, payload: &[u8]) -> Result<PageRun> {
        let bytes = (HEAD_BYTES + payload.len()) as u64;
        if bytes > PAYLOAD_BYTES_MAX {
            let what = format!("a frame of {bytes} bytes, expected at most {PAYLOAD_BYTES_MAX}");
            let error = onefold_io::Error::new("append", &*self.path, ErrorKind::Device, what);
            return Err(error.into());
        }
        let mut framed = Vec::with_capacity(HEAD_BYTES + payload.len());
        framed.extend_from_slice(&self.pages.to_le_bytes());
        framed.extend_from_slice(&self.durable.to_le_bytes());
        framed.extend_from_slice(payload);
        let bytes = encode_frame(self.kind, &framed);
        self.disk.write_at(&bytes, place_of(self.pages))?;
        let extent = PageRun {
            page: self.pages,
            pages: pages_of(framed.len()),
        };
        self.pages += extent.pages;
        self.bytes_written += bytes.len() as u64;
        Ok(extent)
    }

    /// Reads runs of whole frames, one read each, in one batch. Passes each frame to `visit`, with the position of its
    /// run in `extents`.
    pub fn read_many(
        &self,
        extents: &[PageRun],
        visit: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        // the last frame does not fill its last page
        let end = self.disk.len()?;
        let bytes_of = |extent: &PageRun| {
            let behind = place_of(extent.page + extent.pages).min(end);
            vec![0; behind.saturating_sub(place_of(extent.page)) as usize]
        };
        let mut runs: Vec<Vec<u8>> = extents.iter().map(bytes_of).collect();
        let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(extents.len());
        for (extent, buf) in extents.iter().zip(&mut runs) {
            let offset = place_of(extent.page);
            reads.push(ReadAt { offset, buf });
        }
        self.disk
            .read_many_at(&mut reads)
            .map_err(|error| Error::from_read(error, &self.path))?;
        for (place, (extent, run)) in extents.iter().zip(&runs).enumerate() {
            self.show_frames(*extent, run, &mut |payload| visit(place, payload))?;
        }
        Ok(())
    }

    fn show_frames(
        &self,
        extent: PageRun,
        run: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut page = extent.page;
        while page < extent.page + extent.pages {
            let at = (page - extent.page) as usize * PAGE_BYTES;
            let bytes = run.get(at..).unwrap_or_default();
            let frame = decode_frame(self.kind, bytes, &self.path, place_of(page))?;
            if frame.payload.len() < HEAD_BYTES || four(frame.payload, 0) != page {
                let what = format!("the frame of another page, expected that of {page}");
                return Err(Error::damaged(&self.path, place_of(page), what));
            }
            visit(&frame.payload[HEAD_BYTES..])?;
            page += pages_of(frame.payload.len());
        }
        Ok(())
    }

    /// Makes all frames durable.
    pub fn sync(&mut self) -> Result<()> {
        self.disk.sync()?;
        self.durable = self.pages;
        Ok(())
    }

    /// The number of pages in the log.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

fn pages_of(payload_bytes: usize) -> u32 {
    (payload_bytes + OVERHEAD_BYTES).div_ceil(PAGE_BYTES) as u32
}

fn place_of(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES as u64
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use onefold_io::{Dir, MemDir};

    use super::*;

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let kind = FrameKind {
            magic: *b"OFSPARSE",
            version: 1,
        };
        let disk = MemDir::new().create("log").expect("create");
        let open = |frames: &mut Vec<usize>| {
            PageLog::open(Arc::clone(&disk), "log", kind, &mut |_, payload| {
                frames.push(payload.len());
                Ok(())
            })
        };
        let longest = PAYLOAD_BYTES_MAX as usize - HEAD_BYTES;
        let mut log = open(&mut Vec::new()).expect("open");
        log.append(&vec![7; longest]).expect("the longest");
        log.append(&vec![7; longest + 1]).expect_err("too long");
        log.append(&[7]).expect("a short one behind it");
        let mut frames = Vec::new();
        open(&mut frames).expect("open again");
        assert_eq!(frames, [longest, 1]);
    }
}
