//! The stages of a backup, put together: threads, channels and budgets.

use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded, unbounded};
use onefold_store::{Repository, Session, StreamKind};
use parking_lot::Mutex;

use super::budget::Budget;
use super::buffers::Buffers;
use super::cutting::Cutting;
use super::finish::Finisher;
use super::metadata::MetadataStream;
use super::plan::Planner;
use super::segment::{BYTES_AHEAD, Cutter, Queues, Turns, Worker};
use super::source::{Reader, Work};
use super::{Input, Options, stream};
use crate::linked::Linked;
use crate::meta::Owners;
use crate::snapshot::{Summary, Table};
use crate::snapshots::Named;
use crate::tree::Tree;
use crate::walk::{self, Walk};
use crate::{Events, Progress, Result};

/// Steps between planner and finisher; each holds at most a piece of a folder.
const STEPS_AHEAD: usize = 512;

/// RAM for the segments of large files that are read and cut at once, in bytes, and for those that wait for the store. Only chunkers of very
/// long chunks come near it; they have fewer threads, at least one for each task.
const SEGMENTS_BYTES: usize = 32 << 20;

#[expect(
    clippy::too_many_arguments,
    reason = "everything that one backup is made of"
)]
pub fn write(
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
    let large_budget = Budget::new(BYTES_AHEAD);
    let buffers = Buffers::new(cutting.chunker()?.limits().max);
    let metadata = MetadataStream::new(
        session.writer(StreamKind::Metadata)?,
        repository.fingerprinter(),
    );
    let writers = (session.writer(StreamKind::Data)?, metadata);
    let mut finisher = Finisher::new(
        writers,
        (&budget, &large_budget, &buffers),
        &owners,
        (progress, events),
        options.hard_links_bytes / 3 * 2,
    );
    let mut reader = session.reader()?;
    let parent_started_ns = parent.map_or(0, |parent| parent.snapshot.summary.started_ns);
    let parent = parent.and_then(|parent| open_parent(parent, &mut reader, events));
    let (work, jobs) = unbounded();
    let (step_sender, steps) = bounded(STEPS_AHEAD);
    let planner = Planner {
        options,
        session,
        owners: &owners,
        budget: &budget,
        large_budget: &large_budget,
        buffers: &buffers,
        progress,
        events,
        work,
        steps: step_sender,
        reader,
        parent_started_ns,
        links: Linked::new(options.hard_links_bytes / 3),
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
                stream::steps(
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
        large_budget.close();
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
        // So many wait for the disk while others compute.
        (cold_tasks, options.readers + cores),
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
