//! Writes extents, in order, into runs of bounded size.

use std::sync::Arc;

use onefold_io::Disk;

use super::extent::Extent;
use super::folder::{MapFolder, RunFile};
use super::run::{ListedRun, Pages, Run, SealedRunFile, encode_footer};
use super::run_id::RunId;
use super::run_page::PageBuilder;
use crate::Result;
use crate::log::layout::PAGE_BYTES;
use crate::log::page_sealer::PageSealer;
use crate::log::seals::Salt;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Where runs are cut, and how their pages are kept.
#[derive(Clone, Debug)]
pub struct Cuts {
    /// Bytes of a run at most.
    pub run_bytes_max: u64,
    /// Extents of a run at most.
    pub run_extents_max: u64,
    /// LBNs at which a new run begins, ascending.
    pub borders: Vec<u64>,
    /// How pages are kept.
    pub pages: Pages,
}

/// Writes one level of a map.
pub struct RunWriter<'a> {
    folder: &'a MapFolder,
    cuts: Cuts,
    /// Borders that lie behind what was pushed begin here.
    border_at: usize,
    /// The last extent, which the next one may go on.
    last: Option<Extent>,
    open: Option<OpenRun>,
    runs: Vec<Arc<Run>>,
}

/// The run that is being written.
struct OpenRun {
    id: RunId,
    file: Arc<RunFile>,
    disk: Arc<dyn Disk>,
    salt: Option<Salt>,
    sealer: PageSealer,
    builder: PageBuilder,
    /// Pages that are not written yet.
    buffer: Vec<u8>,
    written: u64,
    fences: Vec<u64>,
    first: u64,
    end: u64,
    mapped: u64,
    holes: u64,
    extents: u64,
}

impl<'a> RunWriter<'a> {
    /// Writes into `folder`.
    pub fn new(folder: &'a MapFolder, cuts: Cuts) -> Self {
        Self {
            folder,
            cuts,
            border_at: 0,
            last: None,
            open: None,
            runs: Vec::new(),
        }
    }

    /// Adds an extent behind all others.
    ///
    /// # Errors
    /// The device failed, or is full.
    pub fn push(&mut self, extent: Extent) -> Result<()> {
        let chunk_pages = self.folder.layout.chunk_pages;
        let mut rest = extent;
        while let Some(border) = self.border_before(rest.end()) {
            if rest.lbn < border {
                self.join(rest.cut(&(rest.lbn..border), chunk_pages))?;
                rest = rest.cut(&(border..rest.end()), chunk_pages);
            }
            self.end_run()?;
        }
        self.join(rest)
    }

    /// Ends the last run, and returns all of them. Their bytes are synced; their names are not.
    ///
    /// # Errors
    /// The device failed, or is full.
    pub fn finish(mut self) -> Result<Vec<Arc<Run>>> {
        self.end_run()?;
        Ok(self.runs)
    }

    /// The next border, if it lies before `end`; it counts as passed then.
    fn border_before(&mut self, end: u64) -> Option<u64> {
        let border = *self.cuts.borders.get(self.border_at)?;
        (border < end).then(|| {
            self.border_at += 1;
            border
        })
    }

    fn join(&mut self, extent: Extent) -> Result<()> {
        let chunk_pages = self.folder.layout.chunk_pages;
        match &mut self.last {
            Some(last) if last.is_followed_by(&extent, chunk_pages) => last.chunks += extent.chunks,
            last => {
                if let Some(last) = last.replace(extent) {
                    self.write(last)?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, extent: Extent) -> Result<()> {
        let is_full = |open: &OpenRun| open.extents >= self.cuts.run_extents_max;
        if self.open.as_ref().is_some_and(is_full) {
            self.close_run()?;
        }
        if self.open.is_none() {
            self.open = Some(OpenRun::new(self.folder, extent.lbn)?);
        }
        let run_bytes_max = self.cuts.run_bytes_max;
        let open = self.open.as_mut().expect("opened above");
        if !open.builder.push(extent) {
            open.end_page()?;
            if open.bytes() >= run_bytes_max {
                self.close_run()?;
                return self.write(extent);
            }
            assert!(open.builder.push(extent), "an empty page takes any extent");
        }
        open.end = extent.end();
        open.mapped += extent.mapped();
        open.holes += extent.chunks - extent.mapped();
        open.extents += 1;
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(last) = self.last.take() {
            self.write(last)?;
        }
        self.close_run()
    }

    fn close_run(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.end_page()?;
        let listed = ListedRun {
            id: open.id,
            first: open.first,
            end: open.end,
            mapped: open.mapped,
            holes: open.holes,
            extents: open.extents,
            pages: open.fences.len() as u32,
        };
        let footer = encode_footer(&listed, &open.fences, open.salt, &open.sealer);
        open.buffer.extend_from_slice(&footer);
        open.write_out()?;
        open.disk.sync()?;
        let (file, sealer) = (open.file, open.sealer);
        let file = SealedRunFile { file, sealer };
        let run = Run::new(self.folder, listed, file, open.fences, self.cuts.pages)?;
        self.runs.push(run);
        Ok(())
    }
}

impl OpenRun {
    /// A new file, with a salt of its own where runs are sealed.
    fn new(folder: &MapFolder, first: u64) -> Result<Self> {
        let salt = folder.seals.new_salt()?;
        let sealer = folder.seals.pages(salt);
        let (id, file, disk) = folder.create()?;
        Ok(Self {
            id,
            file,
            disk,
            salt,
            builder: PageBuilder::leaving(sealer.message_bytes()),
            sealer,
            buffer: Vec::new(),
            written: 0,
            fences: Vec::new(),
            first,
            end: first,
            mapped: 0,
            holes: 0,
            extents: 0,
        })
    }

    fn bytes(&self) -> u64 {
        (self.fences.len() * PAGE_BYTES) as u64
    }

    fn end_page(&mut self) -> Result<()> {
        let Some(first) = self.builder.first_lbn() else {
            return Ok(());
        };
        let no = self.fences.len() as u32;
        self.builder
            .finish(self.id, no, &self.sealer, &mut self.buffer);
        self.fences.push(first);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out()
        } else {
            Ok(())
        }
    }

    fn write_out(&mut self) -> Result<()> {
        self.disk.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
