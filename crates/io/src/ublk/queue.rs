//! One queue of a device: requests come from it, and answers go back, by the thread that opened it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types::Fd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::wire::{
    Answer, COMMIT_AND_FETCH, DESCRIPTOR_BYTES, FETCH, UblkRequest, data_offset, descriptors,
    queue_command,
};
use crate::os::FileWindow;

/// Number by which the bell's completion is known; tags are below.
const BELL: u64 = u64::MAX;
/// Time that the system takes at most to make a device's file.
const FILE_MAX: Duration = Duration::from_secs(10);

/// The file `/dev/ublkcN`, by which the bytes of requests are copied.
pub struct UblkData(File);

impl UblkData {
    /// Opens the file of a device that was just made. No other process can have it open.
    ///
    /// # Errors
    /// The system does not make the file, or another process has it.
    pub fn open(id: u32) -> io::Result<Self> {
        let path = format!("/dev/ublkc{id}");
        let started = Instant::now();
        loop {
            match File::options().read(true).write(true).open(&path) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && started.elapsed() < FILE_MAX =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened.map(Self),
            }
        }
    }

    /// Copies the data of a write that is not answered yet.
    ///
    /// # Errors
    /// The kernel has given the request up.
    pub fn read(&self, queue: u16, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(data, data_offset(queue, tag))
    }

    /// Copies the data of a read that is not answered yet.
    ///
    /// # Errors
    /// The kernel has given the request up.
    pub fn write(&self, queue: u16, tag: u16, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, data_offset(queue, tag))
    }
}

/// Time after which a ring is tried again for which the system had no memory.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Outcome of a call of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingCall {
    /// The kernel did what was asked.
    Done,
    /// The kernel has to be asked again, after this time: what it did not take is still there.
    Again(Duration),
}

impl RingCall {
    /// A signal, or want of memory, passes; with any other error the ring is lost.
    fn of(result: io::Result<usize>) -> io::Result<Self> {
        let error = match result {
            Ok(_) => return Ok(Self::Done),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => Ok(Self::Again(Duration::ZERO)),
            Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => Ok(Self::Again(AGAIN_AFTER)),
            _ => {
                let what = format!("its ring (io_uring) takes no more calls: {error}");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    /// Waits where it has to be asked again; returns whether that is so.
    fn pauses(self) -> bool {
        match self {
            Self::Done => false,
            Self::Again(time) => {
                std::thread::sleep(time);
                true
            }
        }
    }
}

/// Wakes the thread of a queue.
pub struct QueueBell(OwnedFd);

impl QueueBell {
    /// Has [`Queue::wait`] return.
    pub fn ring(&self) {
        // A bell that rings already is full: then there is nothing to add.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// One queue of a device.
pub struct Queue {
    data: Arc<UblkData>,
    number: u16,
    ring: IoUring,
    descriptors: FileWindow,
    bell: Arc<QueueBell>,
    /// Tags whose commands the kernel has, or will have again.
    alive: usize,
}

impl Queue {
    /// Opens a queue, and asks the kernel for as many requests as it holds. From then on this thread alone can use it.
    ///
    /// # Errors
    /// The driver refuses; the system has no ring or memory left.
    pub fn open(data: Arc<UblkData>, number: u16, depth: u16) -> io::Result<Self> {
        let place = descriptors(number, depth, rustix::param::page_size());
        let bytes = (place.end - place.start) as usize;
        let descriptors = FileWindow::map(data.0.as_fd(), place.start, bytes)
            .ok_or_else(|| io::Error::other("the queue's descriptors cannot be mapped"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut queue = Self {
            data,
            number,
            ring: IoUring::new(u32::from(depth) + 1)?,
            descriptors,
            bell: Arc::new(QueueBell(bell)),
            alive: depth.into(),
        };
        queue.push(&queue.listen())?;
        for tag in 0..depth {
            queue.push(&queue.command(FETCH, Answer { tag, result: 0 }))?;
        }
        queue.ring.submit()?;
        // A refusal of the driver is there at once; it would wait for that tag for ever.
        match queue.completed() {
            Some((_, result)) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(queue),
        }
    }

    /// The bell of this queue, for other threads.
    pub fn bell(&self) -> Arc<QueueBell> {
        self.bell.clone()
    }

    /// Answers a request. The kernel learns of it with the next [`wait`](Self::wait).
    ///
    /// # Errors
    /// The kernel takes no more commands.
    pub fn answer(&mut self, answer: Answer) -> io::Result<()> {
        let entry = self.command(COMMIT_AND_FETCH, answer);
        self.push(&entry)
    }

    /// Passes answers on, and waits until there are requests, which it adds to `requests`, or until the bell rings, or
    /// for a short time where the system has no memory for more now. Returns `false` once the device is gone, and no
    /// request will come any more.
    ///
    /// # Errors
    /// The ring has failed: the queue must not be used again.
    pub fn wait(&mut self, requests: &mut Vec<UblkRequest>) -> io::Result<bool> {
        // Completions are there, or room for more calls is made by taking them.
        RingCall::of(self.ring.submit_and_wait(1))?.pauses();
        let mut has_rung = false;
        while let Some(done) = self.completed() {
            match done {
                (BELL, _) => has_rung = true,
                (tag, 0) => requests.push(self.request(tag as u16)),
                // The device was stopped, or the driver refused an answer.
                (_, _) => self.alive = self.alive.saturating_sub(1),
            }
        }
        if has_rung {
            self.bell.silence();
            let entry = self.listen();
            self.push(&entry)?;
        }
        Ok(self.alive > 0)
    }

    /// The next completion: the command's number, and its result.
    fn completed(&mut self) -> Option<(u64, i32)> {
        let done = self.ring.completion().next()?;
        Some((done.user_data(), done.result()))
    }

    /// The request that the kernel has described before it completed the tag's command.
    fn request(&self, tag: u16) -> UblkRequest {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        let start = usize::from(tag) * DESCRIPTOR_BYTES;
        descriptor.copy_from_slice(&self.descriptors[start..start + DESCRIPTOR_BYTES]);
        UblkRequest::decode(tag, &descriptor)
    }

    fn command(&self, command: u32, answer: Answer) -> squeue::Entry {
        let bytes = queue_command(self.number, answer.tag, answer.result);
        opcode::UringCmd16::new(Fd(self.data.0.as_raw_fd()), command)
            .cmd(bytes)
            .build()
            .user_data(answer.tag.into())
    }

    fn listen(&self) -> squeue::Entry {
        const POLLIN: u32 = 1;
        opcode::PollAdd::new(Fd(self.bell.0.as_raw_fd()), POLLIN)
            .build()
            .user_data(BELL)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: neither command names memory of this process, and both files stay open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        if pushed.is_ok() {
            return Ok(());
        }
        while RingCall::of(self.ring.submit())?.pauses() {}
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue ends for good with an error of its ring: only with one that does not pass.
    #[test]
    fn a_signal_and_want_of_memory_do_not_end_a_queue() {
        let call = |errno: Errno| RingCall::of(Err(errno.into()));
        assert_eq!(RingCall::of(Ok(3)).ok(), Some(RingCall::Done));
        let at_once = RingCall::Again(Duration::ZERO);
        assert_eq!(call(Errno::INTR).ok(), Some(at_once));
        for errno in [Errno::AGAIN, Errno::BUSY, Errno::NOMEM] {
            let later = call(errno).ok();
            assert_eq!(later, Some(RingCall::Again(AGAIN_AFTER)), "{errno}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::FAULT] {
            let said = call(errno).expect_err("the ring is lost").to_string();
            assert!(said.starts_with("its ring"), "{said}");
        }
    }
}
