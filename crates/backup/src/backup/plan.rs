//! The planner: goes through the walk in order, beside the parent snapshot, and decides for each entry whether it is
//! unchanged or must be read.
//!
//! The planner runs ahead of the store as far as the budget of bytes in flight allows, so that reader threads always
//! have work.

mod batch;
mod describe;
mod special;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use onefold_io::Gate;
use onefold_store::{ChunkReader, Session};

use batch::StepBatch;
pub use batch::{Entries, OpenBytes};

use super::Options;
use super::ahead::LargeFileQueue;
use super::buffers::Buffers;
use super::hint::Hint;
use super::moved::{self, ChunkLookup};
use super::names::{self, LinkedNames, SizeAndTime};
use super::parts::{PartReceiver, ahead_bytes, large_channel};
use super::segment::slot;
use super::sizeless::Sizeless;
use super::unchanged::{Before, is_settled, looks_unchanged};
use super::work::{LARGE_BYTES, SmallDone, Work};
use crate::linked::Linked;
use crate::meta::{Owners, Stat, XATTRS_BYTES_MAX};
use crate::tree::{Tree, TreeCursor};
use crate::walk::opened::OpenedFile;
use crate::walk::{FolderPart, Role, Walk, WalkedEntry};
use crate::{Change, Entry, Error, Events, Flags, Kind, Progress, Result, path};

/// Bytes of names, targets, attributes and contents that go to the store as one step.
const STEP_BYTES: usize = 128 << 10;
/// Largest number of bytes that a step takes of the budget beside what its job reads: an entry with as many attributes
/// as are kept, and the parent's entry of it.
pub const STEP_BYTES_MAX: usize = STEP_BYTES + 2 * XATTRS_BYTES_MAX;

/// An entry on its way to the store.
pub struct Planned {
    pub entry: Entry,
    pub change: Change,
    pub content: ContentFrom,
    /// The parent's entry, where the file is read all the same: if it turns out the same, nothing changed. Also set for
    /// a large file that has changed.
    pub before: Option<Before>,
    /// The names of the file, where other names will ask for its content, or this one asks for it.
    pub link: Option<LinkedNames>,
}

impl Planned {
    fn heap_bytes(&self) -> usize {
        let before = self.before.as_ref();
        let before = before.map_or(0, |before| before.entry.heap_bytes());
        self.entry.heap_bytes() + before
    }
}

/// Source of an entry's content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ContentFrom {
    /// The content is in the entry, or there is none.
    Entry,
    /// The content in the entry and its recipe chunks leads to places that chunks have left: both are written anew.
    Moved,
    /// The content comes from the next file of the step's job.
    Job,
    /// The content is that of the file's first name, which came before: [`Planned::link`] leads to it.
    FirstName,
}

/// A message of the planner to the store; messages come in order.
pub enum PlanStep {
    /// Entries; those with [`ContentFrom::Job`] are the files of `job`, in order.
    Entries {
        entries: Entries,
        job: Job,
        /// Bytes taken from the budget of small files for this step.
        budget_bytes: usize,
    },
    /// A path that failed, and why.
    Failed(Vec<u8>, Error),
    /// A folder whose entry was sent before, and that turned out not to be listed to its end.
    CutOff(Arc<[u8]>),
    /// An error after which the backup cannot go on.
    Fatal(Error),
}

/// Reading that is under way for a step.
pub enum Job {
    None,
    Small {
        done: Receiver<SmallDone>,
    },
    Large {
        parts: PartReceiver,
        budget_bytes: usize,
    },
}

/// State of the planner, and what it shares with the other stages.
pub struct Planner<'a> {
    pub options: &'a Options,
    pub session: &'a Session,
    pub owners: &'a Owners,
    /// Budget of bytes of small files, and of the entries' own bytes.
    pub budget: &'a Gate,
    /// Budget of bytes of large files, taken in the order in which the store wants them.
    pub large_budget: &'a Gate,
    pub ahead: &'a Arc<LargeFileQueue>,
    pub buffers: &'a Buffers,
    pub open_bytes: OpenBytes,
    pub progress: &'a Progress,
    pub events: &'a dyn Events,
    pub work: Sender<Work>,
    pub steps: Sender<PlanStep>,
    pub reader: ChunkReader,
    /// When the parent began to read, in nanoseconds since 1970; 0 where there is no parent.
    pub parent_started_ns: u64,
    /// Files with several names of which some are still to come.
    pub links: Linked<SizeAndTime>,
    /// File systems whose files do not tell their sizes.
    pub sizeless: Sizeless,
}

/// The place where an entry is looked at.
#[derive(Clone, Copy)]
struct Whereabouts<'a> {
    /// Folder that the entry lies in.
    dir: &'a OwnedFd,
    /// Name of the file in its folder, where that differs from the name in the entry.
    own_name: Option<&'a [u8]>,
    /// Whether failures to read something of the entry are reported.
    is_entered: bool,
}

/// A path and why it failed, with the entry if it is still there.
struct FailedEntry {
    path: Vec<u8>,
    error: Error,
    entry: Option<Entry>,
}

/// Result of comparing an entry with the parent's.
struct Compared {
    /// Source of the entry's content.
    content: ContentFrom,
    /// The parent's entry, where the file is read and this helps.
    before: Option<Before>,
    /// Whether the parent's entry is taken as it is.
    is_unchanged: bool,
}

/// The store takes no more steps: it has failed, and reports why itself.
struct StoreFailed;

impl Planner<'_> {
    /// Plans the whole walk.
    pub fn run(mut self, walk: Walk, parent: Option<&Tree>) {
        if let Err(e) = self.plan(walk, parent) {
            // Where the channel is closed, the store has failed and reports why itself.
            let _ = self.steps.send(PlanStep::Fatal(e));
        }
    }

    fn plan(&mut self, mut walk: Walk, parent: Option<&Tree>) -> Result<()> {
        let mut cursor = parent.map(Tree::cursor);
        let mut batch = StepBatch::default();
        while let Some(piece) = walk.next_unless(&|| self.progress.is_over()) {
            self.progress.check()?;
            let mut taken = self.piece(piece, &mut cursor, &mut batch)?;
            if taken.is_ok() && !walk.is_ready() {
                // Nothing more is ready: send the batch, so that the store need not wait for the walk.
                taken = self.submit(&mut batch);
            }
            if taken.is_err() {
                return Ok(());
            }
        }
        self.progress.check()?;
        if self.progress.is_over() {
            return Ok(());
        }
        self.progress
            .totals_known
            .store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn piece(
        &mut self,
        piece: FolderPart,
        cursor: &mut Option<TreeCursor<'_>>,
        batch: &mut StepBatch,
    ) -> Result<Result<(), StoreFailed>> {
        for (file, why) in &piece.warnings {
            self.events.warning(file, &why.to_string());
        }
        for (path, error) in piece.errors {
            if self.steps.send(PlanStep::Failed(path, error)).is_err() {
                return Ok(Err(StoreFailed));
            }
        }
        if piece.is_cut_off
            && self
                .steps
                .send(PlanStep::CutOff(piece.folder.clone()))
                .is_err()
        {
            return Ok(Err(StoreFailed));
        }
        let Some(dir) = piece.dir else {
            return Ok(Ok(()));
        };
        for found in piece.found {
            let before = self.before(cursor, &piece.folder, &found.name);
            let WalkedEntry {
                name,
                stat,
                flags,
                role,
                own_name,
                opened,
            } = found;
            if role == Role::Stream {
                let change = match before {
                    Some(before) if before.kind == Kind::File => Change::Modified,
                    _ => Change::New,
                };
                let sent = self.special(&dir, &piece.folder, (name, stat), change, batch);
                if sent.is_err() {
                    return Ok(Err(StoreFailed));
                }
                continue;
            }
            let whereabouts = Whereabouts {
                dir: &dir,
                own_name: own_name.as_deref(),
                is_entered: role != Role::NotEntered,
            };
            let planned = match self.entry(whereabouts, &piece.folder, (name, stat, flags), before)
            {
                Ok(planned) => planned,
                Err(failed) => {
                    let FailedEntry { path, error, entry } = *failed;
                    // The file was deleted since it was listed: leave it out as if it had never been there.
                    let Some(entry) = entry else { continue };
                    if self.steps.send(PlanStep::Failed(path, error)).is_err() {
                        return Ok(Err(StoreFailed));
                    }
                    Planned {
                        entry,
                        change: Change::Modified,
                        content: ContentFrom::Entry,
                        before: None,
                        link: None,
                    }
                }
            };
            if self
                .add(&dir, &piece.folder, (stat, opened), planned, batch)
                .is_err()
            {
                return Ok(Err(StoreFailed));
            }
        }
        Ok(Ok(()))
    }

    /// Returns the parent's entry. A parent that cannot be read counts as not there: everything is read.
    fn before(
        &mut self,
        cursor: &mut Option<TreeCursor<'_>>,
        folder: &[u8],
        name: &[u8],
    ) -> Option<Entry> {
        match cursor.as_mut()?.advance_to(folder, name, &mut self.reader) {
            Ok(entry) => entry,
            Err(e) => {
                let what = format!(
                    "the parent snapshot cannot be read on from here, so files are read anew: {e}"
                );
                self.events.warning(&path::join(folder, name), &what);
                *cursor = None;
                None
            }
        }
    }

    fn add(
        &self,
        dir: &Arc<OwnedFd>,
        folder: &Arc<[u8]>,
        (stat, opened): (Stat, Option<OpenedFile>),
        planned: Planned,
        batch: &mut StepBatch,
    ) -> Result<(), StoreFailed> {
        if stat.kind == Kind::File && !planned.entry.is_unreadable() {
            Progress::add(&self.progress.files_total, 1);
            Progress::add(&self.progress.bytes_total, stat.size);
        }
        if planned.content != ContentFrom::Job {
            batch.push(folder, planned);
            return if batch.is_full() {
                self.submit(batch)
            } else {
                Ok(())
            };
        }
        if stat.size >= LARGE_BYTES || self.may_hide_its_size(dir, &planned.entry.name, stat) {
            self.submit(batch)?;
            let budget_bytes = ahead_bytes(stat.size, self.buffers);
            if !self.large_budget.take(budget_bytes) {
                return Err(StoreFailed);
            }
            let (parts, receiver) = large_channel(self.ahead);
            let name = planned.entry.name.clone();
            let before = planned.before.as_ref();
            let hint = before.map_or(Hint::Nothing, |before| before.hint(&planned.entry));
            let step = PlanStep::Entries {
                entries: Entries::one(folder, planned),
                job: Job::Large {
                    parts: receiver,
                    budget_bytes,
                },
                budget_bytes: 0,
            };
            self.work
                .send(Work::Large {
                    dir: dir.clone(),
                    name,
                    hint,
                    parts,
                })
                .map_err(|_| StoreFailed)?;
            return self.steps.send(step).map_err(|_| StoreFailed);
        }
        if !batch.has_room_for(stat.size, dir, self.open_bytes.dirs_max()) {
            self.submit(batch)?;
        }
        batch.want(dir, (opened, stat), &planned);
        batch.push(folder, planned);
        Ok(())
    }

    /// Whether the file claims to be empty on a file system where such files may have content of any length: those of
    /// the kernel (/proc) and those in user space.
    fn may_hide_its_size(&self, dir: &OwnedFd, name: &[u8], stat: Stat) -> bool {
        stat.size == 0 && self.sizeless.may_hide(dir, name, stat.device)
    }

    fn submit(&self, batch: &mut StepBatch) -> Result<(), StoreFailed> {
        let batch = std::mem::take(batch);
        if batch.is_empty() {
            return Ok(());
        }
        let mut budget_bytes = batch.entry_bytes().min(STEP_BYTES_MAX);
        let buffer_bytes = batch.file_bytes() as usize;
        if !batch.wanted().is_empty() {
            let open_bytes = self.open_bytes.of_job(batch.wanted());
            budget_bytes += self.buffers.size_for(buffer_bytes).max(open_bytes);
        }
        if !self.budget.take(budget_bytes) {
            return Err(StoreFailed);
        }
        let (entries, wanted) = batch.into_parts();
        let job = if wanted.is_empty() {
            Job::None
        } else {
            let (sender, done) = slot();
            self.work
                .send(Work::Small {
                    wanted,
                    buffer_bytes,
                    done: sender,
                })
                .map_err(|_| StoreFailed)?;
            Job::Small { done }
        };
        self.steps
            .send(PlanStep::Entries {
                entries,
                job,
                budget_bytes,
            })
            .map_err(|_| StoreFailed)
    }

    fn entry(
        &mut self,
        whereabouts: Whereabouts<'_>,
        folder: &[u8],
        (name, stat, flags): (Vec<u8>, Stat, Flags),
        before: Option<Entry>,
    ) -> Result<Planned, Box<FailedEntry>> {
        let mut entry = stat.entry(name, self.owners);
        entry.flags = flags;
        entry.atime = self.options.with_atime.then_some(stat.atime);
        if entry.is_unreadable() {
            return Ok(Planned {
                entry,
                change: Change::New,
                content: ContentFrom::Entry,
                before: None,
                link: None,
            });
        }
        let before = before.filter(|before| before.kind == entry.kind);
        let change = match before {
            Some(_) => Change::Modified,
            None => Change::New,
        };
        let compared = self.compare(&mut entry, before);
        if compared.is_unchanged {
            return Ok(Planned {
                entry,
                change: Change::Unchanged,
                content: compared.content,
                before: None,
                link: None,
            });
        }
        let (mut content, mut link) = (compared.content, None);
        if content == ContentFrom::Job {
            link = self.link(&entry, &mut content);
        } else {
            entry = self.describe(whereabouts, folder, entry)?;
        }
        Ok(Planned {
            entry,
            change,
            content,
            before: compared.before,
            link,
        })
    }

    /// Compares an entry with the parent's of the same kind, and takes the parent's content where it is the same.
    fn compare(&mut self, entry: &mut Entry, before: Option<Entry>) -> Compared {
        let mut compared = Compared {
            content: match entry.kind {
                Kind::File => ContentFrom::Job,
                _ => ContentFrom::Entry,
            },
            before: None,
            is_unchanged: false,
        };
        let Some(mut before) = before else {
            return compared;
        };
        if !looks_unchanged(self.options, entry, &before) {
            let is_large = entry.size.min(before.size) >= LARGE_BYTES;
            compared.before = is_large.then(|| Before::changed(before));
            return compared;
        }
        if self.options.force_reread || !is_settled(self.options, &before, self.parent_started_ns) {
            compared.before = Some(Before::doubtful(before));
            return compared;
        }
        compared.content = match moved::look(self.session, &mut self.reader, &mut before.content) {
            // A chunk is gone: the file is read again, and what is missing is stored.
            ChunkLookup::Missing => {
                compared.before = Some(Before::trusted(before));
                return compared;
            }
            ChunkLookup::Moved => ContentFrom::Moved,
            _ => ContentFrom::Entry,
        };
        entry.content = before.content;
        compared.is_unchanged = entry.ctime == before.ctime;
        if compared.is_unchanged {
            (entry.xattrs, entry.target) = (before.xattrs, before.target);
        }
        compared
    }

    /// Returns the names of a file with several names, if its content is remembered for them.
    fn link(&mut self, entry: &Entry, content: &mut ContentFrom) -> Option<LinkedNames> {
        let (key, looks) = ((entry.device, entry.inode), SizeAndTime::from(entry));
        let names = names::meet(&mut self.links, key, entry.links, looks)?;
        if names.to_come == 0 {
            *content = ContentFrom::FirstName;
        }
        Some(names)
    }
}
