//! Sealing: the tail becomes log pages, in a new file or behind the pages of the log file that its opener wrote last,
//! so that files are few and the log is written once. Few records stay loose; more become a run with all loose ones.
//!
//! Order: log and run are written and synced, then the manifest names them (see [`folder`](super::folder)). A crash
//! before that leaves orphans, a log file longer than the manifest says, and the index as of the last seal. Invariant:
//! an entered run speaks of all pages between the last run's and its own, including those that others wrote; an opener
//! that finds that another has sealed meanwhile writes its run again.

use std::sync::atomic::Ordering;

use onefold_chunk::Fingerprint;

use super::folder::{Folder, NewFile};
use super::join::small_pages;
use super::log::Said;
use super::log_writer::{Growing, LogWriter};
use super::loose::Loose;
use super::manifest::{IndexManifest, LOG_PAGES_MAX, LogEntry, LoosePages, RunEntry};
use super::run::hash_of;
use super::run_page::{RunRecord, SPAN_UNKNOWN, proof_of};
use super::run_writer::{FinishedRun, RunWriter};
use super::state::StrataState;
use crate::{Error, Result};

/// Log pages, and perhaps a run, that no manifest names yet.
pub struct Sealed {
    log: LogEntry,
    /// The log file, to which the next seal may add.
    pub file: NewFile,
    /// The manifest's entry of the file before pages were added; `None` for a new file.
    grown: Option<LogEntry>,
    /// Number of records that were added.
    records: usize,
    /// The run of the added and of all loose records, if one was written.
    run: Option<RunEntry>,
    /// The loose pages when the run was written.
    loose: LoosePages,
}

/// `file` with its entry in `manifest`, if that is the last log entry and small enough to grow.
pub fn growing(file: NewFile, manifest: &IndexManifest) -> Option<Growing> {
    let entry = *manifest.logs.last()?;
    let grows = entry.id == file.id
        && entry.end_page() == manifest.next_page
        && entry.pages < small_pages(&manifest.logs);
    grows.then_some(Growing { file, entry })
}

/// Writes `records`, each fingerprint once, in their order: the log into a new file or behind the content of `growing`,
/// and a run of them and of `loose`, unless all may stay loose. The index then has `all` records. A failure leaves no
/// new files and no added pages.
///
/// A caller that cannot enter the result must remove it ([`Sealed::remove`]).
pub fn seal<'a>(
    shared: &StrataState,
    loose: &Loose,
    all: u64,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    growing: Option<Growing>,
) -> Result<Sealed> {
    let mut names = Vec::new();
    let before = growing
        .as_ref()
        .map(|growing| (growing.file.disk.clone(), growing.entry.file_bytes));
    let sealed = write(shared, loose, all, records, &mut names, growing);
    match &sealed {
        Ok(sealed) => {
            shared.written.fetch_add(sealed.bytes(), Ordering::Relaxed);
        }
        Err(_) => {
            if let Some((disk, bytes)) = before {
                disk.set_len(bytes).ok();
            }
            // files that cannot be removed go when the index is next opened
            shared.folder.remove(&names).ok();
        }
    }
    sealed
}

/// Writes log and run; `names` receives the names of new files.
fn write<'a>(
    shared: &StrataState,
    loose: &Loose,
    all: u64,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    names: &mut Vec<String>,
    growing: Option<Growing>,
) -> Result<Sealed> {
    let at_once = shared.plan.merge_pages / 4;
    let grown = growing.as_ref().map(|growing| growing.entry);
    let mut writer = match growing {
        Some(growing) => LogWriter::behind(growing, at_once)?,
        None => {
            let file = shared.folder.create_log()?;
            names.push(file.name.clone());
            LogWriter::new(file, at_once)
        }
    };
    let first = writer.pages();
    let of_run = write_log(&mut writer, records, loose.len())?;
    let (log, file) = writer.finish()?;
    // the footer before, where the file grew, and the new footer
    let added = log.pages - grown.map_or(0, |grown| grown.pages);
    let mut sealed = Sealed {
        records: of_run.len(),
        run: None,
        log,
        file,
        grown,
        loose: loose.of.clone(),
    };
    if !loose.of.has_room(sealed.records, added) {
        let own = log.pages - first;
        let pages = match loose.of.to_cover() {
            0 => own,
            loose => loose + added,
        };
        sealed.run = Some(write_run(shared, loose, all, of_run, (pages, own), names)?);
    }
    Ok(sealed)
}

/// Writes `records` to `log`. Returns the run records of them, with pages counted from the first that is written, and
/// room for `more`.
fn write_log<'a>(
    log: &mut LogWriter,
    records: impl Iterator<Item = &'a (Fingerprint, Said)>,
    more: usize,
) -> Result<Vec<RunRecord>> {
    let first = log.pages();
    let mut of_run = Vec::with_capacity(records.size_hint().1.unwrap_or(0) + more);
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
    Ok(of_run)
}

/// Writes the run of all `loose` records and of `records`, which stand on the last `own` of its `pages`.
fn write_run(
    shared: &StrataState,
    loose: &Loose,
    all: u64,
    mut records: Vec<RunRecord>,
    (pages, own): (u32, u32),
    names: &mut Vec<String>,
) -> Result<RunEntry> {
    records
        .iter_mut()
        .for_each(|record| record.page += pages - own);
    records.extend(loose.run_records());
    // of two records with one hash the later stays; the earlier one's page must not be believed without asking runs
    records.sort_unstable();
    let mut dead: Vec<u32> = loose.dead_pages().collect();
    drop_twins(&mut records, &mut dead);
    let file = shared.folder.create_run()?;
    names.push(file.name.clone());
    let count = records.len() as u64;
    let bits = shared.plan.filter_bits(all, count);
    let partition = shared.plan.partition_records;
    let mut run = RunWriter::new(file.disk, file.id, count, pages, partition, bits);
    records.iter().try_for_each(|record| run.push(*record))?;
    let FinishedRun {
        records,
        footer_at,
        file_bytes,
    } = run.finish(&dead)?;
    Ok(RunEntry {
        id: file.id,
        first_page: 0,
        end_page: pages,
        records,
        footer_at,
        file_bytes,
    })
}

impl Sealed {
    /// The names of the new files.
    pub fn names(&self) -> Vec<String> {
        let log = self.grown.is_none().then(|| self.log.id.log_name());
        let run = self.run.map(|run| run.id.run_name());
        log.into_iter().chain(run).collect()
    }

    /// Whether a run was written.
    pub fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// Bytes that were written for log and run.
    fn bytes(&self) -> u64 {
        let before = self.grown.map_or(0, |grown| grown.file_bytes);
        self.log.file_bytes - before + self.run.map_or(0, |run| run.file_bytes)
    }

    /// Removes files that could not be entered, and cuts added pages off, unless the newest manifest names them after
    /// all.
    pub fn remove(self, folder: &Folder) {
        if let Some(grown) = self.grown {
            // the manifest may be that of a newer index; pages that cannot be cut off go with the file
            let names_more = |manifest: IndexManifest| {
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

    /// Numbers the log's pages and enters log and run into the manifest. `false`: the file that grew is no longer the
    /// last one, or has changed; or the loose pages have changed, so that there would be too many of them, or the run
    /// would miss some.
    pub fn enter(&self, manifest: &mut IndexManifest) -> Result<bool> {
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
        if !self.enter_records(manifest, log.end_page()) {
            return Ok(false);
        }
        manifest.logs.pop_if(|_| self.grown.is_some());
        manifest.logs.push(log);
        manifest.next_page = log.end_page();
        Ok(true)
    }

    /// Enters the run, or counts the loose records up to page `end`. `false`: see [`Sealed::enter`].
    fn enter_records(&self, manifest: &mut IndexManifest, end: u32) -> bool {
        let loose = manifest.loose();
        let has_place = match self.run {
            None => loose.has_room(self.records, end - loose.pages.end),
            Some(_) => self.loose.are_all(&loose),
        };
        match self.run {
            _ if !has_place => {}
            None => manifest.loose_records += self.records as u32,
            Some(run) => {
                manifest.loose_records = 0;
                manifest.runs.push(RunEntry {
                    first_page: end - run.end_page,
                    end_page: end,
                    ..run
                });
            }
        }
        has_place
    }
}

/// Drops all but the last of the records with one hash, adds their pages to `dead`, and sorts `dead`.
fn drop_twins(records: &mut Vec<RunRecord>, dead: &mut Vec<u32>) {
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
}
