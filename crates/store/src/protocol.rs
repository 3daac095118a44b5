//! The protocol by which sessions, sweeps and changes of roots run beside each other: state machines without I/O.
//!
//! A machine says which operation comes next ([`SessionStep`], [`SweepStep`], [`ChangeStep`]). Its driver does the
//! operation and tells the machine what it observed; the machine keeps what later steps need and computes what they may
//! do: which containers a session may refer to, for whom a sweep waits, which containers it deletes. Two drivers exist:
//! the store, with objects and a registry, and the model (`cargo xtask model`), with a simulated world in which every
//! step of everybody may come at any moment. A driver that does not do what comes next panics.
//!
//! Invariant: what stands on a durable list of the condemned is only ever deleted. See ARCHITECTURE.md, "Sweep
//! beside backups", for why no chunk is lost.

mod change;
mod session;
mod sorted;
mod sweep;

pub use change::{ChangeMachine, ChangeStep};
pub use session::{SessionMachine, SessionStep};
pub use sorted::Sorted;
pub use sweep::{Look, SweepMachine, SweepStep, Verdict};

/// A set of names: of containers, of roots, or of lists.
pub trait Names: Clone + Default {
    /// Whether there are none.
    fn is_empty(&self) -> bool;
    /// The names of both.
    fn plus(&self, other: &Self) -> Self;
    /// The names that `other` has not.
    fn minus(&self, other: &Self) -> Self;
}

/// A rule without which the protocol loses data. The model takes each out once and must find the loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A container on a list is never counted on again: it is only ever deleted.
    CondemnedForEver,
    /// A session commits by one decision in its register, which fails once the session is revoked.
    CommitByDecision,
    /// A sweep that put its list waits for all sessions that have not read it.
    WaitForSessions,
    /// A sweep makes sure that nobody went on in its place, after it put its list and before it deletes.
    ConfirmPlace,
    /// A sweep lists roots while it holds the lock of those who change them: a listing in pages is no moment.
    ListRootsLocked,
    /// Roots that are made of roots are decided in that lock, not by their maker alone.
    DecideChangesLocked,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CondemnedForEver,
        Self::CommitByDecision,
        Self::WaitForSessions,
        Self::ConfirmPlace,
        Self::ListRootsLocked,
        Self::DecideChangesLocked,
    ];
}

/// The rules that hold: all of them, but in the model's negative controls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtocolRules(u8);

impl Default for ProtocolRules {
    fn default() -> Self {
        Self(u8::MAX)
    }
}

impl ProtocolRules {
    /// All rules but this one. For the model alone.
    pub fn without(rule: Rule) -> Self {
        Self(!(1 << rule as u8))
    }

    /// Whether the rule holds.
    pub fn hold(self, rule: Rule) -> bool {
        self.0 >> rule as u8 & 1 == 1
    }
}

/// Checks that the driver does the next step: any other is a mistake of ours.
#[track_caller]
fn expect<S: PartialEq + std::fmt::Debug>(step: S, done: S) {
    assert_eq!(done, step, "the protocol was left");
}
