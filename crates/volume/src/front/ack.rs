//! Answers that wait for more than staging: a write without a page of its own, one that is to be written first, a
//! discard.

use parking_lot::Mutex;

use crate::{Buffer, Completion, Error, Result};

/// Waits until all parts of a request are done.
pub(super) struct WriteAck {
    inner: Mutex<Option<PendingRequest>>,
}

struct PendingRequest {
    completion: Completion,
    buffer: Buffer,
    parts: usize,
    error: Option<Error>,
}

/// A request of which all parts are done, with what it is to be told.
pub(super) struct Answer {
    pub completion: Completion,
    pub result: Result<Buffer>,
}

impl Answer {
    pub fn give(self) {
        self.completion.done(self.result);
    }
}

impl WriteAck {
    /// Answers after `parts` calls of [`done`](Self::done), with `buffer` where all went well.
    pub fn new(completion: Completion, buffer: Buffer, parts: usize) -> Self {
        let pending = PendingRequest {
            completion,
            buffer,
            parts,
            error: None,
        };
        Self {
            inner: Mutex::new(Some(pending)),
        }
    }

    /// Notes that `parts` parts are done. Returns the answer, if they were the last ones.
    pub fn done(&self, parts: usize, result: Result<()>) -> Option<Answer> {
        let mut inner = self.inner.lock();
        let pending = inner.as_mut()?;
        pending.parts = pending.parts.saturating_sub(parts);
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        if pending.parts > 0 {
            return None;
        }
        let pending = inner.take()?;
        Some(Answer {
            completion: pending.completion,
            result: match pending.error {
                Some(error) => Err(error),
                None => Ok(pending.buffer),
            },
        })
    }
}
