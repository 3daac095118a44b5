//! Writes behind the caller's back: while one batch is on its way to the device, the next one is put together.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

type Job = Box<dyn FnOnce() + Send>;

/// A write that was given away.
pub struct Running<T>(Receiver<T>);

impl<T> Running<T> {
    /// A write that is done already.
    pub fn ended(outcome: T) -> Self {
        let (sender, receiver) = bounded(1);
        let _ = sender.send(outcome);
        Self(receiver)
    }

    pub fn is_done(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits for the end of the write. `None`: its thread has ended before.
    pub fn wait(self) -> Option<T> {
        self.0.recv().ok()
    }
}

/// Threads that write. They end with their owner, and with what they were given.
pub struct WriteBehind {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl WriteBehind {
    /// Starts `threads` threads. Another write is held up while `waiting_max` wait for one of them.
    pub fn new(threads: usize, waiting_max: usize) -> Self {
        let (jobs, todo) = bounded::<Job>(waiting_max);
        let threads = (0..threads)
            .map(|_| {
                let todo = todo.clone();
                std::thread::spawn(move || todo.into_iter().for_each(|job| job()))
            })
            .collect();
        Self {
            jobs: Some(jobs),
            threads,
        }
    }

    pub fn run<T: Send + 'static>(&self, write: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let (done, receiver) = bounded(1);
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Box::new(move || {
                // An owner that is gone needs no answer.
                let _ = done.send(write());
            }));
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
