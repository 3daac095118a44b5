//! Sealing: the tail becomes a log file and a run.
//!
//! Order: log and run are written and synced, then the manifest names them (see [`folder`](super::folder)). A crash before that leaves orphans, and
//! the index as it was at the last seal.

use std::sync::atomic::{AtomicU64, Ordering};

use onefold_chunk::Fingerprint;

use super::folder::{Folder, NewFile};
use super::log::{LogPacker, LogPage, Said};
use super::manifest::{LOG_PAGES_MAX, LogEntry, Manifest, RunEntry};
use super::options::Plan;
use super::page::{PAGE_BYTES, seal_page};
use super::run::hash_of;
use super::run_page::{RunRecord, SPAN_UNKNOWN, proof_of};
use super::run_writer::{RunFile, RunWriter};
use super::spans::{LogSpan, encode_spans, extend_spans};
use crate::{Error, Result};

/// A log and a run that no manifest names yet.
#[derive(Clone, Copy)]
pub struct Sealed {
    log: LogEntry,
    run: RunEntry,
}

/// Writes `records`, each fingerprint once, in their order. Where that fails, it leaves no files.
///
/// Who cannot enter what this gives removes it.
pub fn seal<'a>(
    folder: &Folder,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    plan: &Plan,
    filter_bits: u8,
    written: &AtomicU64,
) -> Result<Sealed> {
    let mut names = Vec::new();
    let sealed = write(folder, records, plan, filter_bits, &mut names);
    match &sealed {
        Ok(sealed) => {
            let bytes = sealed.log.file_bytes + sealed.run.file_bytes;
            written.fetch_add(bytes, Ordering::Relaxed);
        }
        // what cannot be removed goes with the next who opens
        Err(_) => drop(folder.remove(&names)),
    }
    sealed
}

/// `names` tells the files that were made.
fn write<'a>(
    folder: &Folder,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    plan: &Plan,
    filter_bits: u8,
    names: &mut Vec<String>,
) -> Result<Sealed> {
    let file = folder.create_log()?;
    names.push(file.name.clone());
    let mut log = LogWriter::new(file, plan.merge_pages / 4);
    let mut of_run = Vec::with_capacity(records.size_hint().1.unwrap_or(0));
    for (key, said) in records {
        let (page, span) = log.push(key, *said)?;
        of_run.push(RunRecord {
            hash: hash_of(key),
            page,
            span: span.min(usize::from(SPAN_UNKNOWN)) as u8,
            removed: said.is_none(),
            proof: proof_of(key),
        });
    }
    let log = log.finish()?;
    // where two fingerprints share a hash, the later stays; the earlier one's page is not to be believed unasked
    of_run.sort_unstable();
    let dead = drop_twins(&mut of_run);
    let file = folder.create_run()?;
    names.push(file.name.clone());
    let mut run = RunWriter::new(
        file.disk,
        of_run.len() as u64,
        log.pages,
        plan.partition_records,
        filter_bits,
    );
    of_run.iter().try_for_each(|record| run.push(*record))?;
    let RunFile {
        records,
        footer_at,
        file_bytes,
    } = run.finish(&dead)?;
    Ok(Sealed {
        run: RunEntry {
            id: file.id,
            first_page: 0,
            end_page: log.pages,
            records,
            footer_at,
            file_bytes,
        },
        log,
    })
}

impl Sealed {
    /// The names of both files.
    pub fn names(&self) -> Vec<String> {
        vec![self.log.id.log_name(), self.run.id.run_name()]
    }

    /// Gives the log its page numbers and names both in the manifest.
    pub fn enter(&self, manifest: &mut Manifest) -> Result<()> {
        let first = manifest.next_page;
        if self.log.pages > LOG_PAGES_MAX - first {
            let what = format!(
                "log page {first}, the last can be {LOG_PAGES_MAX}; delete the index, it will be built anew"
            );
            return Err(Error::Damaged {
                path: "manifest".to_string(),
                offset: None,
                what,
            });
        }
        let end_page = first + self.log.pages;
        manifest.next_page = end_page;
        manifest.logs.push(LogEntry {
            first_page: first,
            ..self.log
        });
        manifest.runs.push(RunEntry {
            first_page: first,
            end_page,
            ..self.run
        });
        Ok(())
    }
}

fn drop_twins(records: &mut Vec<RunRecord>) -> Vec<u32> {
    let mut dead = Vec::new();
    records.dedup_by(|later, kept| {
        let twins = later.hash == kept.hash;
        if twins {
            dead.push(kept.page);
            *kept = *later;
        }
        twins
    });
    dead.sort_unstable();
    dead.dedup();
    dead
}

/// Writes a log file.
pub struct LogWriter {
    file: NewFile,
    packer: LogPacker,
    spans: Vec<LogSpan>,
    pages: u32,
    write_pages: usize,
    /// Records; who copies pages adds theirs.
    pub records: u64,
}

impl LogWriter {
    /// Into `file`, which is empty, `write_pages` pages at once.
    pub fn new(file: NewFile, write_pages: usize) -> LogWriter {
        LogWriter {
            file,
            packer: LogPacker::default(),
            spans: Vec::new(),
            pages: 0,
            write_pages,
            records: 0,
        }
    }

    /// Adds a record and tells its page, and the place of its span there.
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

    /// Adds pages as they are in another log file.
    pub fn copy(&mut self, pages: &[u8]) -> Result<()> {
        self.packer.pages.extend_from_slice(pages);
        for (number, page) in (self.pages..).zip(self.packer.pages.chunks_exact_mut(PAGE_BYTES)) {
            seal_page(page, number);
        }
        self.write()
    }

    /// Adds `pages` pages without records.
    pub fn skip(&mut self, pages: u32) -> Result<()> {
        for first in (0..pages).step_by(self.write_pages) {
            let some = (pages - first).min(self.write_pages as u32);
            self.copy(&vec![0; some as usize * PAGE_BYTES])?;
        }
        Ok(())
    }

    /// Writes what is left and the footer, and syncs.
    pub fn finish(mut self) -> Result<LogEntry> {
        self.packer.close_page();
        self.write()?;
        let footer = encode_spans(self.records, self.pages, &self.spans);
        let footer_at = u64::from(self.pages) * PAGE_BYTES as u64;
        self.file.disk.write_at(&footer, footer_at)?;
        self.file.disk.sync()?;
        let file_bytes = footer_at + footer.len() as u64;
        Ok(LogEntry {
            id: self.file.id,
            first_page: 0,
            pages: self.pages,
            records: self.records,
            file_bytes,
        })
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
