//! Looks at one folder: lists its names, then calls `stat` on them, many names in several tasks.

pub(crate) mod above;
mod descend;
mod ignore;
mod left_out;
mod moved;
mod special;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_io::unless_interrupted;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::deferred::{DeferredNames, Subfolder};
use super::key::{FolderPath, WalkKey};
use super::names::{
    FolderName, ListedAs, Listing, NAME_OVERHEAD_BYTES, PASS_BYTES_MAX, sorted_names,
};
use super::opened::{self, OpenedFile};
use super::shared::WalkShared;
use super::{FolderPart, Options, Role, Select, WalkedEntry};
use crate::exclude::IgnoreFile;
use crate::meta::Stat;
use crate::{Error, Flags, Kind, path};

/// Largest number of names that one task calls `stat` on.
const PIECE_NAMES: usize = 512;
/// Distance between the numbers of passes over a folder; one pass has fewer pieces than that.
const PASS_STRIDE: u64 = 1 << 32;

/// Work for a thread of the walk: to list a folder, or to call `stat` on some of its names.
pub(super) struct FolderTask {
    step: FolderStep,
    select: Arc<Select>,
    ignore: Option<Arc<IgnoreFile>>,
    /// Device of the file system to stay on.
    device: Option<u64>,
    /// Whether the folder's own entry says already that it cannot be listed.
    is_flagged: bool,
}

/// Result of a task: a piece, or nothing yet, and the tasks that follow from it.
pub(super) struct TaskResult {
    pub piece: Option<FolderPart>,
    pub next: Vec<(WalkKey, FolderTask)>,
}

enum FolderStep {
    /// Open this name in its parent (none: the root) and list it.
    Open(Option<(Arc<OwnedFd>, Vec<u8>)>),
    /// List on after this name.
    List(Arc<OwnedFd>, Vec<u8>),
    /// Call `stat` on these names.
    Stat(Arc<OwnedFd>, Vec<FolderName>),
    /// Look at this name, which lies elsewhere.
    Moved(Vec<u8>),
    /// Look into these subfolders; the task's key names the first one.
    Descend(Arc<OwnedFd>, DeferredNames),
}

impl FolderTask {
    pub fn root(select: Arc<Select>) -> (WalkKey, FolderTask) {
        (
            WalkKey {
                folder: FolderPath::default(),
                piece: 0,
            },
            FolderTask {
                step: FolderStep::Open(None),
                select,
                ignore: None,
                device: None,
                is_flagged: false,
            },
        )
    }

    pub fn run(self, key: &WalkKey, options: &Options, shared: &WalkShared) -> TaskResult {
        let folder = match &self.step {
            // The key of such a task names a subfolder.
            FolderStep::Descend(..) => key.folder.above().path(),
            _ => key.folder.path(),
        };
        let mut look = FolderVisit {
            key,
            options,
            shared,
            select: self.select,
            ignore: self.ignore,
            device: self.device,
            is_flagged: self.is_flagged,
            is_below_left_out: None,
            own_name: None,
            piece: empty(folder),
            subfolders: Vec::new(),
            next: Vec::new(),
        };
        let result = match self.step {
            FolderStep::Open(place) => look.open(place),
            FolderStep::List(dir, after) => look.list(&dir, Some(after)),
            FolderStep::Moved(name) => look.moved(name),
            FolderStep::Stat(dir, names) => {
                look.stat_all(dir.clone(), names);
                let subfolders = std::mem::take(&mut look.subfolders);
                look.defer(&key.folder, &dir, &subfolders);
                Ok(())
            }
            FolderStep::Descend(dir, kept) => {
                return look.descend_later(dir, shared.deferred.take(kept));
            }
        };
        match result {
            Err(Errno::NOENT) if look.may_be_gone() => {}
            Err(e) => look.cut_off(e),
            Ok(()) => {}
        }
        if let Some(dir) = look.piece.dir.clone() {
            let subfolders = std::mem::take(&mut look.subfolders);
            look.look_into(&key.folder, &dir, subfolders);
        }
        TaskResult {
            piece: Some(look.piece),
            next: look.next,
        }
    }
}

pub(super) fn empty(folder: Arc<[u8]>) -> FolderPart {
    FolderPart {
        folder,
        dir: None,
        found: Vec::new(),
        errors: Vec::new(),
        warnings: Vec::new(),
        is_cut_off: false,
        excluded: 0,
        ignore_bytes: 0,
    }
}

/// Result of looking at a name.
struct SeenName {
    stat: Result<Stat, Errno>,
    opened: Option<OpenedFile>,
    /// Whether the patterns are known to keep the name.
    is_kept: bool,
}

struct FolderVisit<'a> {
    key: &'a WalkKey,
    options: &'a Options,
    shared: &'a WalkShared,
    select: Arc<Select>,
    ignore: Option<Arc<IgnoreFile>>,
    device: Option<u64>,
    is_flagged: bool,
    /// Whether the folder lies in one that is left out, once that was asked.
    is_below_left_out: Option<bool>,
    /// Name on disk of the single name that is looked at, if that differs.
    own_name: Option<Box<[u8]>>,
    piece: FolderPart,
    /// Subfolders to look into with the same options as this folder.
    subfolders: Vec<Subfolder>,
    next: Vec<(WalkKey, FolderTask)>,
}

impl FolderVisit<'_> {
    fn open(&mut self, place: Option<(Arc<OwnedFd>, Vec<u8>)>) -> Result<(), Errno> {
        if self.select.leads_to_moved() {
            self.look_at_moved();
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let follow = if self.select.whole {
            OFlags::NOFOLLOW
        } else {
            OFlags::empty()
        };
        let open = |noatime: OFlags| match &place {
            None => match self.open_moved_root()? {
                Some(root) => Ok(root),
                None => rustix::fs::openat(CWD, "/", flags | noatime, Mode::empty()),
            },
            Some((parent, name)) => rustix::fs::openat(
                parent.as_fd(),
                name.as_slice(),
                flags | follow | noatime,
                Mode::empty(),
            ),
        };
        let dir = Arc::new(match open(OFlags::NOATIME) {
            Err(Errno::PERM) => open(OFlags::empty())?,
            other => other?,
        });
        if !self.select.whole {
            let names = self
                .select
                .children
                .keys()
                .map(|name| FolderName::given(name))
                .collect();
            self.stat_all(dir, names);
            return Ok(());
        }
        if self.device.is_none() {
            self.device = Some(Stat::of(&dir)?.device);
        }
        self.read_ignore_files(&dir);
        self.list(&dir, None)
    }

    /// Whether a deleted folder may count as an empty one, as a deleted file counts as none: the folder is no source
    /// and holds none. A source's file system is not known before it is open.
    fn may_be_gone(&self) -> bool {
        self.device.is_some() && self.select.children.is_empty()
    }

    fn cut_off(&mut self, e: Errno) {
        let folder = self.piece.folder.to_vec();
        let error = Error::io("list", &folder, e);
        self.piece.errors.push((folder, error));
        self.piece.is_cut_off = !self.is_flagged;
    }

    fn list(&mut self, dir: &Arc<OwnedFd>, after: Option<Vec<u8>>) -> Result<(), Errno> {
        let is_stopped = || self.shared.is_stopped.load(Relaxed);
        let fails_after = (self.options.failing)(&self.piece.folder);
        let Listing {
            mut names,
            more,
            failed,
        } = sorted_names(
            dir,
            after.as_deref(),
            PASS_BYTES_MAX,
            fails_after,
            &is_stopped,
        )?;
        // Names that were listed before the error are kept.
        match failed {
            Some(Errno::NOENT) if self.may_be_gone() => {}
            Some(e) => self.cut_off(e),
            None => {}
        }
        // The last of all names, wanted or not: it decides where the next pass begins.
        let last = names.last().map(|last| last.name.clone());
        if let Some(marker) = self.marker(dir) {
            let named = &self.select.children;
            let is_kept = |name: &Vec<u8>| *name == marker || named.contains_key(name);
            self.piece.excluded += names.iter().filter(|it| !is_kept(&it.name)).count() as u64;
            names.retain(|it| is_kept(&it.name));
        }
        let last = last.filter(|_| more);
        self.add_named(&mut names, after.as_deref(), last.as_deref());
        if let Some(last) = last {
            let pass = self.key.piece / PASS_STRIDE + 1;
            let task = self.task(FolderStep::List(dir.clone(), last));
            self.next.push((
                WalkKey {
                    folder: self.key.folder.clone(),
                    piece: pass * PASS_STRIDE,
                },
                task,
            ));
        }
        if names.len() <= PIECE_NAMES {
            self.stat_all(dir.clone(), names);
            return Ok(());
        }
        let mut rest = names.into_iter().peekable();
        let first = rest.by_ref().take(PIECE_NAMES).collect();
        let mut piece = self.key.piece;
        while rest.peek().is_some() {
            piece += 1;
            let names = rest.by_ref().take(PIECE_NAMES).collect();
            let task = self.task(FolderStep::Stat(dir.clone(), names));
            self.next.push((
                WalkKey {
                    folder: self.key.folder.clone(),
                    piece,
                },
                task,
            ));
        }
        self.stat_all(dir.clone(), first);
        Ok(())
    }

    /// Adds names that the user gave, whether they are listed or not, so that a wrong name is reported. `names` are
    /// those behind `after`, and up to `last`, unless they are all.
    fn add_named(&self, names: &mut Vec<FolderName>, after: Option<&[u8]>, last: Option<&[u8]>) {
        let is_here = |name: &[u8]| {
            after.is_none_or(|after| name > after) && last.is_none_or(|last| name <= last)
        };
        for name in self.select.children.keys().filter(|name| is_here(name)) {
            if let Err(place) = names.binary_search_by(|there| there.name.cmp(name)) {
                names.insert(place, FolderName::given(name));
            }
        }
    }

    fn task(&self, step: FolderStep) -> FolderTask {
        FolderTask {
            step,
            select: self.select.clone(),
            ignore: self.ignore.clone(),
            device: self.device,
            is_flagged: self.is_flagged,
        }
    }

    fn stat_all(&mut self, dir: Arc<OwnedFd>, names: Vec<FolderName>) {
        let mut by_inode: Vec<usize> = (0..names.len()).collect();
        by_inode.sort_unstable_by_key(|&i| names[i].inode);
        let opens = self.options.open_files > 0
            && names.iter().any(|name| name.listed_as == ListedAs::File)
            && opened::may_be_held(&dir);
        let mut seen: Vec<_> = (0..names.len()).map(|_| None).collect();
        for i in by_inode {
            seen[i] = Some(self.look_at(&dir, &names[i], opens));
        }
        for (listed, seen) in names.into_iter().zip(seen) {
            self.found(&dir, listed, seen.expect("every name was looked at"));
        }
        self.piece.dir = Some(dir);
    }

    /// Calls `stat` on a name. If `opens`, files are opened for it, except those whose names are left out.
    fn look_at(&self, dir: &OwnedFd, listed: &FolderName, opens: bool) -> SeenName {
        let name = &listed.name;
        if opens
            && listed.listed_as == ListedAs::File
            && let Some(place) = self.shared.open_files.place()
            && !self.is_name_excluded(name, false)
            && let Some((stat, opened)) = place.open(dir, name)
        {
            let is_kept = stat.kind != Kind::Dir;
            return SeenName {
                stat: Ok(stat),
                opened,
                is_kept,
            };
        }
        let stat = Stat::at(dir, name, false);
        // A folder on the way to a source may be a symbolic link: the user named it, so it is followed.
        let leads_on = || self.select.children.get(name).is_some_and(|to| !to.whole);
        let stat = match stat {
            Ok(link) if link.kind == Kind::Symlink && leads_on() => Stat::at(dir, name, true),
            other => other,
        };
        SeenName {
            stat,
            opened: None,
            is_kept: false,
        }
    }

    fn found(&mut self, dir: &Arc<OwnedFd>, listed: FolderName, seen: SeenName) {
        let name = listed.name;
        let SeenName {
            stat,
            opened,
            is_kept,
        } = seen;
        let select = Arc::clone(&self.select);
        let named = select.children.get(&name);
        let mut stat = match stat {
            Ok(stat) => stat,
            Err(e) => {
                return self.cannot_stat(dir, name, listed.listed_as, named.is_some(), e);
            }
        };
        let is_source = named.is_some_and(|named| named.whole);
        if is_source && (self.options.excludes.is_left_out(&stat) || self.is_below_left_out(dir)) {
            self.piece
                .errors
                .push((self.path_of(&name), Error::IntoItself));
            return;
        }
        let is_dir = stat.kind == Kind::Dir;
        let is_out = !is_source
            && (self.is_excluded(&stat) || !is_kept && self.is_name_excluded(&name, is_dir));
        if is_out && named.is_none() {
            self.piece.excluded += 1;
            return;
        }
        if stat.kind != Kind::Dir
            && let Some(named) = named
            && !named.children.is_empty()
        {
            let path = self.path_of(&name);
            let error = Error::io("open the folder", &path, Errno::NOTDIR);
            self.piece.errors.push((path, error));
            if is_out || !select.whole && !is_source {
                return;
            }
        }
        let mut role = Role::Usual;
        if is_source && self.is_stream(dir, &name, &mut stat) {
            role = Role::Stream;
        }
        let mut flags = Flags::default();
        if stat.kind == Kind::Dir {
            let own_name = self.own_name.as_deref().unwrap_or(&name);
            if self.is_left_alone(named, &stat) {
                role = Role::NotEntered;
            } else if !can_list(dir, own_name) {
                flags = Flags::UNLISTED;
            }
            self.descend(dir, &name, &stat, is_out, flags);
        }
        self.piece.found.push(WalkedEntry {
            name,
            stat,
            flags,
            role,
            own_name: self.own_name.take(),
            opened,
        });
    }

    /// Reports a name of which `stat` failed, unless it would be left out. A file that was deleted since it was listed
    /// is left out as if it had never been there; a missing source is the user's mistake.
    fn cannot_stat(
        &mut self,
        dir: &Arc<OwnedFd>,
        name: Vec<u8>,
        listed_as: ListedAs,
        is_named: bool,
        e: Errno,
    ) {
        if !is_named && e == Errno::NOENT {
            return;
        }
        if !is_named && self.is_out_unseen(dir, &name, listed_as) {
            self.piece.excluded += 1;
            return;
        }
        let path = self.path_of(&name);
        let error = Error::io("stat", &path, e);
        self.piece.errors.push((path, error));
        if self.select.whole && e != Errno::NOENT {
            self.piece.found.push(WalkedEntry {
                name,
                stat: Stat::unknown(),
                flags: Flags::UNREADABLE,
                role: Role::Usual,
                own_name: None,
                opened: None,
            });
        }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        path::join(&self.piece.folder, name)
    }
}

/// Whether a folder's names can be listed and looked at. This is asked before it is listed, since its own entry is
/// written before those in it.
fn can_list(dir: &OwnedFd, name: &[u8]) -> bool {
    let access = Access::READ_OK | Access::EXEC_OK;
    match rustix::fs::accessat(dir, name, access, AtFlags::empty()) {
        // The folder was deleted meanwhile: that shows again when it is opened.
        Ok(()) | Err(Errno::NOENT) => return true,
        Err(_) => {}
    }
    // `accessat` asks for the real user, who may have fewer rights than this program.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(dir, name, flags, Mode::empty())
        .is_ok_and(|folder| Stat::at(folder, b".", false).is_ok())
}

/// Reads the first bytes of a regular file, at most `max`.
fn read_start(dir: &OwnedFd, name: &[u8], max: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    if Stat::of(&file).ok()?.kind != Kind::File {
        return None;
    }
    let mut start = vec![0; max];
    let mut filled = 0;
    while filled < max {
        match unless_interrupted(|| rustix::io::read(&file, &mut start[filled..])) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(_) => return None,
        }
    }
    start.truncate(filled);
    Some(start)
}

const _: () = assert!(PASS_BYTES_MAX / NAME_OVERHEAD_BYTES < PASS_STRIDE as usize);
