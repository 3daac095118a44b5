//! A device called as a file is: each call returns when its request was answered.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::{BlockDevice, Buffer, Completion, Error, Hints, Op, Request, Result};

/// Calls a device, and waits for its answers.
#[derive(Clone)]
pub struct Caller(pub Arc<dyn BlockDevice>);

/// A request that was submitted and not waited for.
pub struct Waiting(Receiver<Result<Buffer>>);

impl Waiting {
    /// The answer.
    ///
    /// # Errors
    /// The error of the request.
    pub fn wait(self) -> Result<Buffer> {
        self.0.recv().unwrap_or(Err(Error::Closing))
    }
}

/// A request, and where its answer is to be had.
pub fn request(op: Op, offset: u64, bytes: u64, buffer: Buffer, fua: bool) -> (Request, Waiting) {
    let (sender, receiver) = channel();
    let completion = Completion::new(move |result| {
        // A caller that waits no longer needs no answer.
        let _ = sender.send(result);
    });
    let request = Request {
        op,
        offset,
        bytes,
        buffer,
        fua,
        hints: Hints::default(),
        completion,
    };
    (request, Waiting(receiver))
}

impl Caller {
    /// Submits requests together.
    pub fn submit(&self, requests: Vec<(Request, Waiting)>) -> Vec<Waiting> {
        let (mut requests, waiting): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        self.0.submit(&mut requests);
        assert!(requests.is_empty(), "a device takes all requests");
        waiting
    }

    fn call(&self, op: Op, offset: u64, bytes: u64, buffer: Buffer, fua: bool) -> Result<Buffer> {
        let waiting = self.submit(vec![request(op, offset, bytes, buffer, fua)]);
        waiting
            .into_iter()
            .map(Waiting::wait)
            .next()
            .unwrap_or(Err(Error::Closing))
    }

    /// The bytes at `offset`.
    ///
    /// # Errors
    /// The error of the request.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Buffer> {
        self.call(
            Op::Read,
            offset,
            bytes,
            Buffer::zeroed(bytes as usize),
            false,
        )
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// The error of the request.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let buffer = Buffer::copy_of(bytes);
        self.call(Op::Write, offset, bytes.len() as u64, buffer, false)
            .map(drop)
    }

    /// Writes `bytes` at `offset`; they survive a crash when it returns.
    ///
    /// # Errors
    /// The error of the request.
    pub fn write_through(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let buffer = Buffer::copy_of(bytes);
        self.call(Op::Write, offset, bytes.len() as u64, buffer, true)
            .map(drop)
    }

    /// Discards a range.
    ///
    /// # Errors
    /// The error of the request.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.call(Op::Discard, offset, bytes, Buffer::zeroed(0), false)
            .map(drop)
    }

    /// Zeroes a range.
    ///
    /// # Errors
    /// The error of the request.
    pub fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<()> {
        self.call(Op::WriteZeroes, offset, bytes, Buffer::zeroed(0), false)
            .map(drop)
    }

    /// Everything that was answered before survives a crash when it returns.
    ///
    /// # Errors
    /// The error of the request.
    pub fn flush(&self) -> Result<()> {
        self.call(Op::Flush, 0, 0, Buffer::zeroed(0), false)
            .map(drop)
    }
}
