//! The sticky failed state: after a failed write or commit nothing is known of what reached the device since the last
//! commit, and no later one can say that it is there.

use super::ack::Answer;
use super::batcher::{EngineBatch, FrontTask};
use super::state::FrontState;
use crate::Error;

impl FrontState {
    /// Takes nothing any more: writes and flushes fail. What is staged stays readable, and so does what the engine has.
    /// Returns the answers that everybody who waits is to get.
    pub fn fail(&mut self, error: &Error) -> Vec<Answer> {
        let error = Error::ReadOnly {
            why: format!("an earlier write or sync failed: {error}"),
        };
        let mut answers = self.flushes.fail(&error);
        answers.extend(self.held.fail(&error));
        self.queued_chunks = 0;
        for task in self.queue.drain(..) {
            match task {
                FrontTask::Write { run, chunks, .. } => answers.extend(
                    run.ack
                        .as_ref()
                        .and_then(|ack| ack.done(chunks.len(), Err(error.clone()))),
                ),
                FrontTask::Discard(discard) => {
                    answers.extend(discard.ack.done(1, Err(error.clone())))
                }
            }
        }
        for (_, batch) in std::mem::take(&mut self.hashed) {
            answers.extend(fail_batch(&batch, &error));
        }
        self.partials.forget_discards();
        self.failure.get_or_insert(error);
        answers
    }
}

/// Everybody who waits for something of the batch.
pub(super) fn fail_batch(batch: &EngineBatch, error: &Error) -> Vec<Answer> {
    match batch {
        EngineBatch::Discard(discard) => discard
            .ack
            .done(1, Err(error.clone()))
            .into_iter()
            .collect(),
        EngineBatch::Write(chunks) => chunks
            .iter()
            .filter_map(|chunk| chunk.run.ack.as_ref()?.done(1, Err(error.clone())))
            .collect(),
    }
}
