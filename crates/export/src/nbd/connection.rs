//! One client after the handshake, served by a few threads that take turns (leader and followers): the leader parses
//! all that the socket holds into a batch and passes the socket on; then it has the device carry out the batch and
//! answers it with one system call. So a lone request costs no queue, and reads of one batch reach the disk together.
//!
//! Invariants:
//! 1. A thread that waits for memory holds none: requests that have memory are carried out first.
//! 2. An answer that comes from a thread of the device's is sent by a thread of ours: no client can make the device
//!    wait by taking no replies.
//! 3. Each request is answered once, or the connection is broken.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use onefold_volume::{Completion, Op, Request};
use parking_lot::{Condvar, Mutex};

use super::client::NbdClient;
use super::handshake::Agreement;
use super::memory::{Memory, Permit};
use super::reader::{RequestJob, RequestReader};
use super::reply::{self, Form, Reply, STRETCHES_MAX};
use super::stream::ClientStream;
use super::wire::Errno;

/// Parts of one `writev` (`IOV_MAX`), two for each reply.
const REPLIES_AT_ONCE: usize = 512;

/// The threads that serve one client, and what they share.
pub struct Connection {
    client: NbdClient,
    /// Held by the thread that sends.
    sending: Mutex<()>,
    late: Mutex<Late>,
    late_came: Condvar,
}

/// Replies that came after the batch was sent.
#[derive(Default)]
struct Late {
    replies: Vec<HeldReply>,
    /// Requests that the device has and that are not answered.
    in_flight: usize,
    has_ended: bool,
}

/// A reply and the memory that it holds.
struct HeldReply {
    reply: Reply,
    _permit: Option<Permit>,
}

/// Replies of one batch, collected while the device is being asked.
struct ReplyBatch {
    connection: Arc<Connection>,
    replies: Mutex<Option<Vec<HeldReply>>>,
}

impl Connection {
    /// Serves the client until it leaves: all that was asked for is answered when this returns. The caller closes the
    /// stream. `input`: bytes that came behind the handshake.
    pub fn serve(
        stream: Arc<ClientStream>,
        agreement: Agreement,
        memory: Arc<Memory>,
        input: &[u8],
        threads: usize,
    ) {
        let connection = Arc::new(Self {
            client: NbdClient::new(stream, agreement, memory),
            sending: Mutex::new(()),
            late: Mutex::default(),
            late_came: Condvar::new(),
        });
        let reader = Mutex::new(RequestReader::new(input));
        std::thread::scope(|scope| {
            let late = std::thread::Builder::new()
                .name("nbd-late".into())
                .spawn_scoped(scope, || connection.send_late());
            for number in 1..threads {
                // Fewer threads serve as well.
                let _ = std::thread::Builder::new()
                    .name(format!("nbd-{number}"))
                    .spawn_scoped(scope, || connection.work(&reader));
            }
            if late.is_ok() {
                connection.work(&reader);
            }
            connection.client.stream.stop_receiving();
            reader.lock().end();
            connection.late.lock().has_ended = true;
            connection.late_came.notify_all();
        });
    }

    /// A thread's life: leader, then busy with a batch, then follower.
    fn work(self: &Arc<Self>, reader: &Mutex<RequestReader>) {
        loop {
            let batch = reader.lock().next_batch(&self.client);
            match batch {
                Some(jobs) => self.carry_out(jobs),
                None => return,
            }
        }
    }

    fn carry_out(self: &Arc<Self>, jobs: Vec<RequestJob>) {
        let batch = Arc::new(ReplyBatch {
            connection: self.clone(),
            replies: Mutex::new(Some(Vec::with_capacity(jobs.len()))),
        });
        let mut requests = Vec::with_capacity(jobs.len());
        let mut statuses = Vec::new();
        for job in jobs {
            match job {
                RequestJob::Device {
                    request,
                    form,
                    permit,
                } => {
                    requests.push(batch.request(request, form, permit));
                }
                RequestJob::Status {
                    range,
                    is_one,
                    form,
                } => statuses.push((range, is_one, form)),
                RequestJob::Answered(reply) => batch.add(reply, None),
            }
        }
        if !requests.is_empty() {
            self.late.lock().in_flight += requests.len();
            self.client.agreement.device.submit(&mut requests);
        }
        for (range, is_one, form) in statuses {
            batch.add(self.status(range, is_one, form), None);
        }
        let replies = batch.replies.lock().take();
        self.send(&mut replies.unwrap_or_default());
    }

    fn status(&self, range: Range<u64>, is_one: bool, form: Form) -> Reply {
        let agreement = &self.client.agreement;
        // Without extended headers a length has four bytes.
        let end = if agreement.is_extended {
            range.end
        } else {
            range.end.min(range.start + u64::from(!511u32))
        };
        let range = range.start..end;
        let most = if is_one { 1 } else { STRETCHES_MAX };
        match agreement.contexts.told(&*agreement.device, range, most) {
            Ok(told) if told.iter().all(|status| !status.stretches.is_empty()) => {
                form.status(&told)
            }
            Ok(_) => form.error(Errno::Io, "the device tells nothing of this range"),
            Err(error) => form.error(reply::errno(&error), &error.to_string()),
        }
    }

    /// Sends `answers`. A client that does not take them is cut off.
    fn send(&self, answers: &mut Vec<HeldReply>) {
        if answers.is_empty() {
            return;
        }
        let sending = self.sending.lock();
        for some in answers.chunks(REPLIES_AT_ONCE) {
            let mut parts = Vec::with_capacity(2 * some.len());
            for HeldReply { reply, .. } in some {
                parts.push(IoSlice::new(reply.head.bytes()));
                parts.extend(reply.data.as_deref().map(IoSlice::new));
            }
            if self.client.stream.send(&mut parts).is_err() {
                self.client.stream.close();
                break;
            }
        }
        drop(sending);
        for answer in answers.drain(..) {
            if let Some(buffer) = answer.reply.data {
                self.client.memory.keep(buffer);
            }
        }
    }

    /// The life of the thread that sends what the device answers late.
    fn send_late(&self) {
        loop {
            let mut late = self.late.lock();
            while late.replies.is_empty() {
                if late.has_ended && late.in_flight == 0 {
                    return;
                }
                self.late_came.wait(&mut late);
            }
            let mut replies = std::mem::take(&mut late.replies);
            drop(late);
            self.send(&mut replies);
        }
    }
}

impl ReplyBatch {
    fn request(self: &Arc<Self>, wanted: Request, form: Form, permit: Option<Permit>) -> Request {
        let (batch, op) = (self.clone(), wanted.op);
        let completion = Completion::new(move |result| {
            let memory = &batch.connection.client.memory;
            let (reply, permit) = match result {
                Ok(buffer) if op == Op::Read => (form.data(buffer), permit),
                Ok(buffer) => {
                    memory.keep(buffer);
                    (form.done(), None)
                }
                Err(error) => (form.error(reply::errno(&error), &error.to_string()), None),
            };
            batch.answered(reply, permit);
        });
        Request {
            completion,
            ..wanted
        }
    }

    fn add(&self, reply: Reply, permit: Option<Permit>) {
        let answer = HeldReply {
            reply,
            _permit: permit,
        };
        let mut replies = self.replies.lock();
        match &mut *replies {
            Some(replies) => replies.push(answer),
            None => {
                drop(replies);
                self.connection.late.lock().replies.push(answer);
                self.connection.late_came.notify_all();
            }
        }
    }

    fn answered(&self, reply: Reply, permit: Option<Permit>) {
        self.add(reply, permit);
        let mut late = self.connection.late.lock();
        late.in_flight -= 1;
        if late.in_flight == 0 && late.has_ended {
            self.connection.late_came.notify_all();
        }
    }
}
