//! How a front works.

use std::sync::Arc;
use std::time::Duration;

/// When a write is answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Ack {
    /// When it is staged in RAM, as by a disk with a volatile cache.
    #[default]
    Staged,
    /// When it is written to the device, perhaps to its cache: it survives the end of this process.
    Written,
}

/// Fate of a write that needs a page when none is left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenFull {
    /// The write fails at once.
    #[default]
    Fail,
    /// The write waits for a page for this long, without holding up anything else, and then fails. Needs
    /// [`Options::clock`].
    Wait(Duration),
}

/// How a front works.
#[derive(Clone)]
pub struct Options {
    /// No threads: whoever waits does the work, and [`Front::step`](super::Front::step) does some. The same requests
    /// give the same I/O.
    pub inline: bool,
    /// Threads that hash and write. 0: one more than there are cores.
    pub threads: usize,
    /// Bytes of acknowledged writes that may be in RAM. A longer write is taken when nothing else is there.
    pub staging_bytes: usize,
    /// When a write is answered.
    pub ack: Ack,
    /// Fate of a write that needs a page when none is left.
    pub when_full: WhenFull,
    /// Chunks that are metadata of the volume's file system for certain are not deduplicated.
    pub infer: bool,
    /// Nanoseconds from any start: what latencies are measured with. `None`: they are not.
    pub clock: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
}

/// Twice what two cores hash while a disk of 1 GB/s is busy for 4 ms.
const STAGING_BYTES: usize = 16 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: false,
            threads: 0,
            staging_bytes: STAGING_BYTES,
            ack: Ack::default(),
            when_full: WhenFull::default(),
            infer: false,
            clock: None,
        }
    }
}

impl Options {
    /// One thread may wait for the device while the others hash.
    pub(super) fn workers(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(2, |cores| cores.get() + 1),
            threads => threads,
        }
    }
}
