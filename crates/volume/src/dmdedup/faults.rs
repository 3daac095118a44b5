//! Deliberate faults: each takes away one step that the engine's promises stand on, and the suites must find what it
//! breaks. They exist in tests alone.

/// A step that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum DmdedupFault {
    /// A hash or an LBN names a block though the write of its data failed.
    FailedWriteIsNamed,
    /// Metadata is flushed before the data that it names is synced.
    NoSyncBeforeFlush,
    /// A collection frees a block and leaves its hash in the index.
    HashOutlivesItsBlock,
    /// Content whose write failed is still taken for content that is being written.
    FailedWriteStaysPending,
    /// A block that is free again is still remembered as one that was read with the hint PREFETCH.
    PrefetchedOutlivesItsBlock,
}

/// Whether the step is left out.
#[cfg(not(test))]
pub fn is_on(_: DmdedupFault) -> bool {
    false
}

#[cfg(test)]
pub use tests::{is_on, leave_out};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::DmdedupFault;

    thread_local! {
        static FAULT: Cell<Option<DmdedupFault>> = const { Cell::new(None) };
    }

    /// Whether the step is left out, in this thread.
    pub fn is_on(fault: DmdedupFault) -> bool {
        FAULT.get() == Some(fault)
    }

    /// Leaves a step out, in this thread, or none any more.
    pub fn leave_out(fault: Option<DmdedupFault>) {
        FAULT.set(fault);
    }
}
