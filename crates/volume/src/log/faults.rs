//! Deliberate faults: each takes away one step that durability stands on, and the tests must find what it breaks. They
//! exist in tests alone.

/// A step that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum Fault {
    /// Hits may name zones that are condemned.
    HitsInCondemnedZones,
    /// Marking does not know what memtables map.
    NoCheckpointBeforeMark,
    /// Runs name data that is not synced.
    NoSyncBeforeCheckpoint,
    /// Relocations lead to copies that are not synced.
    NoSyncBeforeFreeing,
    /// Ids that were given before a crash are given again.
    IdsGivenAgain,
    /// A mark does not see what a merge that goes on names.
    MarkBeforeMergeIsInstalled,
    /// Relocations to zones that are cleaned later are not led on.
    RelocationsNotLedOn,
}

/// Whether the step is left out.
#[cfg(not(test))]
pub fn is_on(_: Fault) -> bool {
    false
}

#[cfg(test)]
pub use tests::is_on;

#[cfg(test)]
pub mod tests {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Whether the step is left out, in this thread.
    pub fn is_on(fault: Fault) -> bool {
        FAULT.get() == Some(fault)
    }

    /// Leaves a step out, in this thread, or none any more.
    pub fn leave_out(fault: Option<Fault>) {
        FAULT.set(fault);
    }
}
