//! Makes one file of a snapshot from a stream.

use std::os::fd::OwnedFd;

use super::ahead::LargeFileQueue;
use super::parts::{FILE_BYTES_AHEAD, large_channel};
use super::plan::{ContentFrom, Entries, Job, PlanStep, Planned, Planner};
use super::source::Work;
use crate::meta::Stat;
use crate::{Entry, Kind, path};

/// Sends the steps of a stream: the folders above its path, and one file. Waits where the finisher has many steps to
/// take.
pub fn steps(fd: OwnedFd, path: &[u8], planner: Planner<'_>) {
    let Planner {
        options,
        work,
        steps,
        owners,
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
        Job::Large {
            parts: receiver,
            budget_bytes: 0,
        },
    );
}
