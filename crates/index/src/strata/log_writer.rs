//! Writes a log file: pages in the order of insertion, and behind them the footer that tells their spans.

use onefold_chunk::Fingerprint;

use super::folder::NewFile;
use super::log::{LogPacker, LogPage, Said};
use super::manifest::LogEntry;
use super::page::{PAGE_BYTES, seal_page_of};
use super::spans::{LogSpan, encode_spans, extend_spans, read_spans};
use crate::Result;

/// A log file that the manifest names and to which pages may be added.
pub struct Growing {
    /// The open log file.
    pub file: NewFile,
    /// The last log entry in the manifest, which is that of the file.
    pub entry: LogEntry,
}

/// Writes a log file.
pub struct LogWriter {
    file: NewFile,
    packer: LogPacker,
    spans: Vec<LogSpan>,
    /// Number of pages in the file, without those that wait to be written.
    pages: u32,
    write_pages: usize,
    /// Number of records. A caller that copies pages adds their records itself.
    pub records: u64,
}

impl LogWriter {
    /// A writer into `file`, which is empty, `write_pages` pages at once.
    pub fn new(file: NewFile, write_pages: usize) -> LogWriter {
        LogWriter {
            packer: LogPacker::of(file.id.mark()),
            file,
            spans: Vec::new(),
            pages: 0,
            write_pages,
            records: 0,
        }
    }

    /// A writer behind the content of `growing`, `write_pages` pages at once.
    pub fn behind(growing: Growing, write_pages: usize) -> Result<LogWriter> {
        let Growing { file, entry } = growing;
        let spans = read_spans(&entry, &file.name, &*file.disk)?;
        let mut writer = LogWriter::new(file, write_pages);
        // the old footer stays, and its pages become a hole
        writer.pages = (entry.file_bytes / PAGE_BYTES as u64) as u32;
        writer.packer.first = writer.pages;
        (writer.spans, writer.records) = (spans, entry.records);
        Ok(writer)
    }

    /// The number of pages in the file, without those that wait to be written.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Adds a record and returns its page and the position of its span there.
    pub fn push(&mut self, key: &Fingerprint, said: Said) -> Result<(u32, usize)> {
        self.packer.push(key, said);
        let span = self.packer.last_span();
        self.records += 1;
        let page = self.pages + (self.packer.pages.len() / PAGE_BYTES) as u32;
        if self.packer.pages.len() >= self.write_pages * PAGE_BYTES {
            self.write()?;
        }
        Ok((page, span))
    }

    /// Adds pages, copied unchanged from another log file.
    pub fn copy(&mut self, pages: &[u8]) -> Result<()> {
        self.packer.pages.extend_from_slice(pages);
        for (number, page) in (self.pages..).zip(self.packer.pages.chunks_exact_mut(PAGE_BYTES)) {
            seal_page_of(page, self.packer.mark, number);
        }
        self.write()
    }

    /// Adds `pages` pages without records: a hole.
    pub fn skip(&mut self, pages: u32) -> Result<()> {
        for first in (0..pages).step_by(self.write_pages) {
            let some = (pages - first).min(self.write_pages as u32);
            self.copy(&vec![0; some as usize * PAGE_BYTES])?;
        }
        Ok(())
    }

    /// Writes the remaining pages and the footer, and syncs.
    pub fn finish(mut self) -> Result<(LogEntry, NewFile)> {
        self.packer.close_page();
        self.write()?;
        let mark = self.packer.mark;
        let footer = encode_spans(mark, self.records, self.pages, &self.spans);
        let footer_at = u64::from(self.pages) * PAGE_BYTES as u64;
        self.file.disk.write_at(&footer, footer_at)?;
        self.file.disk.sync()?;
        let file_bytes = footer_at + footer.len() as u64;
        let entry = LogEntry {
            id: self.file.id,
            first_page: 0,
            pages: self.pages,
            records: self.records,
            file_bytes,
        };
        Ok((entry, self.file))
    }

    fn write(&mut self) -> Result<()> {
        for bytes in self.packer.pages.chunks_exact(PAGE_BYTES) {
            extend_spans(&mut self.spans, LogPage::checked(bytes), self.pages);
            self.pages += 1;
        }
        let at = (u64::from(self.pages) * PAGE_BYTES as u64) - self.packer.pages.len() as u64;
        self.file.disk.write_at(&self.packer.pages, at)?;
        self.packer.pages.clear();
        self.packer.first = self.pages;
        Ok(())
    }
}
