//! Bodies on their way: in small pieces, so that rate and standstill show.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpRequestBody};
use tokio::time::{Instant, Sleep, sleep_until};

use super::broken;
use super::traffic::{ByteProgress, Traffic, stalled};

/// Bytes that are sent at a time: a limit of 16 KiB a second still moves something every 4 seconds.
const PIECE_BYTES: usize = 64 << 10;

/// A request's body.
pub(crate) struct Outgoing {
    body: HttpRequestBody,
    /// Unread bytes of the body's last frame.
    rest: Bytes,
    pause: Pause,
    progress: ByteProgress,
    traffic: Arc<Traffic>,
}

/// Waits until its time has come.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    fn until(&mut self, at: Option<Instant>) {
        self.0 = at.map(|at| Box::pin(sleep_until(at)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(cx));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl Outgoing {
    pub fn new(body: HttpRequestBody, progress: ByteProgress, traffic: Arc<Traffic>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            pause: Pause::default(),
            progress,
            traffic,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        ready!(this.pause.poll(cx));
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                other => return Poll::Ready(other),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        this.progress.step();
        this.pause.until(this.traffic.send(piece.len()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.body.size_hint().exact().unwrap_or(0);
        SizeHint::with_exact(left + self.rest.len() as u64)
    }
}

/// An answer's body.
pub(crate) struct Incoming {
    body: hyper::body::Incoming,
    pause: Pause,
    /// When it has stood still for too long.
    deadline: Pin<Box<Sleep>>,
    progress: ByteProgress,
    traffic: Arc<Traffic>,
}

impl Incoming {
    pub fn new(body: hyper::body::Incoming, progress: ByteProgress, traffic: Arc<Traffic>) -> Self {
        let deadline = Box::pin(tokio::time::sleep(progress.stalled_after()));
        Self {
            body,
            pause: Pause::default(),
            deadline,
            progress,
            traffic,
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        ready!(this.pause.poll(cx));
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(this.deadline.as_mut().poll(cx));
                return Poll::Ready(Some(Err(stalled(this.progress.stalled_after()))));
            }
        };
        let again = Instant::now() + this.progress.stalled_after();
        this.deadline.as_mut().reset(again);
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.pause.until(this.traffic.receive(data.len()));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
