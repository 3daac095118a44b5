//! Makes the tasks for the subfolders of a folder.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{FolderStep, FolderTask, FolderVisit, TaskResult};
use crate::meta::Stat;
use crate::walk::Select;
use crate::walk::deferred::Subfolder;
use crate::walk::key::{FolderPath, WalkKey};
use crate::{Error, Flags, Kind};

/// Number of waiting tasks from which on few are made of a folder's subfolders: each level of a deep tree may have
/// hundreds.
const TASKS_WAITING_MAX: usize = 8 << 10;
/// Number of tasks that are made then.
const TASKS_MADE: usize = 16;

impl FolderVisit<'_> {
    /// Makes the task that lists the folder next: the wanted part of it or, where it is left out itself, the way to the
    /// sources in it.
    pub(super) fn descend(
        &mut self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        stat: &Stat,
        is_out: bool,
        flags: Flags,
    ) {
        let named = self.select.children.get(name);
        let is_source = named.is_some_and(|named| named.whole);
        let is_elsewhere = self.is_elsewhere(stat);
        let leads_only = is_out || is_elsewhere || !self.select.whole;
        let select = match named {
            Some(named) if is_source || leads_only => Arc::clone(named),
            // Behind a symbolic link lies more than the wanted part.
            Some(named) if Stat::at(dir, name, false).is_ok_and(|it| it.kind == Kind::Symlink) => {
                Arc::clone(named)
            }
            Some(named) => Arc::new(Select::and_everything(named)),
            None if is_elsewhere => return,
            None if self.select.children.is_empty() => {
                return self.subfolders.push(Subfolder {
                    name: name.to_vec(),
                    is_flagged: flags.has(Flags::UNLISTED),
                });
            }
            None => Arc::new(Select::everything()),
        };
        // A source's own file system is known when it is opened.
        let device = self.device.filter(|_| select.whole && !is_source);
        let own_name = self.own_name.as_deref().unwrap_or(name);
        let step = FolderStep::Open(Some((dir.clone(), own_name.to_vec())));
        let task = FolderTask {
            step,
            select,
            ignore: self.ignore.clone(),
            device,
            is_flagged: flags.has(Flags::UNLISTED),
        };
        self.next.push((
            WalkKey {
                folder: self.key.folder.child(name),
                piece: 0,
            },
            task,
        ));
    }

    /// Whether a folder becomes an entry only: it lies on another file system, and no source lies in it.
    pub(super) fn is_left_alone(&self, named: Option<&Arc<Select>>, stat: &Stat) -> bool {
        named.is_none() && self.is_elsewhere(stat)
    }

    fn is_elsewhere(&self, stat: &Stat) -> bool {
        self.options.one_file_system && self.device.is_some_and(|device| device != stat.device)
    }

    /// Makes a task for each subfolder in `folder`; where many tasks wait, for the first ones, and one task for all
    /// others.
    pub(super) fn look_into(
        &mut self,
        folder: &FolderPath,
        dir: &Arc<OwnedFd>,
        mut subfolders: Vec<Subfolder>,
    ) {
        let are_many = self.shared.waiting.load(Relaxed) > TASKS_WAITING_MAX;
        if are_many && subfolders.len() > 2 * TASKS_MADE {
            let others = subfolders.split_off(TASKS_MADE);
            self.defer(folder, dir, &others);
        }
        for Subfolder { name, is_flagged } in subfolders {
            let key = WalkKey {
                folder: folder.child(&name),
                piece: 0,
            };
            let step = FolderStep::Open(Some((dir.clone(), name)));
            let task = FolderTask {
                is_flagged,
                ..self.task(step)
            };
            self.next.push((key, task));
        }
    }

    /// Makes one task for all of them: they are looked at when all names of the folder have been, and there may be
    /// millions of names.
    pub(super) fn defer(
        &mut self,
        folder: &FolderPath,
        dir: &Arc<OwnedFd>,
        subfolders: &[Subfolder],
    ) {
        let Some(first) = subfolders.first() else {
            return;
        };
        let key = WalkKey {
            folder: folder.child(&first.name),
            piece: 0,
        };
        let kept = self.shared.deferred.put(subfolders);
        let step = FolderStep::Descend(dir.clone(), kept);
        self.next.push((key, self.task(step)));
    }

    /// Makes the tasks of subfolders that were deferred.
    pub(super) fn descend_later(
        mut self,
        dir: Arc<OwnedFd>,
        subfolders: onefold_io::Result<Vec<Subfolder>>,
    ) -> TaskResult {
        let piece = match subfolders {
            Ok(subfolders) => {
                let folder = self.key.folder.above();
                self.look_into(folder, &dir, subfolders);
                None
            }
            Err(e) => {
                let mut piece = self.piece;
                let folder = piece.folder.to_vec();
                piece.errors.push((folder, Error::Temporary(e)));
                piece.is_cut_off = !self.is_flagged;
                Some(piece)
            }
        };
        TaskResult {
            piece,
            next: self.next,
        }
    }
}
