//! Sealing: the tail becomes a run and a log file, or the next part of the log file that its opener wrote last: so files are few, and the log is written once.
//!
//! Order: log and run are written and synced, then the manifest names them (see [`folder`](super::folder)). A crash before that leaves orphans, a log file that is longer than the manifest says, and
//! the index as it was at the last seal.

use std::sync::atomic::{AtomicU64, Ordering};

use onefold_chunk::Fingerprint;

use super::folder::{Folder, NewFile};
use super::join::small_pages;
use super::log::Said;
use super::log_writer::LogWriter;
use super::manifest::{LOG_PAGES_MAX, LogEntry, Manifest, RunEntry};
use super::options::Plan;
use super::run::hash_of;
use super::run_page::{RunRecord, SPAN_UNKNOWN, proof_of};
use super::run_writer::{RunFile, RunWriter};
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
    let first = log.pages();
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
