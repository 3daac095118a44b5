//! From a folder to those in it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Look, Step, Task, empty};
use crate::meta::Stat;
use crate::walk::Select;
use crate::walk::put_off::{PutOff, Subfolder};
use crate::walk::schedule::{Done, Key};
use crate::{Error, Flags, Kind, path};

impl Look<'_> {
    /// Lists the folder next: what of it was asked for, or, where it is left out itself, what leads to the sources in it.
    pub(super) fn descend(
        &mut self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        path: Vec<u8>,
        stat: &Stat,
        is_out: bool,
        flags: Flags,
    ) {
        let named = self.select.children.get(name);
        let is_source = named.is_some_and(|named| named.whole);
        let is_elsewhere =
            self.options.one_file_system && self.device.is_some_and(|device| device != stat.device);
        let leads_only = is_out || is_elsewhere || !self.select.whole;
        let select = match named {
            Some(named) if is_source || leads_only => Arc::clone(named),
            // Behind a symbolic link there is more than was asked for.
            Some(named) if Stat::at(dir, name, false).is_ok_and(|it| it.kind == Kind::Symlink) => {
                Arc::clone(named)
            }
            Some(named) => Arc::new(Select::and_everything(named)),
            None if is_elsewhere => return,
            None if self.select.children.is_empty() => {
                let subfolder = (name.to_vec(), flags.has(Flags::UNLISTED));
                return self.subfolders.push(subfolder);
            }
            None => Arc::new(Select::everything()),
        };
        // A source's own is known when it is opened.
        let device = self.device.filter(|_| select.whole && !is_source);
        let step = Step::Open(Some((dir.clone(), name.to_vec())));
        let task = Task {
            step,
            select,
            ignore: self.ignore.clone(),
            device,
            is_flagged: flags.has(Flags::UNLISTED),
        };
        self.next.push((
            Key {
                folder: path.into(),
                piece: 0,
            },
            task,
        ));
    }

    /// Makes a task of each subfolder in `folder`.
    pub(super) fn look_into(
        &mut self,
        folder: &[u8],
        dir: &Arc<OwnedFd>,
        subfolders: Vec<Subfolder>,
    ) {
        for (name, is_flagged) in subfolders {
            let key = Key {
                folder: path::join(folder, &name).into(),
                piece: 0,
            };
            let step = Step::Open(Some((dir.clone(), name)));
            let task = Task {
                is_flagged,
                ..self.task(step)
            };
            self.next.push((key, task));
        }
    }

    /// Makes one task of all subfolders: their turn comes when all names of the folder have been looked at, and of these there may be millions.
    pub(super) fn put_off(&mut self, dir: Arc<OwnedFd>, put_off: &PutOff) {
        let Some((first, _)) = self.subfolders.first() else {
            return;
        };
        let key = Key {
            folder: path::join(&self.key.folder, first).into(),
            piece: 0,
        };
        let kept = put_off.put(&std::mem::take(&mut self.subfolders));
        self.next.push((key, self.task(Step::Descend(dir, kept))));
    }

    /// Their turn has come.
    pub(super) fn descend_later(
        mut self,
        dir: Arc<OwnedFd>,
        subfolders: onefold_io::Result<Vec<Subfolder>>,
    ) -> Done {
        let folder = path::split(&self.key.folder).0;
        let piece = match subfolders {
            Ok(subfolders) => {
                self.look_into(folder, &dir, subfolders);
                None
            }
            Err(e) => {
                let mut piece = empty(&folder.into());
                piece.errors.push((folder.to_vec(), Error::Temporary(e)));
                piece.is_cut_off = !self.is_flagged;
                Some(piece)
            }
        };
        Done {
            piece,
            next: self.next,
        }
    }
}
