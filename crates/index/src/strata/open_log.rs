//! A log file that is open, with its spans in RAM.

use std::sync::Arc;

use onefold_io::Disk;

use super::log::{LogPage, PAGE_RECORDS_MAX, Said};
use super::manifest::LogEntry;
use super::page::{PAGE_BYTES, check_reaches};
use super::run_page::RunRecord;
use super::spans::{SpanTable, read_spans};
use crate::{Error, Result};

/// An open log file.
pub struct OpenLog {
    /// The entry of the file in the manifest.
    pub entry: LogEntry,
    /// Name of the file.
    pub path: String,
    /// The open file.
    pub disk: Arc<dyn Disk>,
    /// Spans of the file; empty where they had no room in RAM.
    pub spans: SpanTable,
}

impl OpenLog {
    /// Reads the spans, and keeps them if they fit into `span_room` bytes.
    pub fn new(
        entry: LogEntry,
        path: String,
        disk: Arc<dyn Disk>,
        span_room: usize,
    ) -> Result<OpenLog> {
        check_reaches(&*disk, &path, entry.file_bytes)?;
        let pages_bytes = u64::from(entry.pages) * PAGE_BYTES as u64;
        if entry.records > u64::from(entry.pages) * PAGE_RECORDS_MAX as u64 {
            let what = format!("{} records on {} pages", entry.records, entry.pages);
            return Err(Error::damaged(&path, 0, what));
        }
        let Some(footer) = entry.file_bytes.checked_sub(pages_bytes) else {
            let what = format!("{} pages in {} bytes", entry.pages, entry.file_bytes);
            return Err(Error::damaged(&path, 0, what));
        };
        let mut spans = SpanTable::default();
        if footer <= span_room.max(PAGE_BYTES) as u64 {
            let table = SpanTable::new(&read_spans(&entry, &path, &*disk)?);
            if table.ram_bytes() <= span_room {
                spans = table;
            }
        }
        Ok(OpenLog {
            entry,
            path,
            disk,
            spans,
        })
    }

    /// The name and the mark of the file.
    pub fn named(&self) -> (&str, u64) {
        (&self.path, self.entry.id.mark())
    }

    /// Checks a page that was read from this file; `page` counts within the file.
    pub fn check_page<'a>(&self, bytes: &'a [u8], page: u32) -> Result<LogPage<'a>> {
        let (path, mark) = self.named();
        LogPage::check(bytes, mark, path, page)
    }

    /// The content of the log record that a run's `record` refers to on page `page`; `None` where the page must be read
    /// to know it.
    pub fn said(&self, page: u32, record: &RunRecord) -> Option<Said> {
        if record.removed {
            return Some(None);
        }
        self.spans
            .container(page - self.entry.first_page, record.span)
            .map(Some)
    }
}
