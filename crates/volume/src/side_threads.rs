//! Work beside the caller: one batch is on its way to the device while the next is put together.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

type Job = Box<dyn FnOnce() + Send>;

/// Work that was given away.
pub struct Running<T>(Receiver<T>);

impl<T> Running<T> {
    /// Work that is done already.
    pub fn ended(outcome: T) -> Self {
        let (sender, receiver) = bounded(1);
        let _ = sender.send(outcome);
        Self(receiver)
    }

    pub fn is_done(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits for the end of the work. `None`: its thread has ended before.
    pub fn wait(self) -> Option<T> {
        self.0.recv().ok()
    }
}

/// Threads that work for their owner. They end with it, and with what they were given.
pub struct SideThreads {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl SideThreads {
    /// Starts `threads` threads. More work is held up while `waiting_max` pieces wait for one of them.
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

    /// No threads: whoever gives work away does it.
    pub fn none() -> Self {
        Self {
            jobs: None,
            threads: Vec::new(),
        }
    }

    /// As many threads, or none where the same work is to give the same I/O.
    pub fn unless_inline(is_inline: bool, threads: usize) -> Self {
        if is_inline {
            Self::none()
        } else {
            Self::new(threads, threads)
        }
    }

    pub fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let Some(jobs) = &self.jobs else {
            return Running::ended(work());
        };
        let (done, receiver) = bounded(1);
        let _ = jobs.send(Box::new(move || {
            // An owner that is gone needs no answer.
            let _ = done.send(work());
        }));
        Running(receiver)
    }
}

impl Drop for SideThreads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
