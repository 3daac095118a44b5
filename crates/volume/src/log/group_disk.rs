//! The data device, to which one group is written while the next is filled. Until a group is on the device, its bytes
//! are read from the memory that it is written from.
//!
//! ```text
//! hold ─▶ read from memory ─▶ start ─▶ written ─▶ settle ─▶ read from the device; its memory is free again
//! ```
//!
//! Whoever waits at once does not start a thread's write: `settle` writes what was not started.
//!
//! Invariant: whoever reads a place that a group was held for gets the group's bytes, also where its write has failed.

use std::sync::Arc;

use onefold_io::{Disk, Error, ErrorKind, ReadAt, Result};
use parking_lot::Mutex;

use super::group_buffer::GroupBuffer;
use crate::side_threads::{Running, SideThreads};

/// The data device of an engine.
pub struct GroupDisk {
    disk: Arc<dyn Disk>,
    /// The thread that writes, where there is one.
    writer: SideThreads,
    state: Mutex<GroupState>,
    /// The write of the group that is held. Locked while somebody waits for it, before `state`; readers leave it alone.
    running: Mutex<Option<Running<Result<()>>>>,
}

#[derive(Default)]
struct GroupState {
    /// The group that is not known to be on the device.
    held: Option<Arc<HeldGroup>>,
    /// The memory of an earlier group.
    spare: Option<GroupBuffer>,
    /// Why a group could not be written: nothing is written after it.
    failure: Option<(ErrorKind, String)>,
}

struct HeldGroup {
    buffer: GroupBuffer,
    /// Where it belongs on the device.
    offset: u64,
}

impl HeldGroup {
    fn end(&self) -> u64 {
        self.offset + self.buffer.group().len() as u64
    }

    /// Fills the part of a read that it has. What is left of the read, before and behind that, goes to `rest`.
    fn fill<'a>(&self, read: &'a mut ReadAt<'_>, rest: &mut Vec<ReadAt<'a>>) {
        let (start, end) = (read.offset, read.offset + read.buf.len() as u64);
        let from = self.offset.clamp(start, end);
        let to = self.end().clamp(from, end);
        let (before, part) = read.buf.split_at_mut((from - start) as usize);
        let (part, behind) = part.split_at_mut((to - from) as usize);
        if !part.is_empty() {
            let there = &self.buffer.group()[(from - self.offset) as usize..];
            part.copy_from_slice(&there[..part.len()]);
        }
        let left = [(start, before), (to, behind)].into_iter();
        let left = left.filter(|(_, buf)| !buf.is_empty());
        rest.extend(left.map(|(offset, buf)| ReadAt { offset, buf }));
    }
}

impl GroupDisk {
    /// Writes groups to `disk`; by a thread, unless `is_inline` says that whoever starts a write does it.
    pub fn new(disk: Arc<dyn Disk>, is_inline: bool) -> Self {
        Self {
            disk,
            writer: SideThreads::unless_inline(is_inline, 1),
            state: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Waits until the group before is on the device, and returns memory for one more, empty.
    ///
    /// # Errors
    /// The device failed.
    pub fn spare(&self) -> Result<GroupBuffer> {
        self.settle()?;
        let spare = self.state.lock().spare.take();
        let mut buffer = spare.unwrap_or_else(GroupBuffer::new);
        buffer.clear();
        Ok(buffer)
    }

    /// Takes a group: from now on it is read. No other one is held.
    pub fn hold(&self, buffer: GroupBuffer, offset: u64) {
        let held = Arc::new(HeldGroup { buffer, offset });
        let before = self.state.lock().held.replace(held);
        debug_assert!(before.is_none(), "one group at a time");
    }

    /// Begins to write the group that is held, once. Of a failure, the next call is told at the latest.
    ///
    /// # Errors
    /// The device failed.
    pub fn start(&self) -> Result<()> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Ok(());
        }
        let Some(write) = self.write_of_held() else {
            return Ok(());
        };
        *running = Some(self.writer.run(write));
        drop(running);
        if self.writer.has_threads() {
            return Ok(());
        }
        self.settle()
    }

    /// The write of the group that is held; none after a failure.
    fn write_of_held(&self) -> Option<impl FnOnce() -> Result<()> + use<>> {
        let state = self.state.lock();
        let held = state.held.clone().filter(|_| state.failure.is_none())?;
        let disk = Arc::clone(&self.disk);
        Some(move || disk.write_at(held.buffer.group(), held.offset))
    }

    /// Waits until all groups are on the device, perhaps in its cache.
    ///
    /// # Errors
    /// The device failed.
    pub fn settle(&self) -> Result<()> {
        let mut running = self.running.lock();
        let written = match running.take() {
            Some(running) => Some(running.wait()),
            None => self.write_of_held().map(|write| Some(write())),
        };
        let mut state = self.state.lock();
        match written {
            None => {}
            Some(Some(Ok(()))) => {
                // A reader may be copying from it: then its memory goes with that.
                let held = state.held.take().and_then(Arc::into_inner);
                state.spare = held.map(|held| held.buffer);
            }
            Some(Some(Err(error))) => state.failure = Some((error.kind, error.to_string())),
            Some(None) => {
                let why = "the thread that wrote it has ended".to_owned();
                state.failure = Some((ErrorKind::Device, why));
            }
        }
        match &state.failure {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new("write", "a group", *kind, why)),
        }
    }
}

impl Disk for GroupDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_many_at(&mut [ReadAt { offset, buf }])
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        // Looked at before the device is read: what is held by then is on the device at most later.
        let Some(held) = self.state.lock().held.clone() else {
            return self.disk.read_many_at(reads);
        };
        let mut rest = Vec::with_capacity(reads.len());
        (reads.iter_mut()).for_each(|read| held.fill(read, &mut rest));
        // Its memory is not kept while the device reads.
        drop(held);
        if rest.is_empty() {
            Ok(())
        } else {
            self.disk.read_many_at(&mut rest)
        }
    }

    fn forget_cached(&self) {
        self.disk.forget_cached();
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.disk.write_at(data, offset)
    }

    /// Groups before it are on the device, too.
    fn sync(&self) -> Result<()> {
        self.settle()?;
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.allocate(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::MemDisk;
    use parking_lot::Condvar;

    use super::super::layout::PAGE_BYTES;
    use super::*;

    /// A disk that writes only while the gate is open, where `before` lets it.
    struct GatedDisk {
        inner: MemDisk,
        gate: Mutex<bool>,
        opened: Condvar,
        before: fn() -> Result<()>,
    }

    fn fail() -> Result<()> {
        Err(Error::new(
            "write",
            "data",
            ErrorKind::Medium,
            "told to fail",
        ))
    }

    impl GatedDisk {
        fn new(before: fn() -> Result<()>) -> Arc<Self> {
            let inner = MemDisk::new();
            inner.set_len(64 << 10).expect("RAM");
            Arc::new(Self {
                inner,
                gate: Mutex::new(false),
                opened: Condvar::new(),
                before,
            })
        }

        fn open(&self) {
            *self.gate.lock() = true;
            self.opened.notify_all();
        }
    }

    impl Disk for GatedDisk {
        fn len(&self) -> Result<u64> {
            self.inner.len()
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.inner.read_at(buf, offset)
        }

        fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
            let mut is_open = self.gate.lock();
            while !*is_open {
                self.opened.wait(&mut is_open);
            }
            drop(is_open);
            (self.before)()?;
            self.inner.write_at(data, offset)
        }

        fn sync(&self) -> Result<()> {
            self.inner.sync()
        }

        fn set_len(&self, len: u64) -> Result<()> {
            self.inner.set_len(len)
        }

        fn discard(&self, offset: u64, len: u64) -> Result<()> {
            self.inner.discard(offset, len)
        }
    }

    /// A group with a header of sevens and two pages of data, of nines.
    fn group(mut buffer: GroupBuffer) -> GroupBuffer {
        buffer.push(&[9; 2 * PAGE_BYTES]);
        buffer.set_header(&[7; PAGE_BYTES]);
        buffer
    }

    /// The first byte of each of the first six pages; the group begins at page 2.
    const EXPECTED: [u8; 6] = [0, 0, 7, 9, 9, 0];

    fn assert_read(disk: &GroupDisk) {
        let page = |at: usize| (at * PAGE_BYTES) as u64;
        for first in 0..EXPECTED.len() {
            for end in first + 1..=EXPECTED.len() {
                let mut buf = vec![1; (end - first) * PAGE_BYTES];
                disk.read_at(&mut buf, page(first)).expect("RAM");
                for (found, expected) in buf.chunks(PAGE_BYTES).zip(&EXPECTED[first..end]) {
                    assert!(found.iter().all(|byte| byte == expected), "{first}..{end}");
                }
            }
        }
        let (mut outside, mut inside) = ([1; 8], [1; 8]);
        let mut reads = [
            ReadAt {
                offset: page(5),
                buf: &mut outside,
            },
            ReadAt {
                offset: page(3) + 8,
                buf: &mut inside,
            },
        ];
        disk.read_many_at(&mut reads).expect("RAM");
        assert_eq!((outside, inside), ([0; 8], [9; 8]));
    }

    #[test]
    fn a_group_is_read_before_while_and_after_it_is_written() {
        let gated = GatedDisk::new(|| Ok(()));
        let disk = GroupDisk::new(gated.clone(), false);
        disk.hold(group(disk.spare().expect("new")), 2 * PAGE_BYTES as u64);
        assert_read(&disk);
        disk.start().expect("by a thread");
        assert_read(&disk);
        let mut on_device = [1];
        gated
            .read_at(&mut on_device, 2 * PAGE_BYTES as u64)
            .expect("RAM");
        assert_eq!(on_device, [0], "the gate is shut");
        gated.open();
        disk.sync().expect("written");
        gated
            .read_at(&mut on_device, 2 * PAGE_BYTES as u64)
            .expect("RAM");
        assert_eq!(on_device, [7]);
        assert_read(&disk);
        assert!(disk.spare().expect("written").group().is_empty());
    }

    #[test]
    fn a_disk_that_goes_writes_its_group_first() {
        let gated = GatedDisk::new(|| Ok(()));
        let disk = GroupDisk::new(gated.clone(), false);
        disk.hold(group(GroupBuffer::new()), 2 * PAGE_BYTES as u64);
        disk.start().expect("by a thread");
        gated.open();
        drop(disk);
        assert_read(&GroupDisk::new(gated, true));
    }

    #[test]
    fn a_group_that_cannot_be_written_is_read_and_nothing_follows_it() {
        for is_inline in [true, false] {
            let gated = GatedDisk::new(fail);
            gated.open();
            let disk = GroupDisk::new(gated, is_inline);
            disk.hold(group(GroupBuffer::new()), 2 * PAGE_BYTES as u64);
            let started = disk.start();
            assert_eq!(started.is_err(), is_inline);
            for told in [disk.sync(), disk.settle(), disk.spare().map(drop)] {
                let error = told.expect_err("the write failed");
                assert_eq!(error.kind, ErrorKind::Medium);
                assert!(error.to_string().contains("told to fail"), "{error}");
            }
            assert_read(&disk);
        }
    }

    #[test]
    fn a_group_that_nobody_started_is_written_by_who_waits() {
        let gated = GatedDisk::new(|| Ok(()));
        gated.open();
        let disk = GroupDisk::new(gated.clone(), false);
        disk.hold(group(GroupBuffer::new()), 2 * PAGE_BYTES as u64);
        assert_read(&disk);
        disk.sync().expect("written");
        let mut on_device = [1];
        gated
            .read_at(&mut on_device, 2 * PAGE_BYTES as u64)
            .expect("RAM");
        assert_eq!(on_device, [7]);
        assert_read(&disk);
    }

    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        let gated = GatedDisk::new(|| panic!("a fault of the disk"));
        gated.open();
        let disk = GroupDisk::new(gated, false);
        disk.hold(group(GroupBuffer::new()), 2 * PAGE_BYTES as u64);
        disk.start().expect("by a thread");
        assert!(disk.sync().is_err());
        assert_read(&disk);
    }
}
