//! A device that the kernel's driver ublk serves: one queue a core, each with a thread that hands everything that waits
//! to the device at once. Answers come from any thread, which copies a read's data itself, and go back by the queue's
//! thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use onefold_io::ublk::{
    Answer, Control, NewDevice, Queue, QueueBell, UblkData, UblkOp, UblkRequest,
};
use onefold_volume::{BlockDevice, Buffer, Completion, Error, Hints, Op, Request};
use parking_lot::Mutex;

use crate::nbd::{Memory, MemoryUse, Share};

/// Requests that a queue holds at once.
const DEPTH: u16 = 128;
/// Queues at most.
const QUEUES_MAX: usize = 16;
/// Longest request with data, in bytes.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Memory of requests in flight, in bytes, of which one queue takes a quarter: the process takes some 48 MiB besides
/// the depot's RAM, and this is the largest part of it. More requests wait in the kernel.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Begin of the mark by which devices of this program are known; the other half is the process.
const MARK: u64 = 0x3146_6c64 << 32;
/// Numbers of errors as the kernel wants them.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;

/// A device of the driver ublk. Dropped without [`remove`](Self::remove), it goes with the process.
pub struct UblkDevice {
    control: Control,
    id: u32,
    queues: Vec<JoinHandle<()>>,
}

impl UblkDevice {
    /// Makes the block device.
    ///
    /// # Errors
    /// The driver is not there, or refuses.
    pub fn make(device: &Arc<dyn BlockDevice>) -> io::Result<Self> {
        let geometry = device.geometry();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut control = Control::open()?;
        let info = control.add(&NewDevice {
            bytes: geometry.bytes,
            block_bytes: geometry.chunk_bytes,
            io_bytes_max: IO_BYTES_MAX,
            is_writable: geometry.is_writable,
            queues: cores.min(QUEUES_MAX) as u16,
            depth: DEPTH,
            mark: mark(std::process::id()),
        })?;
        let mut made = Self {
            control,
            id: info.id,
            queues: Vec::new(),
        };
        let started = made
            .start_queues(device, info.queues, info.depth)
            .and_then(|()| made.control.start(made.id));
        match started {
            Ok(()) => Ok(made),
            Err(error) => {
                let _ = made.remove();
                Err(error)
            }
        }
    }

    /// The block device's path.
    pub fn path(&self) -> PathBuf {
        path(self.id)
    }

    /// Has the block device take the size that the device has now.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] before Linux 6.16.
    pub fn grown(&mut self, bytes: u64) -> io::Result<()> {
        self.control.resize(self.id, bytes)
    }

    /// Removes the block device. What was sent before is answered by the device before this returns.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn remove(&mut self) -> io::Result<()> {
        self.control.stop(self.id)?;
        for queue in self.queues.drain(..) {
            let _ = queue.join();
        }
        self.control.delete(self.id)
    }

    fn start_queues(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        queues: u16,
        depth: u16,
    ) -> io::Result<()> {
        let data = Arc::new(UblkData::open(self.id)?);
        let memory = Memory::new(REQUEST_BYTES_MAX);
        for number in 0..queues {
            let (device, data, memory) = (device.clone(), data.clone(), memory.clone());
            let (sender, opened) = mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("ublk-{number}"));
            self.queues.push(thread.spawn(move || {
                match Queue::open(data.clone(), number, depth) {
                    Ok(queue) => {
                        let answers = Arc::new(Answers::new(queue.bell()));
                        let _ = sender.send(Ok(()));
                        let share = Arc::default();
                        QueueServer {
                            number,
                            device,
                            data,
                            memory,
                            share,
                            answers,
                        }
                        .serve(queue);
                    }
                    Err(error) => drop(sender.send(Err(error))),
                }
            })?);
            opened
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("a queue's thread has ended")))?;
        }
        Ok(())
    }
}

fn path(id: u32) -> PathBuf {
    format!("/dev/ublkb{id}").into()
}

fn mark(process: u32) -> u64 {
    MARK | u64::from(process)
}

/// The number of a device of this driver, by its path.
fn id_of(device: &std::path::Path) -> Option<u32> {
    device.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()
}

/// Whether `process`, which has died, has left this device.
pub fn is_left(device: &std::path::Path, process: u64) -> bool {
    let (Some(id), Ok(mut control)) = (id_of(device), Control::open()) else {
        return false;
    };
    let info = control.info(id);
    info.is_ok_and(|info| u32::try_from(process).is_ok_and(|process| info.mark == mark(process)))
}

/// Removes a device whose process has died.
///
/// # Errors
/// The driver refuses.
pub fn remove_left(device: &std::path::Path) -> io::Result<()> {
    match id_of(device) {
        Some(id) => Control::open()?.delete(id),
        None => Ok(()),
    }
}

/// Answers on their way to the thread of a queue.
struct Answers {
    state: Mutex<WaitingTag>,
    bell: Arc<QueueBell>,
}

#[derive(Default)]
struct WaitingTag {
    answers: Vec<Answer>,
    /// Whether the thread waits in the kernel, so that only the bell reaches it.
    is_asleep: bool,
}

impl Answers {
    fn new(bell: Arc<QueueBell>) -> Self {
        let state = Mutex::default();
        Self { state, bell }
    }

    fn add(&self, tag: u16, result: i32) {
        let mut state = self.state.lock();
        state.answers.push(Answer { tag, result });
        if std::mem::take(&mut state.is_asleep) {
            drop(state);
            self.bell.ring();
        }
    }

    /// The answers so far. Where there are none, the thread goes to sleep, and the next one rings.
    fn take(&self) -> Vec<Answer> {
        let mut state = self.state.lock();
        state.is_asleep = state.answers.is_empty();
        std::mem::take(&mut state.answers)
    }

    fn is_awake(&self) {
        self.state.lock().is_asleep = false;
    }
}

/// The state of a queue's thread.
struct QueueServer {
    number: u16,
    device: Arc<dyn BlockDevice>,
    data: Arc<UblkData>,
    memory: Arc<Memory>,
    share: Arc<Share>,
    answers: Arc<Answers>,
}

impl QueueServer {
    /// Serves the queue until the device is removed.
    fn serve(&self, mut queue: Queue) {
        let mut arrived = Vec::new();
        loop {
            let waited = self
                .pass_on(&mut queue)
                .and_then(|()| queue.wait(&mut arrived));
            self.answers.is_awake();
            match waited {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(
                        "queue {} of the block device has failed: {error}",
                        self.number
                    );
                    return;
                }
            }
            self.submit(arrived.drain(..));
        }
    }

    /// Passes answers on until there are none: only then the next one rings.
    fn pass_on(&self, queue: &mut Queue) -> io::Result<()> {
        loop {
            let answers = self.answers.take();
            if answers.is_empty() {
                return Ok(());
            }
            answers
                .into_iter()
                .try_for_each(|answer| queue.answer(answer))?;
        }
    }

    fn submit(&self, arrived: impl Iterator<Item = UblkRequest>) {
        let mut batch = Vec::new();
        for request in arrived {
            match request.op {
                UblkOp::Read | UblkOp::Write => self.add_with_data(&request, &mut batch),
                UblkOp::Flush => batch.push(self.without_data(&request, Op::Flush)),
                UblkOp::Discard => batch.push(self.without_data(&request, Op::Discard)),
                UblkOp::WriteZeroes => batch.push(self.without_data(&request, Op::WriteZeroes)),
                UblkOp::Unknown => self.answers.add(request.tag, -EOPNOTSUPP),
            }
        }
        if !batch.is_empty() {
            self.device.submit(&mut batch);
        }
    }

    /// Adds a read or write to the batch. Where there is no memory for it, the batch goes first: a thread that waits
    /// for memory must hold none.
    fn add_with_data(&self, asked: &UblkRequest, batch: &mut Vec<Request>) {
        let bytes = asked.bytes as usize;
        let permit = match self.memory.try_take(&self.share, bytes, MemoryUse::Request) {
            Some(permit) => permit,
            None => {
                self.device.submit(batch);
                self.memory.take(&self.share, bytes, MemoryUse::Request)
            }
        };
        let (number, tag) = (self.number, asked.tag);
        let (data, memory, answers) =
            (self.data.clone(), self.memory.clone(), self.answers.clone());
        let mut buffer = memory.buffer(bytes);
        let is_read = asked.op == UblkOp::Read;
        if !is_read && data.read(number, tag, &mut buffer).is_err() {
            return answers.add(tag, -EIO);
        }
        let completion = Completion::new(move |result| {
            let done = match result {
                Ok(buffer) if !is_read => Ok(buffer),
                Ok(buffer) => data
                    .write(number, tag, &buffer)
                    .map(|()| buffer)
                    .map_err(|_| -EIO),
                Err(error) => Err(-errno(&error)),
            };
            answers.add(
                tag,
                done.as_ref().map_or_else(|errno| *errno, |_| bytes as i32),
            );
            done.into_iter().for_each(|buffer| memory.keep(buffer));
            drop(permit);
        });
        let op = if is_read { Op::Read } else { Op::Write };
        batch.push(request(asked, op, buffer, completion));
    }

    fn without_data(&self, asked: &UblkRequest, op: Op) -> Request {
        let (answers, tag) = (self.answers.clone(), asked.tag);
        let completion = Completion::new(move |result| {
            answers.add(tag, result.map_or_else(|error| -errno(&error), |_| 0));
        });
        request(asked, op, Buffer::zeroed(0), completion)
    }
}

fn request(asked: &UblkRequest, op: Op, buffer: Buffer, completion: Completion) -> Request {
    let has_range = op != Op::Flush;
    Request {
        op,
        offset: if has_range { asked.offset } else { 0 },
        bytes: if has_range { asked.bytes } else { 0 },
        buffer,
        fua: asked.is_fua,
        hints: Hints {
            metadata: asked.is_metadata,
            ..Hints::default()
        },
        completion,
    }
}

fn errno(error: &Error) -> i32 {
    match error {
        Error::NoSpace { .. } => ENOSPC,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_number_of_its_device() {
        assert_eq!(id_of(&path(12)), Some(12));
        assert_eq!(id_of("/dev/loop3".as_ref()), None);
        assert_ne!(mark(7), mark(8));
    }

    #[test]
    fn a_request_keeps_its_range_and_metadata_becomes_a_hint() {
        let asked = UblkRequest {
            tag: 3,
            op: UblkOp::Write,
            offset: 4096,
            bytes: 512,
            is_fua: true,
            is_metadata: true,
        };
        let made = request(
            &asked,
            Op::Write,
            Buffer::zeroed(512),
            Completion::new(drop),
        );
        assert_eq!((made.offset, made.bytes, made.fua), (4096, 512, true));
        assert!(made.hints.metadata && !made.hints.nodedup);
        let flush = request(&asked, Op::Flush, Buffer::zeroed(0), Completion::new(drop));
        assert_eq!((flush.offset, flush.bytes), (0, 0));
    }
}
