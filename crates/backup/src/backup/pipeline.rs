//! Puts the stages of a backup together: threads, channels and budgets.

use std::sync::Arc;
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use onefold_io::Gate;
use onefold_store::digest::Digester;
use onefold_store::{ChunkReader, Error as StoreError, Repository, Session, StreamKind};
use parking_lot::Mutex;

use super::ahead::LargeFileQueue;
use super::buffers::{Buffers, LONG_SEGMENT_BYTES, SEGMENT_BYTES};
use super::cutting::Cutting;
use super::finish::Finisher;
use super::long_chunks::LongChunks;
use super::metadata::MetadataStream;
use super::outlook::Outlook;
use super::parts::{BYTES_AHEAD, BYTES_PLANNED};
use super::plan::{OpenBytes, PlanStep, Planner};
use super::retrace::Traces;
use super::segment::{FileCutter, Queues, SegmentTask, Worker};
use super::sizeless::Sizeless;
use super::source::Reader;
use super::sources::Sources;
use super::stream::{self, StreamInput};
use super::work::Work;
use super::{Earlier, Options};
use crate::linked::Linked;
use crate::meta::Owners;
use crate::open_files;
use crate::snapshot::{LeafTable, Summary};
use crate::snapshots::Named;
use crate::tree::Tree;
use crate::walk::{self, Walk};
use crate::{Error, Events, Progress, Result};

/// Largest number of steps between planner and finisher; the bytes of each are counted in the budget.
const STEPS_AHEAD: usize = 512;

/// RAM for segments of large files that are read and cut at once, in bytes, and as much again for those that wait for
/// the store. Only chunkers of very long chunks come near it; they have fewer threads, at least one for each task.
const SEGMENTS_BYTES: usize = 32 << 20;

/// Long segments that are read while others are computed on: enough to keep a disk busy.
const READS_AT_ONCE: usize = 3;

/// Everything that the stages of a backup have in common.
pub struct Pipeline<'a> {
    pub cutting: &'a Cutting<'a>,
    pub repository: &'a Repository,
    pub session: &'a Session,
    pub options: &'a Options,
    pub progress: &'a Progress,
    pub events: &'a dyn Events,
}

/// State that the stages share: budgets of bytes in flight, buffers, and names of owners.
struct Between<'a> {
    owners: Owners,
    /// Budget of bytes of small files.
    budget: Gate,
    /// Budget of bytes of large files, as they are counted before they are read.
    large_budget: Gate,
    ahead: Arc<LargeFileQueue>,
    buffers: Buffers,
    outlook: Arc<Outlook>,
    /// Turns of threads to compute.
    turns: Arc<Gate>,
    digester: Option<Arc<Digester>>,
    traces: Traces<'a>,
}

/// Trees of earlier snapshots.
struct Trees {
    parent: Option<Arc<Tree>>,
    similar: Option<Arc<Tree>>,
}

/// Closes the budgets and ends waits for input when it is dropped.
struct Closing<'a>(&'a Between<'a>, &'a Progress);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.budget.close();
        self.0.large_budget.close();
        self.1.set_closed(true);
    }
}

impl<'a> Pipeline<'a> {
    /// Stores the input; returns the table of its leaves and the counts. `sources` are the paths to walk, or the path
    /// of the stream.
    pub fn write(
        &self,
        stream: Option<StreamInput>,
        sources: &Sources,
        earlier: &Earlier,
    ) -> Result<(LeafTable, Summary)> {
        let mut reader = self.session.reader()?;
        let trees = self.open_trees(earlier, &mut reader);
        let outlook = Arc::new(Outlook::default());
        let digester = self.repository.digester().map(Arc::new);
        let between = Between {
            owners: Owners::load(),
            budget: Gate::new(self.options.bytes_in_flight),
            large_budget: Gate::new(BYTES_PLANNED),
            ahead: LargeFileQueue::new(BYTES_AHEAD),
            buffers: Buffers::new(&*self.cutting.chunker()?, outlook.clone()),
            outlook,
            turns: Arc::new(Gate::new(self.cores())),
            traces: self.traces(&trees, digester.clone()),
            digester,
        };
        let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
        let queues = Queues { cold, cached };
        let mut finisher = self.finisher(&between)?;
        let (work, jobs) = unbounded();
        let (step_sender, steps) = bounded(STEPS_AHEAD);
        let started_ns = |parent: &Named| parent.snapshot.summary.started_ns;
        let started_ns = earlier.parent.as_ref().map_or(0, started_ns);
        let planner = self.planner(&between, (work, step_sender), (reader, started_ns));
        let done = std::thread::scope(|scope| {
            // Closed when the store stops, also by a panic: then no thread waits for it any more.
            self.progress.set_closed(false);
            let _closing = Closing(&between, self.progress);
            let worker = self.worker(&between, &cached_tasks);
            self.start_workers(scope, &between, (cold_tasks, cached_tasks))?;
            self.start_readers(scope, &between, queues, &jobs)?;
            drop(jobs);
            match stream {
                None => {
                    let walk = self.walk(sources, trees.parent.is_some())?;
                    let tree = trees.parent.as_deref();
                    start(scope, move || planner.run(walk, tree))?;
                }
                // The planner is dropped at the end of its thread, which tells the finisher that no step follows.
                Some(_) if sources.all()[0].is_empty() => {
                    return Err(Error::Usage("a stream needs a file name".into()));
                }
                Some(input) => {
                    let tree = trees.parent.as_deref();
                    start(scope, move || {
                        stream::steps(input, &sources.all()[0], tree, planner)
                    })?;
                }
            }
            let done = finisher.run(&steps, worker);
            drop(steps);
            done
        });
        close(finisher, done, self.session)
    }

    fn finisher<'b>(&self, between: &'b Between<'a>) -> Result<Finisher<'b>>
    where
        'a: 'b,
    {
        let metadata = MetadataStream::new(
            self.session.writer(StreamKind::Metadata)?,
            self.repository.fingerprinter(),
        );
        let writers = (self.session.writer(StreamKind::Data)?, metadata);
        let chunker = self.cutting.chunker()?;
        Ok(Finisher::new(
            writers,
            LongChunks::new(chunker, self.session, self.options.force_reread),
            (&between.budget, &between.large_budget, self.open_bytes()),
            (&between.buffers, &between.outlook),
            &between.owners,
            (self.progress, self.events),
            self.options.hard_links_bytes / 3 * 2,
        ))
    }

    fn open_bytes(&self) -> OpenBytes {
        OpenBytes::of(self.options.bytes_in_flight)
    }

    /// Makes the planner; `started_ns` is when the parent began to read, in nanoseconds since 1970.
    fn planner<'b>(
        &self,
        between: &'b Between<'a>,
        (work, steps): (Sender<Work>, Sender<PlanStep>),
        (reader, started_ns): (ChunkReader, u64),
    ) -> Planner<'b>
    where
        'a: 'b,
    {
        Planner {
            options: self.options,
            session: self.session,
            owners: &between.owners,
            budget: &between.budget,
            large_budget: &between.large_budget,
            ahead: &between.ahead,
            buffers: &between.buffers,
            open_bytes: self.open_bytes(),
            progress: self.progress,
            events: self.events,
            work,
            steps,
            reader,
            parent_started_ns: started_ns,
            links: Linked::new(self.options.hard_links_bytes / 3),
            sizeless: Sizeless::default(),
        }
    }

    /// Makes the traces. Where the user says how files are to be cut, they are cut so, whatever earlier snapshots have.
    fn traces(&self, trees: &Trees, digester: Option<Arc<Digester>>) -> Traces<'a> {
        let tree = trees.parent.as_ref().or(trees.similar.as_ref());
        if self.options.cuts_as_usual() {
            Traces::new(self.session, tree.cloned(), digester)
        } else {
            Traces::none(self.session)
        }
    }

    /// Opens the trees of the parent and of the snapshot that replaces it for traces. A tree that cannot be read counts
    /// as not there.
    fn open_trees(&self, earlier: &Earlier, reader: &mut ChunkReader) -> Trees {
        let mut open = |named: &Named| Tree::open(&named.snapshot, reader).map(Arc::new);
        let tell = |e: &Error| {
            let what = format!("the parent snapshot cannot be read, so all files are: {e}");
            self.events.warning(b"", &what);
        };
        let parent = earlier.parent.as_ref();
        let parent = parent.and_then(|it| open(it).inspect_err(tell).ok());
        let similar = earlier.similar.as_ref();
        Trees {
            parent,
            similar: similar.and_then(|it| open(it).ok()),
        }
    }

    /// Starts the walk. Without a parent all files are read.
    fn walk(&self, sources: &Sources, has_parent: bool) -> Result<Walk> {
        let reads_all = !has_parent || self.options.force_reread;
        let options = walk::Options {
            threads: self.options.walkers,
            excludes: self.options.excludes.clone(),
            one_file_system: self.options.one_file_system,
            read_special: self.options.read_special,
            open_files: if reads_all {
                open_files::ahead_max()
            } else {
                0
            },
            failing: self.options.failing,
        };
        sources.walk(&options)
    }

    fn cores(&self) -> usize {
        self.options.hashers.max(1)
    }

    fn worker<'b>(&self, between: &'b Between<'a>, tasks: &Receiver<SegmentTask>) -> Worker<'b> {
        Worker {
            tasks: tasks.clone(),
            turns: between.turns.clone(),
            fingerprinter: self.repository.fingerprinter(),
            digester: between.digester.clone(),
            buffers: &between.buffers,
        }
    }

    /// Starts the threads that take segments. For segments from the disk there are as many as wait for the disk while
    /// others compute. For segments in RAM there is one less than there are cores, since the store's thread takes some
    /// while it waits. One more would share a core with the thread that cuts, and take its time while all others wait
    /// for it. With more threads for the disk, a virtual disk that reports all its reads at once would finish all of
    /// them, and then have nothing to do until they are looked at.
    fn start_workers<'scope, 'env>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        between: &'env Between<'a>,
        (cold, cached): (Receiver<SegmentTask>, Receiver<SegmentTask>),
    ) -> Result<()>
    where
        'a: 'env,
    {
        let cores = self.cores();
        for (tasks, threads, bytes) in [
            (
                cold,
                self.options.readers.min(READS_AT_ONCE) + cores,
                LONG_SEGMENT_BYTES,
            ),
            (cached, cores - 1, SEGMENT_BYTES),
        ] {
            let threads = threads.min(at_once(&between.buffers, bytes)).max(1);
            for _ in 0..threads {
                let worker = self.worker(between, &tasks);
                start(scope, move || worker.run())?;
            }
        }
        Ok(())
    }

    fn start_readers<'scope, 'env>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        between: &'env Between<'a>,
        queues: Queues,
        jobs: &Receiver<Work>,
    ) -> Result<()>
    where
        'a: 'env,
    {
        let buffers = &between.buffers;
        for _ in 0..self
            .options
            .readers
            .clamp(1, at_once(buffers, SEGMENT_BYTES))
        {
            let cutter = FileCutter::new(self.cutting.chunker()?);
            let reader = Reader {
                cutter: Arc::new(Mutex::new(cutter)),
                lengths: Vec::new(),
                fingerprinter: self.repository.fingerprinter(),
                buffers,
                progress: self.progress,
                queues: queues.clone(),
                outlook: &between.outlook,
                carries_much: Arc::default(),
                traces: &between.traces,
            };
            let jobs = jobs.clone();
            start(scope, move || reader.run(&jobs))?;
        }
        Ok(())
    }
}

/// Starts a thread. Where the system has no more threads, the backup ends: it would lack some of its stages.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    match std::thread::Builder::new().spawn_scoped(scope, work) {
        Ok(_) => Ok(()),
        Err(e) => Err(StoreError::no_thread("the backup", &e).into()),
    }
}

/// Number of segments of `bytes` bytes that fit into [`SEGMENTS_BYTES`], at least one.
fn at_once(buffers: &Buffers, bytes: usize) -> usize {
    (SEGMENTS_BYTES / buffers.segment_bytes(bytes)).max(1)
}

/// Makes all stored chunks durable, after a failure too: the next backup finds them.
fn close(
    finisher: Finisher<'_>,
    done: Result<()>,
    session: &Session,
) -> Result<(LeafTable, Summary)> {
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
