//! Makes one file of a snapshot from a stream, or from a device that tells what changed.

use std::os::fd::OwnedFd;

use onefold_store::{ChunkReader, Session};
use rustix::io::Errno;

use super::ahead::LargeFileQueue;
use super::device::{ChangedDevice, DeviceWork};
use super::moved::{self, Chunks};
use super::parts::{FILE_BYTES_AHEAD, LargePart, large_channel};
use super::plan::{ContentFrom, Entries, Job, PlanStep, Planned, Planner};
use super::source::Work;
use crate::meta::Stat;
use crate::tree::Tree;
use crate::{Entry, Flags, Kind, path};

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
    let Planner {
        options,
        session,
        work,
        steps,
        owners,
        mut reader,
        ..
    } = planner;
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
        mtime: options.time,
        ctime: options.time,
        atime: options.time,
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
    match input {
        StreamInput::Pipe(fd) => {
            let _ = work.send(Work::Stream {
                fd,
                name: name.to_vec(),
                stat: file,
                parts,
            });
        }
        StreamInput::Device(device) => {
            let before = parent
                .filter(|_| !options.force_reread)
                .and_then(|tree| base_of(tree, path, session, &mut reader));
            let marks = before.as_ref().map(|before| &*before.xattrs);
            match device.begin(marks) {
                Ok(stream) => {
                    let work_of = DeviceWork {
                        stream,
                        base: before.map(|before| before.content).unwrap_or_default(),
                        reader,
                        stat: file,
                    };
                    let _ = work.send(Work::Device {
                        work: Box::new(work_of),
                        parts,
                    });
                }
                Err(error) => {
                    let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    let _ = parts.send(LargePart::End(Err(error)));
                }
            }
        }
    }
    send(
        folder,
        stat(Kind::File, 0o644).entry(name.to_vec(), owners),
        ContentFrom::Job,
        Job::Large {
            parts: receiver,
            budget_bytes: 0,
        },
    );
}

/// The parent's entry of a device, where it can be read and all its chunks are there.
fn base_of(tree: &Tree, path: &[u8], session: &Session, reader: &mut ChunkReader) -> Option<Entry> {
    let mut entry = tree.entry(path, reader).ok()??;
    let is_sound = entry.kind == Kind::File && entry.flags == Flags::default();
    let is_there = is_sound && moved::look(session, reader, &mut entry.content) != Chunks::Missing;
    is_there.then_some(entry)
}
