//! Backup: from a tree of files to a snapshot.
//!
//! ```text
//! walk (threads, in order) ─▶ planner (beside the parent snapshot) ─▶ readers: read, cut, fingerprint ─▶ finisher, in walk order:
//!                                                        store some hundred chunks at a time ─▶ recipes ─▶ leaves ─▶ root
//! ```
//!
//! What always holds: the finisher sees everything in walk order, so the snapshot does not depend on threads; bytes in flight are bounded by
//! [`Options::bytes_in_flight`] for small files and by a few segments per reader for large ones; the root is put last, when everything
//! that it refers to is durable. A backup that ends before leaves containers that the index knows: the next one finds its chunks there.

mod budget;
mod buffers;
mod cutting;
mod finish;
mod metadata;
mod plan;
mod read;
mod segment;
mod source;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
pub use onefold_chunk::context::Rules;
pub use onefold_chunk::tar::Tars;
use onefold_store::{Repository, RootId, Session, SessionKind, StreamKind};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::exclude::Excludes;
use crate::forget::GroupBy;
use crate::meta::{Owners, Stat};
use crate::snapshot::{Snapshot, Summary, Table};
use crate::snapshots::{self, Named};
use crate::tree::Tree;
use crate::walk::{self, Walk};
use crate::{Entry, Error, Events, Kind, Progress, Result, Time, path};

use budget::Budget;
use buffers::Buffers;
use cutting::Cutting;
use finish::Finisher;
pub(crate) use metadata::MetadataStream;
use plan::{ContentFrom, Job, Planned, Planner, Step};
use segment::{Cutter, Queues, Turns, Worker, large_channel};
use source::{Reader, Work};

/// Steps between planner and finisher; each holds at most a piece of a folder.
const STEPS_AHEAD: usize = 512;

/// RAM for the segments of large files that are read and cut at once, in bytes, and for those that wait for the store. Only chunkers of very
/// long chunks come near it; they have fewer threads, at least one for each task.
const SEGMENTS_BYTES: usize = 32 << 20;

/// What to back up.
#[derive(Debug)]
pub enum Input {
    /// Files and folders: absolute paths.
    Paths(Vec<Vec<u8>>),
    /// A stream that becomes one file at this path.
    Stream(OwnedFd, Vec<u8>),
}

/// Which snapshot tells what is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parent {
    /// None: every file is read.
    None,
    /// The newest of the same series.
    Newest(GroupBy),
    /// This one.
    This(RootId),
}

/// How to back up. Who, when and where are given, not asked of the machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that list and stat.
    pub walkers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Threads that cut and fingerprint segments of large files at once: the number of cores.
    pub hashers: usize,
    /// Bytes of small files between readers and store.
    pub bytes_in_flight: usize,
    /// What to leave out.
    pub excludes: Arc<Excludes>,
    /// The patterns as the user gave them, for the snapshot.
    pub exclude_words: Vec<Vec<u8>>,
    /// Stay on the sources' file systems.
    pub one_file_system: bool,
    /// Which snapshot tells what is unchanged.
    pub parent: Parent,
    /// Read every file, whatever the parent says.
    pub force_reread: bool,
    /// A new ctime alone does not make a file changed.
    pub ignore_ctime: bool,
    /// A new inode number alone does not make a file changed.
    pub ignore_inode: bool,
    /// Which files and streams are cut as a tar, at their members; `None`: none.
    pub tars: Option<Tars>,
    /// What is right for which type of files, where the repository's chunker goes by types; `None`: its own table.
    pub chunk_rules: Option<Arc<Rules>>,
    /// Make no new snapshot where nothing changed.
    pub skip_if_unchanged: bool,
    /// The snapshot's tags.
    pub tags: Vec<String>,
    /// This machine's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The user's and group's numbers.
    pub uid_gid: (u32, u32),
    /// The program and its version.
    pub program: String,
    /// What the snapshot says that the time is.
    pub time: Time,
    /// What time it is now, for durations.
    pub clock: fn() -> Time,
    /// A disk that fails, for tests.
    pub failing: walk::Failing,
}

impl Default for Options {
    /// Eight threads that wait for the disk (a cold scan of 290,000 files takes a third of the time of one), one fingerprinting thread per core.
    fn default() -> Self {
        Self {
            walkers: 8,
            readers: 8,
            hashers: std::thread::available_parallelism().map_or(1, |n| n.get()),
            bytes_in_flight: 32 << 20,
            excludes: Arc::default(),
            exclude_words: Vec::new(),
            one_file_system: false,
            parent: Parent::Newest(GroupBy::default()),
            force_reread: false,
            ignore_ctime: false,
            ignore_inode: false,
            tars: Some(Tars::Magic),
            chunk_rules: None,
            skip_if_unchanged: false,
            tags: Vec::new(),
            host: String::new(),
            user: String::new(),
            uid_gid: (0, 0),
            program: String::new(),
            time: Time::default(),
            clock: Time::default,
            failing: walk::SOUND,
        }
    }
}

/// What a backup made.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The snapshot's name; `None` where nothing changed and none was wanted, and after a dry run.
    pub id: Option<RootId>,
    /// The snapshot, without its table of leaves.
    pub snapshot: Snapshot,
}

/// Makes a snapshot of `input`. Paths that fail are told to `events` and counted in the summary; the rest is kept. A repository opened for
/// a dry run stays as it is.
///
/// Errors: the repository failed, no source exists, or `progress` was cancelled.
pub fn run(
    repository: &Repository,
    input: Input,
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
) -> Result<Outcome> {
    run_if(repository, input, options, progress, events, || Ok(()))
}

/// The same, but the snapshot is made only if `is_whole` agrees when all of the input is stored: what feeds a stream may have failed.
pub fn run_if(
    repository: &Repository,
    input: Input,
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
    is_whole: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    // A source that is missing is walked, so that it is told, but is none of the snapshot's paths: with the name corrected, the next backup is one of the
    // same paths as those before the mistake.
    let (sources, paths) = match &input {
        Input::Paths(paths) => sources(paths)?,
        Input::Stream(_, path) => (vec![path::clean(path)], vec![path::clean(path)]),
    };
    let session = repository.session(SessionKind::Backup)?;
    session.count_stored(Arc::clone(&progress.bytes_stored));
    let parent = find_parent(repository, &paths, options, events)?;
    let cutting = Cutting::begin(repository, options, events)?;
    let started = (options.clock)();
    let written = write(
        &cutting,
        repository,
        &session,
        input,
        &sources,
        parent.as_ref(),
        options,
        progress,
        events,
    );
    let (table, mut summary) = match written.and_then(|written| is_whole().map(|()| written)) {
        Ok(written) => written,
        Err(e) => {
            session.finish()?;
            return Err(e);
        }
    };
    summary.started_ns = nanos(started);
    summary.duration_ns = nanos((options.clock)()).saturating_sub(summary.started_ns);
    let unchanged = parent
        .as_ref()
        .is_some_and(|parent| parent.snapshot.table == table);
    let mut snapshot = new_snapshot(
        paths,
        parent.map(|parent| parent.id),
        summary,
        table,
        options,
    );
    let is_superfluous = unchanged && options.skip_if_unchanged;
    let id = if is_superfluous || repository.options().dry_run {
        None
    } else {
        Some(repository.put_root(&snapshot.encode())?)
    };
    cutting.keep(events);
    session.finish()?;
    snapshot.table = Table::Inline(Vec::new());
    Ok(Outcome { id, snapshot })
}

type Paths = Vec<Vec<u8>>;

/// The sources, sorted, and those of them that are not missing.
fn sources(paths: &[Vec<u8>]) -> Result<(Paths, Paths)> {
    let look = |path: &[u8]| {
        let path: &[u8] = if path.is_empty() { b"/" } else { path };
        Stat::at(rustix::fs::CWD, path, false).map(drop)
    };
    let mut clean: Vec<Vec<u8>> = paths.iter().map(|path| path::clean(path)).collect();
    clean.sort();
    clean.dedup();
    let seen: Vec<_> = clean.iter().map(|path| look(path)).collect();
    if !seen.iter().any(|seen| seen.is_ok()) {
        let what = match &clean[..] {
            [one] => format!("{} does not exist", path::show(one)),
            many => format!("none of the {} sources exists", many.len()),
        };
        return Err(Error::NoSource(what));
    }
    let is_missing = |seen| matches!(seen, Err(Errno::NOENT | Errno::NOTDIR));
    let there = clean
        .iter()
        .zip(seen)
        .filter(|(_, seen)| !is_missing(*seen));
    let there = there.map(|(path, _)| path.clone()).collect();
    Ok((clean, there))
}

fn nanos(time: Time) -> u64 {
    (time.secs.max(0) as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(time.nanos.into())
}

fn new_snapshot(
    paths: Vec<Vec<u8>>,
    parent: Option<RootId>,
    summary: Summary,
    table: Table,
    options: &Options,
) -> Snapshot {
    let mut tags = options.tags.clone();
    tags.sort();
    tags.dedup();
    Snapshot {
        time: options.time,
        host: options.host.clone(),
        user: options.user.clone(),
        uid_gid: options.uid_gid,
        paths,
        tags,
        parent: parent.map(|id| id.0),
        original: None,
        program: options.program.clone(),
        excludes: options.exclude_words.clone(),
        summary,
        table,
    }
}

/// The parent; one that cannot be read is as good as none.
fn find_parent(
    repository: &Repository,
    paths: &[Vec<u8>],
    options: &Options,
    events: &dyn Events,
) -> Result<Option<Named>> {
    match options.parent {
        Parent::None => Ok(None),
        Parent::This(id) => snapshots::load(repository, id).map(Some),
        Parent::Newest(by) => {
            let mut damaged =
                |id, e: Error| events.warning(b"", &format!("snapshot {} cannot be read: {e}", id));
            let all = snapshots::list(repository, &mut damaged)?;
            let mut tags = options.tags.clone();
            tags.sort();
            tags.dedup();
            let same = |named: &&Named| {
                let there = &named.snapshot;
                (!by.host || there.host == options.host)
                    && (!by.paths || there.paths == paths)
                    && (!by.tags || there.tags == tags)
            };
            let Some(newest) = all.iter().rfind(same) else {
                return Ok(None);
            };
            // It was read a moment ago; forgotten or lost since, all files are read.
            Ok(snapshots::load(repository, newest.id).ok())
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that one backup is made of"
)]
fn write(
    cutting: &Cutting<'_>,
    repository: &Repository,
    session: &Session,
    input: Input,
    paths: &[Vec<u8>],
    parent: Option<&Named>,
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
) -> Result<(Table, Summary)> {
    let (owners, budget) = (Owners::load(), Budget::new(options.bytes_in_flight));
    let buffers = Buffers::new(cutting.chunker()?.limits().max);
    let metadata = MetadataStream::new(
        session.writer(StreamKind::Metadata)?,
        repository.fingerprinter(),
    );
    let writers = (session.writer(StreamKind::Data)?, metadata);
    let mut finisher = Finisher::new(writers, (&budget, &buffers), &owners, (progress, events));
    let mut reader = session.reader()?;
    let parent = parent.and_then(|parent| open_parent(parent, &mut reader, events));
    let (work, jobs) = unbounded();
    let (step_sender, steps) = bounded(STEPS_AHEAD);
    let planner = Planner {
        options,
        session,
        owners: &owners,
        budget: &budget,
        buffers: &buffers,
        progress,
        events,
        work,
        steps: step_sender,
        reader,
        links: HashMap::new(),
    };
    let done = std::thread::scope(|scope| {
        start_readers(
            scope,
            repository,
            (cutting, options),
            (&buffers, progress),
            &jobs,
        )?;
        drop(jobs);
        match input {
            Input::Paths(_) => {
                let walk = walk::Options {
                    threads: options.walkers,
                    excludes: options.excludes.clone(),
                    one_file_system: options.one_file_system,
                    failing: options.failing,
                };
                let walk = Walk::start(paths, &walk)?;
                scope.spawn(move || planner.run(walk, parent.as_ref()));
            }
            Input::Stream(fd, _) => {
                // Dropping the planner afterwards says that no step follows.
                let planner = planner;
                stream_steps(
                    fd,
                    &paths[0],
                    options.time,
                    &planner.work,
                    &planner.steps,
                    &owners,
                    &buffers,
                )?;
            }
        }
        let done = finisher.run(&steps);
        budget.close();
        drop(steps);
        done
    });
    close(finisher, done, session)
}

/// Makes durable what was stored, after a failure too: the next backup finds it.
fn close(finisher: Finisher<'_>, done: Result<()>, session: &Session) -> Result<(Table, Summary)> {
    let Finisher {
        writer,
        metadata,
        mut summary,
        cut_off,
        ..
    } = finisher;
    let data = writer.finish();
    done?;
    let (data, (table, tree)) = (data?, metadata.finish(session, &cut_off)?);
    summary.data_chunks = data.new_chunks;
    summary.tree_chunks = tree.new_chunks;
    summary.data_added = data.new_bytes + tree.new_bytes;
    summary.data_added_packed = data.stored_bytes + tree.stored_bytes;
    Ok((table, summary))
}

fn open_parent(
    parent: &Named,
    reader: &mut onefold_store::ChunkReader,
    events: &dyn Events,
) -> Option<Tree> {
    Tree::open(&parent.snapshot, reader)
        .inspect_err(|e| {
            events.warning(
                b"",
                &format!("the parent snapshot cannot be read, so all files are: {e}"),
            )
        })
        .ok()
}

fn start_readers<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    repository: &Repository,
    (cutting, options): (&Cutting<'_>, &Options),
    (buffers, progress): (&'env Buffers, &'env Progress),
    jobs: &Receiver<Work>,
) -> Result<()> {
    let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
    let queues = Queues { cold, cached };
    let cores = options.hashers.max(1);
    let turns = Turns::new(cores);
    let segments_at_once = (SEGMENTS_BYTES / buffers.segment_bytes()).max(1);
    for (tasks, threads) in [
        (cold_tasks, options.readers.max(cores)),
        (cached_tasks, cores),
    ] {
        for _ in 0..threads.min(segments_at_once) {
            let worker = Worker {
                fingerprinter: repository.fingerprinter(),
                turns: turns.clone(),
                buffers,
            };
            let tasks = tasks.clone();
            scope.spawn(move || worker.run(&tasks));
        }
    }
    for _ in 0..options.readers.clamp(1, segments_at_once) {
        let cutter = Cutter {
            chunker: cutting.chunker()?,
            begins: None,
        };
        let reader = Reader {
            cutter: Arc::new(Mutex::new(cutter)),
            fingerprinter: repository.fingerprinter(),
            buffers,
            progress,
            queues: queues.clone(),
        };
        let jobs = jobs.clone();
        scope.spawn(move || reader.run(&jobs));
    }
    Ok(())
}

/// The steps of a stream: the folders above its path, and one file.
fn stream_steps(
    fd: OwnedFd,
    path: &[u8],
    time: Time,
    work: &Sender<Work>,
    steps: &Sender<Step>,
    owners: &Owners,
    buffers: &Buffers,
) -> Result<()> {
    if path.is_empty() {
        return Err(Error::Usage("a stream needs a file name".into()));
    }
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let stat = |kind, mode| Stat {
        kind,
        mode,
        uid,
        gid,
        size: 0,
        blocks: 0,
        mtime: time,
        ctime: time,
        inode: 0,
        device: 0,
        links: 1,
        rdev: 0,
    };
    let send = |folder: &[u8], entry: Entry, content, job| {
        let planned = Planned {
            entry,
            change: crate::Change::New,
            content,
            link: None,
        };
        // The finisher has not begun: nobody has dropped the other end.
        let _ = steps.send(Step::Entries {
            folder: folder.into(),
            entries: vec![planned],
            job,
        });
    };
    for (at, _) in path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/') {
        let (folder, name) = path::split(&path[..at]);
        send(
            folder,
            stat(Kind::Dir, 0o755).entry(name.to_vec(), owners),
            ContentFrom::Entry,
            Job::None,
        );
    }
    let (folder, name) = path::split(path);
    let (parts, receiver) = large_channel(buffers);
    let _ = work.send(Work::Stream {
        fd,
        name: name.to_vec(),
        stat: stat(Kind::File, 0o644),
        parts,
    });
    send(
        folder,
        stat(Kind::File, 0o644).entry(name.to_vec(), owners),
        ContentFrom::Job,
        Job::Large(receiver),
    );
    Ok(())
}
