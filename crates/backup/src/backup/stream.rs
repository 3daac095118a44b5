//! Makes one file of a snapshot from a stream, or from a device that tells what changed.

use std::os::fd::OwnedFd;

use onefold_store::{ChunkReader, Session};
use rustix::io::Errno;

use super::ahead::LargeFileQueue;
use super::device::{ChangedDevice, DeviceWork};
use super::moved::{self, ChunkLookup};
use super::parts::{FILE_BYTES_AHEAD, LargePart, PartSender, large_channel};
use super::plan::{ContentFrom, Entries, Job, PlanStep, Planned, Planner};
use super::work::Work;
use crate::meta::Stat;
use crate::tree::Tree;
use crate::{Entry, Flags, Kind, Time, path};

/// The source of one file.
pub enum StreamInput {
    /// A stream, read to its end.
    Pipe(OwnedFd),
    /// A device that tells what changed.
    Device(Box<dyn ChangedDevice>),
}

/// Sends the steps of a stream: the folders above its path, and one file. Waits where the finisher has many steps to
/// take.
pub fn steps(input: StreamInput, path: &[u8], parent: Option<&Tree>, planner: Planner<'_>) {
    let (options, owners) = (planner.options, planner.owners);
    let steps = planner.steps.clone();
    let stat = |kind, mode| own_stat(kind, mode, options.time);
    let send = |folder: &[u8], entry: Entry, content, job| {
        let planned = Planned {
            entry,
            change: crate::Change::New,
            content,
            before: None,
            link: None,
        };
        // Where the finisher has ended, the step is dropped.
        let _ = steps.send(PlanStep::Entries {
            entries: Entries::one(&folder.into(), planned),
            job,
            budget_bytes: 0,
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
    let (parts, receiver) = large_channel(&LargeFileQueue::new(FILE_BYTES_AHEAD));
    let file = stat(Kind::File, 0o644);
    let entry = file.entry(name.to_vec(), owners);
    match input {
        StreamInput::Pipe(fd) => {
            let name = name.to_vec();
            let stat = file;
            let _ = planner.work.send(Work::Stream {
                fd,
                name,
                stat,
                parts,
            });
        }
        StreamInput::Device(device) => {
            let parent = parent.filter(|_| !options.force_reread);
            read_device(device, path, parent, file, planner, parts);
        }
    }
    send(
        folder,
        entry,
        ContentFrom::Job,
        Job::Large {
            parts: receiver,
            budget_bytes: 0,
        },
    );
}

/// Attributes of a stream's folders and file: they belong to this process.
fn own_stat(kind: Kind, mode: u16, time: Time) -> Stat {
    Stat {
        kind,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: 0,
        blocks: 0,
        mtime: time,
        ctime: time,
        atime: time,
        inode: 0,
        device: 0,
        links: 1,
        rdev: 0,
    }
}

/// Has a device read: all of it, or only what changed since the entry that `parent` has at `path`.
fn read_device(
    device: Box<dyn ChangedDevice>,
    path: &[u8],
    parent: Option<&Tree>,
    stat: Stat,
    planner: Planner<'_>,
    parts: PartSender,
) {
    let mut reader = planner.reader;
    let base = parent.and_then(|tree| base_of(tree, path, planner.session, &mut reader));
    match device.begin(base.as_ref().map(|base| &*base.xattrs)) {
        Ok(stream) => {
            let work = DeviceWork {
                stream,
                base: base.map(|base| base.content).unwrap_or_default(),
                reader,
                stat,
            };
            let work = Box::new(work);
            let _ = planner.work.send(Work::Device { work, parts });
        }
        Err(error) => {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            let _ = parts.send(LargePart::End(Err(error)));
        }
    }
}

/// The parent's entry of a device, where it can be read and all its chunks are there.
fn base_of(tree: &Tree, path: &[u8], session: &Session, reader: &mut ChunkReader) -> Option<Entry> {
    let mut entry = tree.entry(path, reader).ok()??;
    let is_sound = entry.kind == Kind::File && entry.flags == Flags::default();
    let is_there =
        is_sound && moved::look(session, reader, &mut entry.content) != ChunkLookup::Missing;
    is_there.then_some(entry)
}
