//! The tree as a FUSE file system: each request is one question to [`Vfs`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyXattr, Request,
};
use onefold_backup::vfs::number::Number;
use onefold_backup::vfs::{Attributes, ListedName, OpenFile, Vfs};
use onefold_backup::{Kind, Result};
use parking_lot::Mutex;

use crate::answers::{attributes, errno, kind};
use crate::options::Options;

/// The kernel may believe for so long what is in a snapshot: it never changes.
const FIXED_TTL: Duration = Duration::from_secs(24 * 3600);
/// And for so long which snapshots there are.
const SHELF_TTL: Duration = Duration::from_secs(1);
/// Age of the list of snapshots at which it is read again, when somebody asks for it.
const REFRESH_AFTER: Duration = Duration::from_secs(1);
/// After a store gave no answer, it is asked again no sooner.
const FAILED_REFRESH_AFTER: Duration = Duration::from_secs(30);
/// Largest request of the kernel's, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// `lseek` (linux/fs.h).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Snapshots as a file system.
pub struct Snapshots {
    vfs: Arc<Vfs>,
    options: Options,
    open: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
    refresh_at: Mutex<Instant>,
}

impl Snapshots {
    /// The file system of a tree.
    pub fn new(vfs: Arc<Vfs>, options: Options) -> Self {
        Self {
            vfs,
            options,
            open: Mutex::default(),
            next_handle: AtomicU64::new(1),
            refresh_at: Mutex::new(Instant::now() + REFRESH_AFTER),
        }
    }

    /// Before somebody is told which snapshots there are. Where another thread waits for the store's answer, or none
    /// came a moment ago, those that are known are told.
    fn refresh_for(&self, number: u64) {
        if !matches!(Number::decode(number), Some(Number::Shelf(_))) {
            return;
        }
        let Some(mut refresh_at) = self.refresh_at.try_lock() else {
            return;
        };
        if Instant::now() >= *refresh_at {
            let after = match self.vfs.refresh() {
                Ok(()) => REFRESH_AFTER,
                Err(_) => FAILED_REFRESH_AFTER,
            };
            *refresh_at = Instant::now() + after;
        }
    }

    fn opened(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        self.open.lock().get(&handle.0).cloned()
    }

    fn answer_seek(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let open = self.opened(handle).ok_or(Errno::EBADF)?;
        let wants_data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let found = self.vfs.seek(&open, offset, wants_data);
        let found = found.map_err(|error| errno(&error))?;
        let found = found.ok_or(Errno::ENXIO)?;
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }
}

fn ttl(of: &Attributes) -> &'static Duration {
    if of.is_fixed { &FIXED_TTL } else { &SHELF_TTL }
}

/// The places of `.` and `..` come before those of a folder's names.
const DOTS: [&str; 2] = [".", ".."];

impl Filesystem for Snapshots {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
        ];
        for one in wanted {
            let _ = config.add_capabilities(one);
        }
        if self.options.checks_permissions {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.refresh_for(parent.0);
        match self.vfs.lookup(parent.0, name.as_bytes()) {
            Ok(Some(found)) => reply.entry(ttl(&found), &attributes(&found), Generation(0)),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        self.vfs.forget(ino.0, times);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.vfs.attributes(ino.0) {
            Ok(Some(found)) => reply.attr(ttl(&found), &attributes(&found)),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.vfs.target(ino.0) {
            Ok(Some(target)) => reply.data(&target),
            Ok(None) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.vfs.open(ino.0) {
            Ok(Some(open)) => {
                let handle = self.next_handle.fetch_add(1, Relaxed);
                self.open.lock().insert(handle, Arc::new(open));
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.opened(FileHandle(handle), flags);
            }
            Ok(None) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(open) = self.opened(handle) else {
            return reply.error(Errno::EBADF);
        };
        let mut bytes = Vec::with_capacity(size as usize);
        let read = self
            .vfs
            .read(ino.0, &open, offset, size as usize, &mut bytes);
        match read {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.answer_seek(handle, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let is_shelf = matches!(Number::decode(ino.0), Some(Number::Shelf(_)));
        let flags = if is_shelf {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
        };
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.refresh_for(ino.0);
        for (place, name) in (0..).zip(DOTS).skip(offset as usize) {
            if reply.add(ino, place + 1, kind(Kind::Dir), name) {
                return reply.ok();
            }
        }
        let listed = self.vfs.list(ino.0, offset.saturating_sub(2), &mut |one| {
            let name = OsStr::from_bytes(one.name);
            let is_full = reply.add(INodeNo(one.number), one.next + 2, kind(one.kind), name);
            Ok(!is_full)
        });
        match listed {
            Ok(Some(())) => reply.ok(),
            Ok(None) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.refresh_for(ino.0);
        let own = match self.vfs.attributes(ino.0) {
            Ok(Some(own)) => attributes(&own),
            Ok(None) => return reply.error(Errno::ENOENT),
            Err(error) => return reply.error(errno(&error)),
        };
        for (place, name) in (0..).zip(DOTS).skip(offset as usize) {
            if reply.add(ino, place + 1, name, &SHELF_TTL, &own, Generation(0)) {
                return reply.ok();
            }
        }
        let mut add = |one: &ListedName<'_>| {
            let Some(found) = self.vfs.listed(one)? else {
                return Ok(true);
            };
            let name = OsStr::from_bytes(one.name);
            let (next, ttl, found) = (one.next + 2, ttl(&found), attributes(&found));
            let is_full = reply.add(found.ino, next, name, ttl, &found, Generation(0));
            if !is_full {
                self.vfs.told(one);
            }
            Ok(!is_full)
        };
        match self.vfs.list(ino.0, offset.saturating_sub(2), &mut add) {
            Ok(Some(())) => reply.ok(),
            Ok(None) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.vfs.xattrs(ino.0) {
            Ok(xattrs) => {
                let is_it = |(own, _): &&(Box<[u8]>, Box<[u8]>)| **own == *name.as_bytes();
                match xattrs.iter().find(is_it) {
                    Some((_, value)) => answer_xattr(value, size, reply),
                    None => reply.error(Errno::ENODATA),
                }
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.vfs.xattrs(ino.0) {
            Ok(xattrs) => {
                let names = xattrs.iter().flat_map(|(name, _)| [&name[..], b"\0"]);
                answer_xattr(&names.collect::<Vec<_>>().concat(), size, reply);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

fn answer_xattr(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        size if size < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
