//! Carries out a window: each container is read once, its chunks go to the files that want them, and complete files get
//! their metadata.

mod file;
mod folder;
mod folding;
mod link;
mod made;
mod make;
mod special;
mod unfinished;

use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_chunk::Fingerprint;
use onefold_store::{ChunkReader, ContainerId, Error as StoreError, Session};
use parking_lot::Mutex;

use self::folding::{ListedFolders, TAKEN};
use self::link::FirstFolder;
pub use self::unfinished::Begun;
use super::apply::{Applier, Meta};
use super::batch::{ChunkBatch, FilePart, Spares};
use super::lacking::{Kinds, LackingTally, MetadataFailure, MetadataOutcome};
use super::leading::Leading;
use super::links::FailedFirsts;
use super::open_folders::OpenFolders;
use super::output::LargeFiles;
use super::owners::ShownOwners;
use super::samples::{Class, Samples};
use super::target::TargetFolder;
use super::times::TimeSteps;
use super::window::{File, FileState, Use, Window};
use super::{Options, RestoreSummary, UNREAD_ATTRIBUTES};
use crate::meta::Stat;
use crate::open_files;
use crate::{Error, Events, Kind, Progress, Result};

/// Largest number of batches between readers and writers.
const BATCHES_AHEAD: usize = 2;

/// State that all windows of a restore share.
pub struct Writer<'a> {
    pub target: &'a TargetFolder,
    pub session: &'a Session,
    pub options: &'a Options,
    pub times: TimeSteps,
    pub shown_owners: ShownOwners,
    pub failed_firsts: FailedFirsts,
    /// Files that were there before and were read back, by device and inode.
    pub read_back: Mutex<HashSet<(u64, u64)>>,
    /// Entries whose metadata was read back without a verification.
    pub samples: Samples,
    pub leading: &'a Leading<'a>,
    pub applier: Applier<'a>,
    pub progress: &'a Progress,
    pub events: &'a dyn Events,
    pub tally: PathTally,
    /// Whether a warning has said that the repository lies in the target.
    pub tells_kept: AtomicBool,
}

/// Counters of paths, which threads share.
#[derive(Default)]
pub struct PathTally {
    pub skipped: AtomicU64,
    pub skipped_bytes: AtomicU64,
    pub skipped_others: AtomicU64,
    pub skipped_dirs: AtomicU64,
    pub errors: AtomicU64,
    pub failed_files: AtomicU64,
    pub failed_bytes: AtomicU64,
    pub failed_dirs: AtomicU64,
    pub failed_others: AtomicU64,
    /// Paths of which the repository has no good copy.
    pub lost: AtomicU64,
    /// Paths that are there, without some of their metadata.
    pub lacking: AtomicU64,
    /// Paths that lack metadata, by kind.
    pub lacking_what: LackingTally,
    /// Paths that are there, without attributes that the snapshot does not know.
    pub unread_attributes: AtomicU64,
    /// Whether the target was full at least once.
    pub is_full: AtomicBool,
}

impl PathTally {
    /// Counts a failed file of `size` bytes.
    pub fn failed_file(&self, size: u64) {
        self.failed_files.fetch_add(1, Relaxed);
        self.failed_bytes.fetch_add(size, Relaxed);
    }

    pub fn add_to(&self, summary: &mut RestoreSummary) {
        summary.skipped += self.skipped.load(Relaxed);
        summary.skipped_bytes += self.skipped_bytes.load(Relaxed);
        summary.skipped_others += self.skipped_others.load(Relaxed);
        summary.skipped_dirs += self.skipped_dirs.load(Relaxed);
        summary.errors += self.errors.load(Relaxed);
        summary.lost += self.lost.load(Relaxed);
        summary.lacking += self.lacking.load(Relaxed);
        summary.lacking_what = self.lacking_what.get();
        summary.unread_attributes += self.unread_attributes.load(Relaxed);
        summary.failed += self.failed_files.load(Relaxed);
        summary.failed_bytes += self.failed_bytes.load(Relaxed);
        summary.failed_dirs += self.failed_dirs.load(Relaxed);
        summary.failed_others += self.failed_others.load(Relaxed);
        summary.is_full |= self.is_full.load(Relaxed);
    }
}

/// One window that is being carried out.
struct WindowRun<'a> {
    all: &'a Writer<'a>,
    window: &'a Window,
    folders: Mutex<OpenFolders>,
    /// Modes of folders before their owner was let in, by number.
    shut: Mutex<BTreeMap<u32, u16>>,
    large: LargeFiles,
    spares: Spares,
    listed: Mutex<ListedFolders>,
    /// Folders of the window that are known to have exactly the snapshot's names.
    exact: Mutex<HashSet<u32>>,
    /// Folder of the first names that were linked last.
    firsts: Mutex<Option<FirstFolder>>,
    /// Number of the folder that progress showed last.
    shown: AtomicU32,
}

impl<'a> Writer<'a> {
    /// Makes a writer that restores chunks of `session` into `target`.
    pub fn new(
        target: &'a TargetFolder,
        session: &'a Session,
        options: &'a Options,
        leading: &'a Leading,
        applier: Applier<'a>,
        (progress, events): (&'a Progress, &'a dyn Events),
    ) -> Self {
        Self {
            target,
            session,
            options,
            times: TimeSteps::default(),
            shown_owners: ShownOwners::default(),
            failed_firsts: FailedFirsts::default(),
            read_back: Mutex::default(),
            samples: Samples::default(),
            leading,
            applier,
            progress,
            events,
            tally: PathTally::default(),
            tells_kept: AtomicBool::new(false),
        }
    }

    /// Restores everything of the window, except the metadata of folders and the end of a file that continue in the
    /// next.
    pub fn carry_out(&self, window: &mut Window) -> Result<()> {
        let containers = window.by_container();
        let window = &*window;
        let run = WindowRun {
            all: self,
            window,
            folders: Mutex::new(OpenFolders::new(open_files::folders_max())),
            shut: Mutex::default(),
            large: LargeFiles::default(),
            spares: Spares::default(),
            listed: Mutex::default(),
            exact: Mutex::default(),
            firsts: Mutex::default(),
            shown: AtomicU32::new(u32::MAX),
        };
        let (batches, queue) = bounded(BATCHES_AHEAD);
        let next = AtomicUsize::new(0);
        let read = |batches: Sender<ChunkBatch>| -> Result<()> {
            let mut reader = self.session.data_reader()?;
            while let Some((id, uses)) = containers.get(next.fetch_add(1, Relaxed)) {
                self.progress.check()?;
                run.read_container(*id, &window.uses[uses.clone()], &mut reader, &batches)?;
            }
            Ok(())
        };
        let (read, run) = (&read, &run);
        // This is computed before the first chunk arrives: afterwards a complete file looks the same.
        let empty = run.files_without_chunks();
        let result: Result<()> = std::thread::scope(|scope| {
            (0..self.options.writers.max(1)).for_each(|_| drop(scope.spawn(|| run.write(&queue))));
            let start = |batches: Sender<ChunkBatch>| scope.spawn(move || read(batches));
            let readers: Vec<_> = (0..self.options.readers.max(1))
                .map(|_| start(batches.clone()))
                .collect();
            run.hand_out_empty(empty, &batches);
            drop(batches);
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().expect("a reader's own mistakes are ours"))
        });
        if result.is_err() {
            let unfinished = window.files.iter().filter(|file| file.to_come() > 0);
            for file in unfinished {
                let made = file.state.lock().made();
                made.inspect(|made| run.give_up(file, *made));
            }
            run.shut_all_again();
        }
        result?;
        self.remember_failed(window);
        window
            .specials
            .iter()
            .for_each(|special| run.special(special));
        let linked = window.links.iter().try_for_each(|link| run.link(link));
        if linked.is_err() {
            run.shut_all_again();
        }
        linked?;
        run.finish_folders();
        Ok(())
    }

    /// Counts a thing of `size` bytes that stayed as it was.
    pub(super) fn stayed(&self, kind: Kind, size: u64) {
        let (tally, progress) = (&self.tally, self.progress);
        if kind == Kind::File {
            tally.skipped.fetch_add(1, Relaxed);
            tally.skipped_bytes.fetch_add(size, Relaxed);
            Progress::add(&progress.files_skipped, 1);
            Progress::add(&progress.bytes_skipped, size);
        } else {
            tally.skipped_others.fetch_add(1, Relaxed);
        }
    }

    /// Remembers the window's files that failed, or did not replace what another program has put there, so that no
    /// further name is linked to things in their places.
    pub(super) fn remember_failed(&self, window: &Window) {
        let failed = |file: &&File| {
            matches!(
                *file.state.lock(),
                FileState::Failed(_) | FileState::Skipped
            )
        };
        let with_names = window.files.iter().filter(|file| file.has_further_names);
        for file in with_names.filter(failed) {
            self.failed_firsts.add(&window.path_of(file));
        }
    }

    /// Sets the target's metadata, once everything is in it, and reads it back.
    pub fn describe_target(&self, meta: &Meta) {
        let (root, outcome) = (self.target.root(), MetadataOutcome::default());
        let missed = self.applier.to_open(root.as_fd(), meta);
        self.tell_missed(meta, missed, &outcome, Vec::new);
        if self.options.verify {
            self.verify_metadata((root, b"."), Kind::Dir, meta, &outcome, Vec::new);
        } else if let Ok(there) = Stat::of(root) {
            let differs = || self.sample_differs((root, b"."), Kind::Dir, meta, &outcome, Vec::new);
            let class = Class::of(there.device, Kind::Dir, meta);
            self.samples.take(class, differs);
        }
    }

    /// Reports the metadata that a thing lacks after it was set. An error of no room is no sign of a full target here:
    /// attributes have a room of their own.
    fn tell_missed(
        &self,
        meta: &Meta,
        missed: Vec<MetadataFailure>,
        outcome: &MetadataOutcome,
        path: impl FnOnce() -> Vec<u8>,
    ) {
        let kinds = missed.iter().map(|missed| missed.what).collect();
        outcome.set(kinds);
        let lacks_unread = self.options.xattrs.misses(meta.knows_xattrs);
        if missed.is_empty() && !lacks_unread {
            return;
        }
        let path = path();
        if lacks_unread {
            self.tally.unread_attributes.fetch_add(1, Relaxed);
            self.events.warning(&path, UNREAD_ATTRIBUTES);
        }
        if missed.is_empty() {
            return;
        }
        self.lacks(kinds, true);
        for MetadataFailure { what, op, why } in missed {
            let error = self.target.error(op, &path, why);
            self.events.lacking(&path, what, &error);
        }
    }

    /// Counts a path that lacks these kinds of metadata; `is_first`: the path lacked none so far.
    pub(super) fn lacks(&self, kinds: Kinds, is_first: bool) {
        self.tally.lacking_what.add(kinds);
        if is_first {
            self.tally.errors.fetch_add(1, Relaxed);
            self.tally.lacking.fetch_add(1, Relaxed);
            Progress::add(&self.progress.errors, 1);
        }
    }

    pub(super) fn failed(&self, path: &[u8], error: &Error) {
        self.tally.lost.fetch_add(error.is_loss().into(), Relaxed);
        self.tally.is_full.fetch_or(error.is_full(), Relaxed);
        self.tally.errors.fetch_add(1, Relaxed);
        Progress::add(&self.progress.errors, 1);
        self.events.error(path, error);
    }
}

impl WindowRun<'_> {
    /// Reads one container and hands out its chunks. Chunks that the container does not give are looked for elsewhere;
    /// a chunk that is found nowhere is reported for each file.
    fn read_container(
        &self,
        id: ContainerId,
        uses: &[Use],
        reader: &mut ChunkReader,
        batches: &Sender<ChunkBatch>,
    ) -> Result<()> {
        let mut groups: Vec<&[Use]> = uses
            .chunk_by(|a, b| a.fingerprint == b.fingerprint)
            .collect();
        let wanted: Vec<Fingerprint> = groups.iter().map(|group| group[0].fingerprint).collect();
        let mut seen = vec![false; wanted.len()];
        let mut batch = ChunkBatch::new(&self.spares);
        let mut hand_out = |fingerprint: &Fingerprint, bytes: &[u8]| {
            if let Ok(at) = wanted.binary_search(fingerprint)
                && !std::mem::replace(&mut seen[at], true)
            {
                self.hand_out(bytes, groups[at], &mut batch, batches);
            }
            Ok(())
        };
        // An error is no end: the container may have given some chunks, and the others are asked for one by one.
        let left = reader.read_container(id, &wanted, &mut hand_out);
        if let Ok(moved) = left
            && !moved.is_empty()
        {
            // The reason why a chunk does not come is reported when it is asked for by itself.
            let _ = reader.read_moved(id, &moved, &mut hand_out);
        }
        groups.retain({
            let mut seen = seen.iter();
            move |_| !seen.next().expect("one a group")
        });
        for group in groups {
            match reader.read(&group[0].slice(id).chunk) {
                Ok(bytes) => self.hand_out(&bytes, group, &mut batch, batches),
                Err(e) => self.lost(group, Error::Store(e)),
            }
        }
        batch.send(batches);
        Ok(())
    }

    fn hand_out(
        &self,
        bytes: &[u8],
        group: &[Use],
        batch: &mut ChunkBatch,
        batches: &Sender<ChunkBatch>,
    ) {
        if batch.is_full_for(bytes.len()) {
            batch.send(batches);
        }
        let mut start = batch.push(bytes, group[0].offset);
        for one in group {
            if one.chunk_len as usize != bytes.len() {
                let why = StoreError::other_length(&one.fingerprint, one.chunk_len, bytes.len());
                self.lost(&[*one], Error::Store(why));
                continue;
            }
            if batch.has_all_places() {
                batch.send(batches);
                start = batch.push(bytes, one.offset);
            }
            batch.places.push(FilePart {
                file: one.file,
                offset: one.offset,
                start: start + one.skip as usize,
                len: one.len as usize,
            });
        }
    }

    fn files_without_chunks(&self) -> Vec<u32> {
        let files = self.window.files.iter().enumerate();
        files
            .filter(|(_, file)| file.to_come() == 0)
            .map(|(number, _)| number as u32)
            .collect()
    }

    fn hand_out_empty(&self, empty: Vec<u32>, batches: &Sender<ChunkBatch>) {
        let mut batch = ChunkBatch::new(&self.spares);
        for file in empty {
            batch.places.push(FilePart {
                file,
                offset: 0,
                start: 0,
                len: 0,
            });
            if batch.has_all_places() {
                batch.send(batches);
            }
        }
        batch.send(batches);
    }

    /// Runs a writer thread: writes batches until there are no more.
    fn write(&self, queue: &Receiver<ChunkBatch>) {
        for mut batch in queue {
            batch
                .places
                .sort_unstable_by_key(|place| (place.file, place.offset));
            for places in batch.places.chunk_by(|a, b| a.file == b.file) {
                self.write_file(places[0].file, places, batch.bytes());
            }
        }
    }

    /// Reads the metadata of an entry back that was just set, where the entry is the first of its class, or its device
    /// is known to keep something else. A verification reads all back by itself.
    fn sample(
        &self,
        class: Class,
        (folder, name): (u32, &[u8]),
        meta: &Meta,
        outcome: &MetadataOutcome,
    ) {
        if self.all.options.verify {
            return;
        }
        let differs = || {
            let Ok(dir) = self.with_room(|| self.folder(folder)) else {
                return false;
            };
            let path = || self.window.path_in(folder, name);
            let all = self.all;
            all.sample_differs((&dir, name), class.kind, meta, outcome, path)
        };
        self.all.samples.take(class, differs);
    }

    fn path(&self, file: &File) -> Vec<u8> {
        self.window.path_of(file)
    }

    fn failed(&self, path: &[u8], error: &Error) {
        self.all.failed(path, error);
    }

    fn io(&self, op: &'static str, path: &[u8], source: impl Into<std::io::Error>) -> Error {
        let source = source.into();
        let is_taken = source.raw_os_error() == Some(TAKEN.raw_os_error());
        let source = if is_taken {
            std::io::Error::other(self.taken(path))
        } else {
            source
        };
        self.all.target.error(op, path, source)
    }
}
