//! The seam between transports and volumes: a block device that takes batches of requests.
//!
//! A transport parses what its socket or queue holds into requests and submits them together, so that the reads of one
//! batch reach the data device at once. Each request is answered exactly once through its [`Completion`], also when it
//! is dropped by mistake.

use std::ops::Range;

use crate::{Buffer, Error, Result};

/// A block device in user space. Transports serve it; the front implements it, and so does a raw file, by which a
/// transport's own cost is measured.
pub trait BlockDevice: Send + Sync {
    /// Size, limits and name. The size may grow while the device is served.
    fn geometry(&self) -> Geometry;

    /// Takes all `requests` and leaves the vector empty. Each completion is called once, by any thread, perhaps before
    /// this returns. Requests of one call may be carried out in any order and side by side, except that writes to one
    /// block that were submitted one after the other end in that order. A [`Op::Flush`] covers every write that was
    /// answered before it was submitted, on any connection.
    fn submit(&self, requests: &mut Vec<Request>);

    /// Calls `visit` for each stretch of `range` (bytes), in order and without gaps: what block status answers.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the end; the metadata cannot be read.
    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()>;
}

/// Is called for each stretch in bytes, in order; `false` ends the walk early.
pub type Visit<'a> = &'a mut dyn FnMut(Range<u64>, ExtentKind) -> bool;

/// Properties of a device that a transport tells its clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of the device, in bytes.
    pub bytes: u64,
    /// The unit in which the device works best, in bytes: a power of two. Requests need not be aligned to it.
    pub chunk_bytes: u32,
    /// Longest read or write, in bytes.
    pub io_bytes_max: u32,
    /// Whether writes are taken.
    pub is_writable: bool,
    /// The export's name: a volume, or volume and snapshot.
    pub name: String,
}

/// Content of a stretch of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentKind {
    /// Bytes that were written.
    Data,
    /// Nothing: it reads as zeros and takes no space.
    Hole,
}

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Fill the buffer from the device.
    Read,
    /// Store the buffer.
    Write,
    /// The bytes are no longer needed. They read as zeros afterwards where whole chunks are concerned.
    Discard,
    /// The bytes read as zeros afterwards.
    WriteZeroes,
    /// Everything that was answered before survives a crash.
    Flush,
}

/// Advice of the sender about a request's data (report chapter 5, and what a transport can tell): a wrong hint costs
/// space or time, never data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// NODEDUP: the data is not worth deduplicating.
    pub nodedup: bool,
    /// PREFETCH: what is read now is written elsewhere soon.
    pub prefetch: bool,
    /// Metadata of a file system: may use the space that is kept for it.
    pub metadata: bool,
    /// The data does not compress.
    pub incompressible: bool,
}

/// One request to a device.
pub struct Request {
    /// The operation.
    pub op: Op,
    /// First byte on the device. 0 for a flush.
    pub offset: u64,
    /// Bytes concerned. 0 for a flush.
    pub bytes: u64,
    /// A write's data, or memory of `bytes` bytes that a read fills; empty otherwise.
    pub buffer: Buffer,
    /// Force unit access: the answer comes when this very request survives a crash.
    pub fua: bool,
    /// Advice of the sender.
    pub hints: Hints,
    /// Takes the answer.
    pub completion: Completion,
}

/// Takes the answer to one request. A read's buffer comes back, filled. A write's may stay with the device: what comes
/// back then is empty, or other memory. Dropping it unanswered answers with [`Error::Closing`], so no client waits for
/// ever. What is called here must not wait for the device: it may be called by the thread that carries out requests.
pub struct Completion(Option<Answer>);

type Answer = Box<dyn FnOnce(Result<Buffer>) + Send>;

impl Completion {
    /// Has `answer` called once.
    pub fn new(answer: impl FnOnce(Result<Buffer>) + Send + 'static) -> Self {
        Self(Some(Box::new(answer)))
    }

    /// Answers the request.
    pub fn done(mut self, result: Result<Buffer>) {
        if let Some(answer) = self.0.take() {
            answer(result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer(Err(Error::Closing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn each_request_ends_once_even_when_it_is_dropped() {
        let (sender, receiver) = channel();
        let other = sender.clone();
        Completion::new(move |result| sender.send(result.is_ok()).expect("test listens"))
            .done(Ok(Buffer::zeroed(0)));
        drop(Completion::new(move |result| {
            other.send(result.is_ok()).expect("test listens");
        }));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [true, false]);
    }
}
