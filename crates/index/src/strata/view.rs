//! A view: one manifest with its files open. A lookup uses one view from beginning to end, whatever is merged
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use onefold_chunk::Fingerprint;

use super::folder::Folder;
use super::log_location::LogLocation;
use super::loose::Loose;
use super::manifest::{IndexManifest, LogEntry};
use super::open_log::OpenLog;
use super::options::RamPlan;
use super::run::{Run, hash_of};
use super::run_filters::FilterShare;
use super::run_size::RunSize;
use crate::{ContainerId, Error, Result};

/// Largest number of times that a manifest is read again because a file that it named was gone: each time, another
/// opener has committed in between.
const REREADS: usize = 100;
/// Largest number of times that one and the same file may be gone: a folder on another machine may show an old manifest
/// for a while.
const SAME_REREADS: usize = 5;
const SAME_PAUSE: Duration = Duration::from_millis(10);

/// One manifest with its files open.
#[derive(Clone, Default)]
pub struct View {
    /// The manifest whose files are open.
    pub manifest: IndexManifest,
    /// The open log files, in the order of their first pages.
    pub logs: Vec<Arc<OpenLog>>,
    /// The open runs, oldest first.
    pub runs: Vec<Arc<Run>>,
    /// The records of the loose pages.
    pub loose: Arc<Loose>,
    /// The retired containers of the manifest.
    pub retired: HashSet<ContainerId>,
}

impl View {
    /// A view of the newest manifest, which reuses the files that `old` has open. Filters of runs that `old` did not
    /// have are missing until [`View::load`]: every hash may be in them.
    pub fn newest(folder: &Folder, old: &View, plan: &RamPlan) -> Result<View> {
        let (mut missing, mut times) = (String::new(), 0);
        for _ in 0..REREADS {
            let manifest = folder.manifest()?;
            match View::open(folder, manifest, old, plan)? {
                Ok(view) => return Ok(view),
                Err(name) if name == missing && times == SAME_REREADS => break,
                Err(name) if name == missing => {
                    times += 1;
                    std::thread::sleep(SAME_PAUSE);
                }
                Err(name) => (missing, times) = (name, 0),
            }
        }
        Err(Error::Damaged {
            path: missing,
            offset: None,
            what: "missing, but named in the manifest".to_string(),
        })
    }

    /// A view of `manifest`, or the name of a file that is gone.
    pub fn open(
        folder: &Folder,
        manifest: IndexManifest,
        old: &View,
        plan: &RamPlan,
    ) -> Result<std::result::Result<View, String>> {
        let mut logs = Vec::with_capacity(manifest.logs.len());
        let old_logs: HashMap<&str, &Arc<OpenLog>> = old
            .logs
            .iter()
            .map(|log| (log.path.as_str(), log))
            .collect();
        let mut span_room = plan.span_bytes;
        for entry in &manifest.logs {
            let path = entry.id.log_name();
            let log = match old_logs.get(path.as_str()) {
                Some(log) if log.entry == *entry => Arc::clone(log),
                Some(log) => {
                    let disk = Arc::clone(&log.disk);
                    Arc::new(OpenLog::new(*entry, path, disk, span_room)?)
                }
                None => match folder.open_file(&path)? {
                    Some(disk) => Arc::new(OpenLog::new(*entry, path, disk, span_room)?),
                    None => return Ok(Err(path)),
                },
            };
            span_room = span_room.saturating_sub(log.spans.ram_bytes());
            logs.push(log);
        }
        let mut runs = Vec::with_capacity(manifest.runs.len());
        for entry in &manifest.runs {
            let path = entry.id.run_name();
            let run = match old.runs.iter().find(|run| run.path == path) {
                Some(run) => Arc::clone(run),
                None => match folder.open_file(&path)? {
                    Some(disk) => {
                        let run = Run::open(disk, entry.id, entry.footer_at, entry.file_bytes)?;
                        Arc::new(run.of_records(entry.records)?)
                    }
                    None => return Ok(Err(path)),
                },
            };
            runs.push(run);
        }
        let loose = if manifest.has_loose_of(&old.manifest) {
            Arc::clone(&old.loose)
        } else {
            Arc::new(Loose::read(manifest.loose(), &logs, plan.merge_pages / 2)?)
        };
        let retired = manifest.retired.iter().copied().collect();
        Ok(Ok(View {
            manifest,
            logs,
            runs,
            loose,
            retired,
        }))
    }

    /// A copy of this view without the filters that exceed their share of RAM.
    pub fn without_wide_filters(&self, plan: &RamPlan) -> View {
        let mut view = self.clone();
        view.for_wide(plan, |run, _| *run = Arc::new(run.without_filters()));
        view
    }

    /// Narrows the filters that exceed their share of RAM, or drops those that another holder keeps.
    pub fn narrow_filters(&mut self, plan: &RamPlan) {
        self.for_wide(plan, |run, share| {
            let bare = Arc::new(run.without_filters());
            let wide = std::mem::replace(run, bare);
            if let Some(narrow) = Arc::into_inner(wide).and_then(|run| run.narrowed(share)) {
                *run = Arc::new(narrow);
            }
        });
    }

    fn for_wide(&mut self, plan: &RamPlan, mut change: impl FnMut(&mut Arc<Run>, FilterShare)) {
        let shares = plan.allot(&self.sizes());
        for (run, share) in self.runs.iter_mut().zip(shares) {
            if run.share().is_some_and(|own| own > share) {
                change(run, share);
            }
        }
    }

    fn sizes(&self) -> Vec<RunSize> {
        self.runs.iter().map(|run| run.size()).collect()
    }

    /// Reads the filters that are missing.
    pub fn load(&mut self, plan: &RamPlan) -> Result<()> {
        let shares = plan.allot(&self.sizes());
        let missing = self.runs.iter_mut().zip(shares);
        for (run, share) in missing.filter(|(run, _)| run.share().is_none()) {
            let mut loaded = Run::clone(run);
            loaded.load_filters(share, plan.merge_pages / 2)?;
            *run = Arc::new(loaded);
        }
        Ok(())
    }

    /// A copy of this view without filters, for reading runs as a whole, which must not keep replaced filters in RAM.
    pub fn without_filters(&self) -> View {
        let bare = self.runs.iter().map(|run| Arc::new(run.without_filters()));
        View {
            runs: bare.collect(),
            ..self.clone()
        }
    }

    /// RAM of all runs with the filters in RAM, and RAM of the missing filters, in bytes.
    pub fn filter_bytes(&self, plan: &RamPlan) -> (usize, usize) {
        let sizes = self.sizes();
        let each = sizes.iter().zip(&self.runs).zip(plan.allot(&sizes));
        let missing = each.filter(|((_, run), _)| run.share().is_none());
        let missing = missing.map(|((size, _), share)| size.ram(share)).sum();
        (self.runs.iter().map(|run| run.ram_bytes()).sum(), missing)
    }

    /// RAM in bytes that the prefetch cache may take beside all filters, missing ones included.
    pub fn cache_bytes(&self, plan: &RamPlan) -> usize {
        let (held, missing) = self.filter_bytes(plan);
        plan.cache_beside(held + missing, self.log_pages())
    }

    /// Number of pages in all log files.
    pub fn log_pages(&self) -> u64 {
        let pages = self.logs.iter().map(|log| u64::from(log.entry.pages));
        pages.sum()
    }

    /// The log file that holds `page`; `None` where it was dropped, or where the page is a hole in a joined file.
    pub fn log_of(&self, page: u32) -> Option<&Arc<OpenLog>> {
        let behind = self
            .logs
            .partition_point(|log| log.entry.first_page <= page);
        self.logs[..behind]
            .last()
            .filter(|log| page < log.entry.end_page())
            .filter(|log| !log.spans.is_hole(page - log.entry.first_page))
    }

    /// Number of records in all runs and on loose pages; superseded and retired ones count.
    pub fn records(&self) -> u64 {
        self.manifest.records() + self.loose.len() as u64
    }

    /// The position of the run that speaks of `page`.
    pub fn run_of(&self, page: u32) -> Option<usize> {
        let behind = self
            .manifest
            .runs
            .partition_point(|run| run.first_page <= page);
        (behind > 0 && page < self.manifest.runs[behind - 1].end_page).then(|| behind - 1)
    }

    /// Whether a record in another run may supersede some record of `page`.
    pub fn is_dead(&self, page: u32) -> bool {
        self.run_of(page)
            .is_none_or(|run| self.is_dead_in(run, page))
    }

    fn is_dead_in(&self, run: usize, page: u32) -> bool {
        let within = page - self.manifest.runs[run].first_page;
        self.runs[run].dead_pages.binary_search(&within).is_ok()
    }

    /// The run that speaks of `page`, if no record of that run supersedes one of the page and the log file is still
    /// there.
    pub fn believed_run_of(&self, page: u32) -> Option<usize> {
        let run = self.run_of(page)?;
        (!self.is_dead_in(run, page) && self.log_of(page).is_some()).then_some(run)
    }

    /// Whether the record of `key` on `page` is the newest, as far as known without a read. `false`: it may be or not.
    pub fn is_newest(&self, page: u32, key: &Fingerprint) -> bool {
        if let Some(record) = self.loose.get(key) {
            return record.page == page;
        }
        let (newer, hash) = (self.run_of(page).map_or(0, |run| run + 1), hash_of(key));
        !self.is_dead(page) && !self.runs[newer..].iter().any(|run| run.may_contain(hash))
    }

    /// The answer of the loose pages for `key`: its place, or `Some(None)` where it was removed. `None`: no record that
    /// counts, so runs are to be asked.
    #[inline]
    pub fn loose_answer(&self, key: &Fingerprint) -> Option<Option<LogLocation>> {
        let record = self.loose.get(key)?;
        let answer = record.said().map(|container| LogLocation {
            container,
            page: record.page,
        });
        let is_gone = answer.is_some_and(|answer| self.retired.contains(&answer.container));
        (!is_gone).then_some(answer)
    }

    /// RAM of the view, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(|run| run.ram_bytes()).sum();
        let spans: usize = self.logs.iter().map(|log| log.spans.ram_bytes()).sum();
        let logs = spans + self.logs.len() * (size_of::<OpenLog>() + size_of::<LogEntry>() + 64);
        let loose = self.loose.ram_bytes();
        runs + logs + loose + (self.retired.capacity() + self.manifest.retired.capacity()) * 9
    }
}
