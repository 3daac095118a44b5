//! The receiving side of a client: whole requests out of the socket's bytes, in batches.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use onefold_volume::{Buffer, Completion, Op, Request};

use super::arrival::Arrival;
use super::client::{NbdClient, broken};
use super::memory::{MemoryUse, Permit};
use super::reply::{Form, Reply};
use super::request::{self, RequestHeader, RequestPlan};
use super::wire::flag;

/// Bytes that are received at once. A longer payload goes to its own memory directly.
const INPUT_BYTES: usize = 256 << 10;
/// Requests of a batch, at most.
const BATCH_MAX: usize = 64;

/// The work for one request.
pub(super) enum RequestJob {
    /// The device does it; the request's completion is still to be made.
    Device {
        request: Request,
        form: Form,
        permit: Option<Permit>,
    },
    /// Block status.
    Status {
        range: Range<u64>,
        is_one: bool,
        form: Form,
    },
    /// Nothing is left to do.
    Answered(Reply),
}

/// Received bytes and how far they are understood.
pub(super) struct RequestReader {
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// A request that waits for memory or for its payload.
    waiting: Option<(RequestHeader, RequestPlan)>,
    has_ended: bool,
}

impl RequestReader {
    /// `input`: bytes that have come already.
    pub fn new(input: &[u8]) -> Self {
        let mut all = vec![0; INPUT_BYTES.max(input.len())].into_boxed_slice();
        all[..input.len()].copy_from_slice(input);
        Self {
            input: all,
            start: 0,
            end: input.len(),
            waiting: None,
            has_ended: false,
        }
    }

    /// Nothing more is received.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Waits for requests and gives all that are there. `None`: the client has left, or sent what is no request.
    pub fn next_batch(&mut self, client: &NbdClient) -> Option<Vec<RequestJob>> {
        let mut jobs = Vec::new();
        while !self.has_ended && jobs.len() < BATCH_MAX {
            match self.next(client, jobs.is_empty()) {
                Ok(Some(job)) => jobs.push(job),
                Ok(None) => break,
                Err(_) => self.has_ended = true,
            }
        }
        if jobs.is_empty() && self.has_ended {
            None
        } else {
            Some(jobs)
        }
    }

    /// The next request. Only if `may_wait` this waits: for bytes, or for memory. `None`: it would have to wait, or the
    /// client leaves.
    fn next(&mut self, client: &NbdClient, may_wait: bool) -> io::Result<Option<RequestJob>> {
        let (header, plan) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match self.header(client, may_wait)? {
                Some(header) => {
                    let plan = client.plan(&header);
                    (header, plan)
                }
                None => return Ok(None),
            },
        };
        let form = Form::new(&client.agreement, header.cookie, header.offset);
        let payload = header.payload_bytes(client.agreement.is_extended);
        if !may_wait && payload > (self.end - self.start) as u64 {
            self.waiting = Some((header, plan));
            return Ok(None);
        }
        match plan {
            RequestPlan::Disconnect => {
                self.has_ended = true;
                Ok(None)
            }
            RequestPlan::Refuse(errno, why) => {
                self.skip(client, payload)?;
                Ok(Some(RequestJob::Answered(form.error(errno, why))))
            }
            RequestPlan::Nothing => {
                self.skip(client, payload)?;
                Ok(Some(RequestJob::Answered(form.done())))
            }
            RequestPlan::Status { is_one } => Ok(Some(RequestJob::Status {
                range: header.offset..header.offset + header.bytes,
                is_one,
                form,
            })),
            RequestPlan::Device {
                op,
                buffer_bytes,
                hints,
            } => {
                let how = if op == Op::Write && !self.collect(client, buffer_bytes)? {
                    MemoryUse::Arrival
                } else {
                    MemoryUse::Request
                };
                let Some((buffer, permit)) = memory(client, buffer_bytes, how, may_wait) else {
                    self.waiting = Some((header, plan));
                    return Ok(None);
                };
                let (mut buffer, mut permit) = (buffer, permit);
                if op == Op::Write {
                    self.payload(client, &mut buffer)?;
                    permit.iter_mut().for_each(Permit::arrived);
                }
                let request = Request {
                    op,
                    offset: header.offset,
                    bytes: header.bytes,
                    buffer,
                    // A read is as durable as what it reads.
                    fua: header.flags & flag::FUA != 0 && !matches!(op, Op::Read | Op::Flush),
                    hints,
                    completion: Completion::new(drop),
                };
                Ok(Some(RequestJob::Device {
                    request,
                    form,
                    permit,
                }))
            }
        }
    }

    /// The next header; `None` where it has not come whole and this may not wait, or the client has left.
    fn header(&mut self, client: &NbdClient, may_wait: bool) -> io::Result<Option<RequestHeader>> {
        let is_extended = client.agreement.is_extended;
        let bytes = request::header_bytes(is_extended);
        while self.end - self.start < bytes {
            if !may_wait {
                return Ok(None);
            }
            let deadline = (self.start < self.end).then(|| client.stream.deadline(0));
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match client
                .stream
                .receive(&mut self.input[self.end..], deadline)?
            {
                0 => {
                    self.has_ended = true;
                    return Ok(None);
                }
                count => self.end += count,
            }
        }
        let header =
            RequestHeader::decode(&self.input[self.start..self.start + bytes], is_extended);
        self.start += bytes;
        header.map(Some).ok_or_else(broken)
    }

    /// Waits until a payload that finds room among the received bytes is there whole: it needs no memory before. `false`:
    /// it is too long for that.
    fn collect(&mut self, client: &NbdClient, bytes: usize) -> io::Result<bool> {
        if self.end - self.start >= bytes {
            return Ok(true);
        }
        if bytes > self.input.len() {
            return Ok(false);
        }
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let mut arrival = Arrival::new(client);
        while self.end < bytes {
            self.end += arrival.receive(&mut self.input[self.end..])?;
        }
        Ok(true)
    }

    fn payload(&mut self, client: &NbdClient, buffer: &mut [u8]) -> io::Result<()> {
        let there = buffer.len().min(self.end - self.start);
        buffer[..there].copy_from_slice(&self.input[self.start..self.start + there]);
        self.start += there;
        let mut arrival = Arrival::new(client);
        let mut rest = &mut buffer[there..];
        while !rest.is_empty() {
            let count = arrival.receive(rest)?;
            rest = &mut rest[count..];
        }
        Ok(())
    }

    fn skip(&mut self, client: &NbdClient, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        let mut arrival = Arrival::new(client);
        loop {
            let there = left.min((self.end - self.start) as u64);
            self.start += there as usize;
            left -= there;
            if left == 0 {
                return Ok(());
            }
            (self.start, self.end) = (0, arrival.receive(&mut self.input)?);
        }
    }
}

fn memory(
    client: &NbdClient,
    bytes: usize,
    how: MemoryUse,
    may_wait: bool,
) -> Option<(Buffer, Option<Permit>)> {
    if bytes == 0 {
        return Some((Buffer::zeroed(0), None));
    }
    let (memory, share): (&Arc<_>, _) = (&client.memory, &client.share);
    let permit = if may_wait {
        memory.take(share, bytes, how)
    } else {
        memory.try_take(share, bytes, how)?
    };
    Some((memory.buffer(bytes), Some(permit)))
}
