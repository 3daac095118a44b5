//! Sessions and locks of this process show each minute that they live.
//!
//! Another process that waits for a session takes it for dead when its register has not changed for fifteen minutes.
//! This is politeness, and no safety: a session that could not show its life in time and was revoked puts no root.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use onefold_store::registry::lease::LeaseRegistry;
use onefold_store::registry::{Held, Living, Lock, Pin, PinInfo, Registry, Revoked};
use onefold_store::{Error, Result, RootId};

/// How often they show that they live.
const BEAT: Duration = Duration::from_secs(60);

/// A registry whose sessions and locks show that they live, until it is dropped.
pub(crate) struct Beating {
    registry: Arc<LeaseRegistry>,
    /// Closed when this is dropped, which ends the thread.
    _beating: Sender<()>,
}

impl Beating {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Machine`]: there is none to be had.
    pub fn begin(registry: LeaseRegistry) -> Result<Self> {
        let registry = Arc::new(registry);
        let (beating, ended) = channel();
        let beaten = Arc::downgrade(&registry);
        let beat = move || {
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                match beaten.upgrade() {
                    Some(registry) => registry.beat(),
                    None => return,
                }
            }
        };
        std::thread::Builder::new()
            .name("heart".into())
            .spawn(beat)
            .map_err(|error| Error::no_thread("showing that sessions live", &error))?;
        Ok(Self {
            registry,
            _beating: beating,
        })
    }
}

impl Beating {
    /// Takes back all sessions and locks of this process; see [`LeaseRegistry::leave`].
    pub fn leave(&self, begin: impl FnOnce()) {
        self.registry.leave(begin);
    }
}

impl Registry for Beating {
    fn init(&self) -> Result<()> {
        self.registry.init()
    }

    fn begin(&self, info: &PinInfo, holds: &[RootId]) -> Result<Box<dyn Pin>> {
        self.registry.begin(info, holds)
    }

    fn living(&self) -> Result<Vec<Living>> {
        self.registry.living()
    }

    fn revoke(&self, name: &str) -> Result<Revoked> {
        self.registry.revoke(name)
    }

    fn lock(&self, lock: Lock) -> Result<Box<dyn Held>> {
        self.registry.lock(lock)
    }

    fn share(&self, lock: Lock) -> Result<Box<dyn Held>> {
        self.registry.share(lock)
    }
}
