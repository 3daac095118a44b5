//! Backup: from a tree of files to a snapshot.
//!
//! ```text
//! walk (threads, in order) ─▶ planner (beside the parent snapshot) ─▶ readers: read, cut, fingerprint
//!   ─▶ finisher, in walk order: store some hundred chunks at a time ─▶ recipes ─▶ leaves ─▶ root
//! ```
//!
//! Invariant: the finisher sees everything in walk order, so the snapshot does not depend on threads. Bytes in
//! flight are bounded by [`Options::bytes_in_flight`] for small files and by a budget of segments for large ones. The
//! root is put last, when everything that it refers to is durable. A backup that ends early leaves containers that the
//! index knows: the next backup finds its chunks there.

#![cfg_attr(
    not(feature = "retrace"),
    allow(dead_code, reason = "comparisons alone need it")
)]

mod ahead;
mod buffers;
mod cutting;
mod device;
mod file_end;
mod finish;
mod hint;
mod long_chunks;
mod metadata;
mod moved;
mod names;
#[cfg(not(feature = "retrace"))]
mod not_retraced;
mod options;
mod outlook;
mod parts;
mod pipeline;
mod plan;
pub mod read;
#[cfg(feature = "retrace")]
mod retrace;
mod segment;
mod segments;
mod sizeless;
mod source;
mod sources;
mod stream;
mod unchanged;
mod windows;
mod work;

use std::sync::Arc;

pub use onefold_chunk::context::Rules;
pub use onefold_chunk::tar::Tars;
use onefold_store::{Repository, RootId, SessionKind};

use crate::snapshot::{LeafTable, Snapshot, Summary};
use crate::snapshots::{self, Named};
use crate::{Error, Events, Progress, Result};

use cutting::Cutting;
pub use device::{ChangedDevice, DeviceStream, DeviceStretch};
pub(crate) use metadata::MetadataStream;
pub use names::SeenFiles;
#[cfg(not(feature = "retrace"))]
use not_retraced as retrace;
pub use options::{Input, Options, Parent};
use pipeline::Pipeline;
use sources::Sources;
pub use sources::confirm_sources;
use stream::StreamInput;
use unchanged::nanos;

/// Result of a backup.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The snapshot's name; `None` where nothing changed and no unchanged snapshot was wanted, and after a dry run.
    pub id: Option<RootId>,
    /// The snapshot, without its table of leaves.
    pub snapshot: Snapshot,
    /// Number of sources that are not there or cannot be looked at, so that the snapshot has nothing of them. They are
    /// among the summary's errors.
    pub missing_sources: u64,
}

/// Makes a snapshot of `input`. Paths that fail are reported to `events` and counted in the summary; everything else is
/// kept. A repository opened for a dry run stays as it is.
///
/// # Errors
/// [`Error::NoSource`]: no source is there, or only sources that belong to the repository itself; [`Error::Cancelled`];
/// [`Error::Store`] where the repository fails, or the parent that was asked for cannot be had; [`Error::Usage`] for a
/// stream without a name, a source below too many folders, or folders too deep for a snapshot; [`Error::OutOfOrder`].
/// No snapshot is made then; the next backup finds the chunks that were stored.
pub fn run(
    repository: &Repository,
    input: Input,
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
) -> Result<Outcome> {
    run_if(repository, input, options, progress, events, || Ok(()))
}

/// Makes a snapshot of `input` as [`run`] does, but only if `is_whole` agrees when all of the input is stored: the
/// program that feeds a stream may have failed.
///
/// # Errors
/// Errors of [`run`], and what `is_whole` returns.
pub fn run_if(
    repository: &Repository,
    input: Input,
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
    is_whole: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    let (stream, sources) = match input {
        Input::Paths(paths) => (None, Sources::find(paths, &options.excludes)?),
        Input::Moved(moved) => (None, Sources::find_moved(moved, &options.excludes)?),
        Input::Stream(stream, path) => {
            let stream = StreamInput::Pipe(stream);
            (Some(stream), Sources::of_stream(&path))
        }
        Input::Device(device, path) => {
            let stream = StreamInput::Device(device);
            (Some(stream), Sources::of_stream(&path))
        }
    };
    let missing_sources = sources.missing;
    let session = repository.session(SessionKind::Backup)?;
    session.count_stored(Arc::clone(&progress.bytes_stored));
    let is_tree = stream.is_none();
    let earlier = find_earlier(repository, (sources.sound(), is_tree), options, events)?;
    let cutting = Cutting::begin(repository, options, events)?;
    let started = (options.clock)();
    let pipeline = Pipeline {
        cutting: &cutting,
        repository,
        session: &session,
        options,
        progress,
        events,
    };
    let written = pipeline.write(stream, &sources, &earlier);
    let (table, mut summary) = match written.and_then(|written| is_whole().map(|()| written)) {
        Ok(written) => written,
        Err(e) => {
            // Finishing may fail for the same reason or for another one: the returned error is the one that ended the
            // backup.
            if let Err(second) = session.finish() {
                events.warning(b"", &format!("the index lacks what was stored: {second}"));
            }
            return Err(e);
        }
    };
    summary.started_ns = nanos(started);
    summary.duration_ns = nanos((options.clock)()).saturating_sub(summary.started_ns);
    let parent = earlier.parent;
    let unchanged = parent
        .as_ref()
        .filter(|parent| parent.snapshot.table == table)
        .map(|parent| parent.id);
    let mut snapshot = new_snapshot(
        sources.into_sound(),
        parent.map(|parent| parent.id),
        summary,
        table,
        options,
    );
    let id = match unchanged {
        _ if repository.options().dry_run => None,
        // The snapshot that takes the place of this backup must outlive a power cut, as a new one would.
        Some(same) if options.skip_if_unchanged && repository.keep_root(&same)? => None,
        _ => Some(session.put_root(&snapshot.encode_unique(&repository.options().entropy)?)?),
    };
    cutting.keep(events);
    session.finish()?;
    snapshot.table = LeafTable::Inline(Vec::new());
    Ok(Outcome {
        id,
        snapshot,
        missing_sources,
    })
}

fn new_snapshot(
    paths: Vec<Vec<u8>>,
    parent: Option<RootId>,
    summary: Summary,
    table: LeafTable,
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

/// Earlier snapshots that a backup compares with.
#[derive(Default)]
struct Earlier {
    /// The parent: the snapshot whose entries tell what is unchanged.
    parent: Option<Named>,
    /// The newest snapshot of any series, where there is no parent. The same files may lie in it under other paths.
    similar: Option<Named>,
}

/// Finds the parent, or a similar snapshot in its place. A snapshot that cannot be read counts as not there.
fn find_earlier(
    repository: &Repository,
    (paths, is_tree): (&[Vec<u8>], bool),
    options: &Options,
    events: &dyn Events,
) -> Result<Earlier> {
    match options.parent {
        Parent::None => Ok(Earlier::default()),
        Parent::This(id) => Ok(Earlier {
            parent: Some(snapshots::load(repository, id)?),
            similar: None,
        }),
        Parent::Newest(by) => {
            let mut damaged =
                |id, e: Error| events.warning(b"", &format!("snapshot {} cannot be read: {e}", id));
            let mut tags = options.tags.clone();
            tags.sort();
            tags.dedup();
            let is_same = |there: &Snapshot| {
                (!by.host || there.host == options.host)
                    && (!by.paths || there.paths == paths)
                    && (!by.tags || there.tags == tags)
            };
            // A snapshot from a clock that was ahead would stay the newest for years, and all changes since would be
            // read each time. Such a snapshot is taken only where there is no other.
            let rank = |(time, id)| (time <= options.time, time, id);
            let (mut newest, mut similar) = (None, None);
            snapshots::for_each(repository, &mut damaged, &mut |named| {
                let place = Some(rank(named.place()));
                similar = similar.max(place);
                if is_same(&named.snapshot) {
                    newest = newest.max(place);
                }
            })?;
            let load = |(_, _, id)| {
                // The snapshot was read a moment ago. Where it was forgotten or lost since then, all files are read.
                let mut named = snapshots::load(repository, id).ok()?;
                // The paths, perhaps hundreds of thousands, are known already: they need not stay in RAM twice.
                named.snapshot.paths = Vec::new();
                Some(named)
            };
            let similar = similar.filter(|_| newest.is_none() && is_tree);
            Ok(Earlier {
                parent: newest.and_then(load),
                similar: similar.and_then(load),
            })
        }
    }
}
