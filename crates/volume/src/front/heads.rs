//! Sizes of volumes and snapshots while they are served: a volume grows below its devices, and a deleted one has none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Front;
use crate::{Error, HeadChange, HeadId, HeadInfo, Result};

/// Size and end of a head, shared by all of its devices.
pub(super) struct HeadSize {
    bytes: AtomicU64,
    is_gone: AtomicBool,
}

impl HeadSize {
    /// Size of the head, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether the head was deleted.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

/// The sizes of heads that have or had devices.
#[derive(Default)]
pub(super) struct HeadSizes(Mutex<HashMap<HeadId, Arc<HeadSize>>>);

impl HeadSizes {
    /// The size of a head, which is `bytes` where it has no device yet.
    pub fn of(&self, head: HeadId, bytes: u64) -> Arc<HeadSize> {
        let mut all = self.0.lock();
        let size = all.entry(head).or_insert_with(|| {
            Arc::new(HeadSize {
                bytes: AtomicU64::new(bytes),
                is_gone: AtomicBool::new(false),
            })
        });
        Arc::clone(size)
    }

    fn known(&self, head: HeadId) -> Option<Arc<HeadSize>> {
        self.0.lock().get(&head).cloned()
    }
}

impl Front {
    /// The volumes and snapshots that the engine keeps by name.
    ///
    /// # Errors
    /// The front is closed.
    pub fn heads(&self) -> Result<Vec<HeadInfo>> {
        self.shared.with_engine(|engine| Ok(engine.heads()))
    }

    /// Changes the volumes and snapshots. A copy holds everything that was answered before the call.
    ///
    /// # Errors
    /// Those of [`Engine::change_heads`](crate::Engine::change_heads); [`Error::Held`] where a device of a head that is
    /// to go is there.
    pub fn change_heads(&self, change: &HeadChange) -> Result<HeadId> {
        match change {
            HeadChange::Delete { head } => return self.delete_head(*head, change),
            HeadChange::Copy { .. } => self.shared.drain()?,
            HeadChange::Create { .. } | HeadChange::Grow { .. } => {}
        }
        let head = self
            .shared
            .with_engine(|engine| engine.change_heads(change))?;
        if let HeadChange::Grow { lbns, .. } = change
            && let Some(size) = self.shared.sizes.known(head)
        {
            let bytes = lbns * u64::from(self.shared.chunk_bytes);
            size.bytes.store(bytes, Ordering::Release);
        }
        Ok(head)
    }

    /// Has the engine use more of its data device.
    ///
    /// # Errors
    /// Those of [`Engine::grow_device`](crate::Engine::grow_device).
    pub fn grow_device(&self, bytes: u64) -> Result<u64> {
        self.shared.with_engine(|engine| engine.grow_device(bytes))
    }

    fn delete_head(&self, head: HeadId, change: &HeadChange) -> Result<HeadId> {
        let gone = |is_gone: bool| {
            if let Some(size) = self.shared.sizes.known(head) {
                size.is_gone.store(is_gone, Ordering::Release);
            }
        };
        // The list has it, and the question.
        let is_used = |size: Arc<HeadSize>| Arc::strong_count(&size) > 2;
        if self.shared.sizes.known(head).is_some_and(is_used) {
            return Err(Error::Held {
                place: "the volume or snapshot".into(),
            });
        }
        gone(true);
        let deleted = self.shared.drain().and_then(|()| {
            self.shared
                .with_engine(|engine| engine.change_heads(change))
        });
        gone(deleted.is_ok());
        if deleted.is_ok() {
            self.shared.sizes.0.lock().remove(&head);
        }
        deleted
    }
}
