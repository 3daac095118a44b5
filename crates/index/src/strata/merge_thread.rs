//! The thread that merges beside the opener's own work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_io::ErrorKind;
use parking_lot::Mutex;

use super::merge;
use super::state::StrataState;
use crate::{Error, Result};

/// The merging thread. When told, it merges until nothing is due; when the index is closed, it completes a small merge.
pub struct MergeThread {
    due: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<Error>>>,
    shared: Arc<StrataState>,
}

impl MergeThread {
    /// Starts the thread.
    pub fn start(shared: Arc<StrataState>) -> Result<MergeThread> {
        let (due, told) = bounded(1);
        let failed = Arc::new(Mutex::new(None));
        let (of_thread, errors) = (Arc::clone(&shared), Arc::clone(&failed));
        let started = std::thread::Builder::new()
            .name("strata-merge".to_string())
            .spawn(move || run(&of_thread, &told, &errors));
        let thread = started.map_err(|source| {
            let what = "no thread for merging the index".to_string();
            let kind = ErrorKind::Device;
            Error::Io(onefold_io::Error {
                op: "start",
                path: "index".to_string(),
                offset: None,
                kind,
                what,
                source: Some(source),
            })
        })?;
        Ok(MergeThread {
            due: Some(due),
            thread: Some(thread),
            failed,
            shared,
        })
    }

    /// Tells the thread that something may be due. Returns the error of an earlier merge.
    pub fn tell(&self) -> Result<()> {
        if let Some(due) = &self.due {
            // a full channel is no error: the thread will look anyway
            due.try_send(()).ok();
        }
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}

impl Drop for MergeThread {
    fn drop(&mut self) {
        self.shared.folder.stop.store(true, Ordering::Relaxed);
        self.due = None;
        if let Some(thread) = self.thread.take() {
            // a panic in the thread was reported by the thread
            thread.join().ok();
        }
    }
}

fn run(shared: &StrataState, told: &Receiver<()>, failed: &Mutex<Option<Error>>) {
    while told.recv().is_ok() {
        if let Err(error) = shared.unless_full(merge::merge_all(shared, true)) {
            tracing::warn!(%error, "index merge failed");
            *failed.lock() = Some(error);
        }
    }
}
