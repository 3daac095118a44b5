//! A device as one file of a FUSE file system, for a loop device to stand on: works on kernels without nbd and ublk.
//!
//! The file is opened past the page cache with parallel writes, so requests reach the device as they come: `fsync` is a
//! flush, a punched hole is a discard. Each request is handed to the device at once and answered by the thread that
//! completes it, so none waits for another.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, WriteFlags,
};
use onefold_volume::{BlockDevice, Buffer, Completion, Error, Hints, Op, Request, Result};

use crate::host;
use crate::nbd::{Memory, MemoryUse, Share};

/// Largest request of the kernel's, in bytes: 256 pages.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel keeps under way.
const IN_FLIGHT_MAX: u16 = 128;
/// Memory of requests with data, in bytes, of which the one device takes a quarter. More requests wait for a thread.
const REQUEST_BYTES: usize = 128 << 20;
/// Threads that take requests.
const THREADS: usize = 4;
/// Time for which the kernel may keep names and attributes: it is told where the size changes.
const TTL: Duration = Duration::from_secs(3600);

const FILE: INodeNo = INodeNo(2);
/// Modes of `fallocate` (linux/falloc.h).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// A mounted device. Dropping it unmounts.
pub struct MountedDevice(BackgroundSession);

/// Mounts a file system at `folder` with the one file `name`, which is `device`.
///
/// # Errors
/// There is no FUSE, or it may not be mounted.
pub fn mount(device: Arc<dyn BlockDevice>, folder: &Path, name: &str) -> io::Result<MountedDevice> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("onefold".into()),
        MountOption::Subtype("onefold".into()),
        MountOption::NoAtime,
    ];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let device = FuseDevice {
        device,
        name: name.into(),
        memory: Memory::new(REQUEST_BYTES),
        share: Arc::default(),
        since: SystemTime::now(),
    };
    fuser::spawn_mount(device, folder, &config).map(MountedDevice)
}

impl MountedDevice {
    /// Has the kernel ask for the size again.
    ///
    /// # Errors
    /// The file system is gone.
    pub fn grown(&self) -> io::Result<()> {
        // A negative offset: the pages stay, and the attributes are asked for.
        self.0.notifier().inval_inode(FILE, -1, 0)
    }

    /// Unmounts, and ends when the last request is answered. Where another namespace has a copy of the mount, it lives
    /// on there, and its threads are left alone: requests fail once the device behind is closed.
    pub fn unmount(self) {
        let threads = unmounted(self.0);
        match host::wait_for(|| threads.is_finished().then_some(())) {
            Some(()) => drop(threads.join()),
            None => tracing::warn!("the FUSE file system is still mounted in another namespace"),
        }
    }
}

/// The threads of a session, which end once nothing has it mounted. Dropping its other parts unmounts it here.
fn unmounted(session: BackgroundSession) -> JoinHandle<io::Result<()>> {
    session.guard
}

struct FuseDevice {
    device: Arc<dyn BlockDevice>,
    name: String,
    memory: Arc<Memory>,
    share: Arc<Share>,
    since: SystemTime,
}

impl FuseDevice {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let geometry = self.device.geometry();
        let (kind, size, perm) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0, 0o500),
            FILE if geometry.is_writable => (FileType::RegularFile, geometry.bytes, 0o600),
            FILE => (FileType::RegularFile, geometry.bytes, 0o400),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Hands one request to the device; `answer` is called once.
    fn submit(
        &self,
        (op, offset, bytes): (Op, u64, u64),
        buffer: Buffer,
        answer: impl FnOnce(Result<Buffer>) + Send + 'static,
    ) {
        self.device.submit(&mut vec![Request {
            op,
            offset,
            bytes,
            buffer,
            fua: false,
            hints: Hints::default(),
            completion: Completion::new(answer),
        }]);
    }

    /// One that has no data.
    fn submit_empty(&self, what: (Op, u64, u64), reply: ReplyEmpty) {
        self.submit(what, Buffer::zeroed(0), move |result| match result {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        });
    }
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::NoSpace { .. } => Errno::ENOSPC,
        Error::ReadOnly { .. } => Errno::EROFS,
        Error::Invalid { .. } => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

impl Filesystem for FuseDevice {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(IN_FLIGHT_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == INodeNo::ROOT && name == self.name.as_str() => {
                reply.entry(&TTL, &file, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let all = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, &self.name),
        ];
        for (place, (ino, kind, name)) in all.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, place as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &fuser::Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        match ino {
            FILE => reply.opened(FileHandle(0), flags),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.device.geometry().bytes;
        let bytes = u64::from(size).min(end.saturating_sub(offset));
        if bytes == 0 {
            return reply.data(&[]);
        }
        let memory = self.memory.clone();
        let permit = memory.take(&self.share, bytes as usize, MemoryUse::Request);
        let buffer = memory.buffer(bytes as usize);
        self.submit(
            (Op::Read, offset, bytes),
            buffer,
            move |result| match result {
                Ok(buffer) => {
                    reply.data(&buffer);
                    memory.keep(buffer);
                    drop(permit);
                }
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let memory = self.memory.clone();
        let permit = memory.take(&self.share, data.len(), MemoryUse::Request);
        let mut buffer = memory.buffer(data.len());
        buffer.copy_from_slice(data);
        let bytes = data.len() as u32;
        self.submit(
            (Op::Write, offset, u64::from(bytes)),
            buffer,
            move |result| match result {
                Ok(buffer) => {
                    reply.written(bytes);
                    memory.keep(buffer);
                    drop(permit);
                }
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.submit_empty((Op::Flush, 0, 0), reply);
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // The loop device says in the same way that blocks are no longer needed and that they are to be zero: so they
        // are made zero, which a discard alone need not do.
        const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
        match mode {
            PUNCH => self.submit_empty((Op::WriteZeroes, offset, length), reply),
            mode if mode & !KEEP_SIZE == ZERO_RANGE => {
                self.submit_empty((Op::WriteZeroes, offset, length), reply);
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }
}
