//! Sealing: the tail becomes a run and a log file, or the next part of the log file that its opener wrote last: so files are few, and the log is written once.
//!
//! Order: log and run are written and synced, then the manifest names them (see [`folder`](super::folder)). A crash before that leaves orphans, a log file that is longer than the manifest says, and
//! the index as it was at the last seal.

use std::sync::atomic::{AtomicU64, Ordering};

use onefold_chunk::Fingerprint;

use super::folder::{Folder, NewFile};
use super::join::small_pages;
use super::log::{LogPacker, LogPage, Said};
use super::manifest::{LOG_PAGES_MAX, LogEntry, Manifest, RunEntry};
use super::options::Plan;
use super::page::{PAGE_BYTES, seal_page_of};
use super::run::hash_of;
use super::run_page::{RunRecord, SPAN_UNKNOWN, proof_of};
use super::run_writer::{RunFile, RunWriter};
use super::spans::{LogSpan, encode_spans, extend_spans, read_spans};
use crate::{Error, Result};

/// A log and a run that no manifest names yet.
pub struct Sealed {
    log: LogEntry,
    /// The log file, to which the next seal may add.
    pub file: NewFile,
    /// What the manifest says of the file that it was added to.
    grown: Option<LogEntry>,
    run: RunEntry,
}

/// A log file that the manifest names, to be added to, and what that says of it.
pub struct Growing {
    /// The file.
    pub file: NewFile,
    /// Its line in the manifest, the last.
    pub entry: LogEntry,
}

/// `file` with what `manifest` says of it, if that has it as the last log file, and it is small.
pub fn growing(file: NewFile, manifest: &Manifest) -> Option<Growing> {
    let entry = *manifest.logs.last()?;
    let grows = entry.id == file.id
        && entry.end_page() == manifest.next_page
        && entry.pages < small_pages(&manifest.logs);
    grows.then_some(Growing { file, entry })
}

/// Writes `records`, each fingerprint once, in their order, the log into a new file or behind what `growing` holds. Where that fails, it leaves nothing.
///
/// Who cannot enter what this gives removes it.
pub fn seal<'a>(
    folder: &Folder,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    plan: &Plan,
    filter_bits: u8,
    written: &AtomicU64,
    growing: Option<Growing>,
) -> Result<Sealed> {
    let mut names = Vec::new();
    let before = growing
        .as_ref()
        .map(|growing| (growing.file.disk.clone(), growing.entry.file_bytes));
    let sealed = write(folder, records, plan, filter_bits, &mut names, growing);
    match &sealed {
        Ok(sealed) => {
            written.fetch_add(sealed.bytes(), Ordering::Relaxed);
        }
        Err(_) => {
            if let Some((disk, bytes)) = before {
                disk.set_len(bytes).ok();
            }
            // what cannot be removed goes with the next who opens
            folder.remove(&names).ok();
        }
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
    growing: Option<Growing>,
) -> Result<Sealed> {
    let at_once = plan.merge_pages / 4;
    let grown = growing.as_ref().map(|growing| growing.entry);
    let mut log = match growing {
        Some(growing) => LogWriter::behind(growing, at_once)?,
        None => {
            let file = folder.create_log()?;
            names.push(file.name.clone());
            LogWriter::new(file, at_once)
        }
    };
    let first = log.pages;
    let mut of_run = Vec::with_capacity(records.size_hint().1.unwrap_or(0));
    for (key, said) in records {
        let (page, span) = log.push(key, *said)?;
        of_run.push(RunRecord {
            hash: hash_of(key),
            page: page - first,
            span: span.min(usize::from(SPAN_UNKNOWN)) as u8,
            removed: said.is_none(),
            proof: proof_of(key),
        });
    }
    let (log, log_file) = log.finish()?;
    let log_pages = log.pages - first;
    // where two fingerprints share a hash, the later stays; the earlier one's page is not to be believed unasked
    of_run.sort_unstable();
    let dead = drop_twins(&mut of_run);
    let file = folder.create_run()?;
    names.push(file.name.clone());
    let mut run = RunWriter::new(
        file.disk,
        file.id,
        of_run.len() as u64,
        log_pages,
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
            end_page: log_pages,
            records,
            footer_at,
            file_bytes,
        },
        log,
        file: log_file,
        grown,
    })
}

impl Sealed {
    /// The names of the files that were made.
    pub fn names(&self) -> Vec<String> {
        let log = self.grown.is_none().then(|| self.log.id.log_name());
        log.into_iter().chain([self.run.id.run_name()]).collect()
    }

    /// What was written for it.
    fn bytes(&self) -> u64 {
        let before = self.grown.map_or(0, |grown| grown.file_bytes);
        self.log.file_bytes - before + self.run.file_bytes
    }

    /// Takes back what could not be entered, unless the newest manifest names it after all.
    pub fn remove(self, folder: &Folder) {
        if let Some(grown) = self.grown {
            // the manifest may be that of an index which was begun since; what cannot be cut off goes with the file
            let names_more = |manifest: Manifest| {
                let entry = manifest.logs.iter().find(|log| log.id == grown.id);
                entry.is_some_and(|entry| entry.file_bytes > grown.file_bytes)
            };
            if folder
                .manifest()
                .is_ok_and(|manifest| !names_more(manifest))
            {
                self.file.disk.set_len(grown.file_bytes).ok();
            }
        }
        folder.remove_unentered(&self.names());
    }

    /// Gives the log its page numbers and names both in the manifest. `false`: the file that grew is not the last any more, or not what it was.
    pub fn enter(&self, manifest: &mut Manifest) -> Result<bool> {
        let first_page = match self.grown {
            None => manifest.next_page,
            Some(grown) if manifest.logs.last() != Some(&grown) => return Ok(false),
            Some(grown) if manifest.next_page != grown.end_page() => return Ok(false),
            Some(grown) => grown.first_page,
        };
        if self.log.pages > LOG_PAGES_MAX - first_page {
            let what = format!(
                "log page {}, the last can be {LOG_PAGES_MAX}; delete the index, it will be built anew",
                manifest.next_page
            );
            return Err(Error::Damaged {
                path: "manifest".to_string(),
                offset: None,
                what,
            });
        }
        let log = LogEntry {
            first_page,
            ..self.log
        };
        manifest.logs.pop_if(|_| self.grown.is_some());
        manifest.logs.push(log);
        manifest.next_page = log.end_page();
        manifest.runs.push(RunEntry {
            first_page: log.end_page() - self.run.end_page,
            end_page: log.end_page(),
            ..self.run
        });
        Ok(true)
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
    /// Of the file, those that wait to be written not counted.
    pages: u32,
    write_pages: usize,
    /// Records; who copies pages adds theirs.
    pub records: u64,
}

impl LogWriter {
    /// Into `file`, which is empty, `write_pages` pages at once.
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

    /// Behind what `growing` holds, `write_pages` pages at once.
    pub fn behind(growing: Growing, write_pages: usize) -> Result<LogWriter> {
        let Growing { file, entry } = growing;
        let spans = read_spans(&entry, &file.name, &*file.disk)?;
        let mut writer = LogWriter::new(file, write_pages);
        // its footer stays, and is a hole
        writer.pages = (entry.file_bytes / PAGE_BYTES as u64) as u32;
        writer.packer.first = writer.pages;
        (writer.spans, writer.records) = (spans, entry.records);
        Ok(writer)
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
            seal_page_of(page, self.packer.mark, number);
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
