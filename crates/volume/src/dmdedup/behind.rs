//! Writes of data behind the caller's back: while one batch is on its way to the device, the next one is looked up and
//! put together.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::DataArea;
use crate::{Buffer, Error, Pbn, Result};

/// Batches on their way to the device at most.
pub(super) const IN_FLIGHT_MAX: usize = 3;

/// New blocks, neighbours side by side.
pub(super) struct DataJob {
    pub memory: Buffer,
    /// First block and bytes of each write, one behind the other in the memory.
    pub writes: Vec<(Pbn, usize)>,
}

impl DataJob {
    /// Writes all of it.
    pub fn run(&self, data: &DataArea) -> Result<()> {
        let mut at = 0;
        for (first, bytes) in &self.writes {
            data.write(*first, &self.memory[at..at + bytes])?;
            at += bytes;
        }
        Ok(())
    }
}

/// A job that was given away: its memory comes back when it is done.
pub(super) struct Running(Receiver<(Buffer, Result<()>)>);

impl Running {
    /// A job that is done already.
    pub fn ended(memory: Buffer, result: Result<()>) -> Self {
        let (sender, receiver) = bounded(1);
        let _ = sender.send((memory, result));
        Self(receiver)
    }

    pub fn is_done(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits for the end of the job.
    pub fn wait(self) -> (Buffer, Result<()>) {
        let gone = |_| (Buffer::zeroed(0), Err(Error::Closing));
        self.0.recv().unwrap_or_else(gone)
    }
}

type Job = (DataJob, Sender<(Buffer, Result<()>)>);

/// Threads that write. They end with their owner.
pub(super) struct WriteBehind {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl WriteBehind {
    /// `threads` threads that write to `data`.
    pub fn new(data: &DataArea, threads: usize) -> Self {
        let (jobs, todo) = bounded::<Job>(IN_FLIGHT_MAX);
        let threads = (0..threads)
            .map(|_| {
                let (todo, data) = (todo.clone(), data.clone());
                std::thread::spawn(move || {
                    for (job, done) in todo {
                        let result = job.run(&data);
                        // A writer that is gone needs no answer.
                        let _ = done.send((job.memory, result));
                    }
                })
            })
            .collect();
        Self {
            jobs: Some(jobs),
            threads,
        }
    }

    pub fn run(&self, job: DataJob) -> Running {
        let (done, receiver) = bounded(1);
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((job, done));
        }
        Running(receiver)
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
