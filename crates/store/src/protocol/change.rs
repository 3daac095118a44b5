//! A change of roots by who looks at roots first: `forget` removes some, `tag` and `repair snapshots` put others in the
//! place of some.

use super::{ProtocolRules, Rule, expect};

/// Next step of a change of roots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChangeStep {
    /// Take the lock of those who change roots, and do what was decided in it and is not done.
    LockRoots,
    /// List the roots and choose.
    Choose,
    /// Decide in the lock which roots are put and which are removed, unless another took the lock over.
    Decide,
    /// Put the new roots. Whoever takes the lock may do that, too.
    PutRoots,
    /// Remove the old ones, likewise.
    RemoveRoots,
    /// Free the lock.
    FreeLock,
    /// Nothing: the change is over.
    Over,
}

/// A change of roots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChangeMachine {
    step: ChangeStep,
    rules: ProtocolRules,
}

impl ChangeMachine {
    /// A change that has done nothing yet.
    pub fn new(rules: ProtocolRules) -> Self {
        Self {
            step: ChangeStep::LockRoots,
            rules,
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> ChangeStep {
        self.step
    }

    /// The lock is taken, and what was decided in it is done.
    pub fn locked(&mut self) {
        expect(self.step, ChangeStep::LockRoots);
        self.step = ChangeStep::Choose;
    }

    /// Notes that the roots to put and to remove are known. Every chunk that the new ones refer to is referred to by
    /// the old ones.
    pub fn chosen(&mut self) {
        expect(self.step, ChangeStep::Choose);
        self.step = if self.rules.hold(Rule::DecideChangesLocked) {
            ChangeStep::Decide
        } else {
            ChangeStep::PutRoots
        };
    }

    /// Whether the lock was still held, and the change is decided. If not, nothing has happened.
    pub fn decided(&mut self, is_decided: bool) {
        expect(self.step, ChangeStep::Decide);
        self.step = if is_decided {
            ChangeStep::PutRoots
        } else {
            ChangeStep::Over
        };
    }

    /// The new roots are durable.
    pub fn roots_put(&mut self) {
        expect(self.step, ChangeStep::PutRoots);
        self.step = ChangeStep::RemoveRoots;
    }

    /// The old ones are removed.
    pub fn roots_removed(&mut self) {
        expect(self.step, ChangeStep::RemoveRoots);
        self.step = ChangeStep::FreeLock;
    }

    /// The lock is free, or it failed.
    pub fn over(&mut self) {
        self.step = ChangeStep::Over;
    }
}
