//! Advisory locks in RAM, for folders without a kernel beneath. The state belongs to the file's node, as with `flock`:
//! a removed and recreated file has another lock.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{LockGuard, LockKind};

/// The holders of a file's lock.
#[derive(Default)]
pub(crate) struct LockState(Mutex<Holders>);

#[derive(Default)]
struct Holders {
    shared: usize,
    exclusive: bool,
}

impl LockState {
    /// Takes the lock; `None` where a conflicting one is held.
    pub fn try_lock(self: &Arc<Self>, kind: LockKind) -> Option<Box<dyn LockGuard>> {
        let mut holders = self.0.lock();
        match kind {
            LockKind::Shared if !holders.exclusive => holders.shared += 1,
            LockKind::Exclusive if !holders.exclusive && holders.shared == 0 => {
                holders.exclusive = true
            }
            _ => return None,
        }
        Some(Box::new(MemLockGuard {
            state: Arc::clone(self),
            kind,
        }))
    }
}

struct MemLockGuard {
    state: Arc<LockState>,
    kind: LockKind,
}

impl LockGuard for MemLockGuard {}

impl Drop for MemLockGuard {
    fn drop(&mut self) {
        let mut holders = self.state.0.lock();
        match self.kind {
            LockKind::Shared => holders.shared -= 1,
            LockKind::Exclusive => holders.exclusive = false,
        }
    }
}
