//! A session: what it may refer to, and how its root comes to count.

use super::{Names, ProtocolRules, Rule, expect};

/// Next step of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionStep {
    /// Become visible to sweeps.
    Begin,
    /// Read all lists of the condemned.
    ReadLists,
    /// Tell sweeps which lists were read.
    TellLists,
    /// List the containers.
    ListContainers,
    /// Refer to containers and store containers.
    Work,
    /// Commit: decide that the root counts, unless the session was revoked.
    Commit,
    /// Put the root. Whoever finds the decision may do that, too.
    PutRoot,
    /// Be visible no longer.
    End,
    /// Nothing: the session is over.
    Over,
}

/// A session that writes. `C` are names of containers, `L` of lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionMachine<C, L> {
    step: SessionStep,
    rules: ProtocolRules,
    read: L,
    condemned: C,
    live: C,
}

impl<C: Names, L: Names> SessionMachine<C, L> {
    /// A session that is not visible yet.
    pub fn new(rules: ProtocolRules) -> Self {
        Self {
            step: SessionStep::Begin,
            rules,
            read: L::default(),
            condemned: C::default(),
            live: C::default(),
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> SessionStep {
        self.step
    }

    /// The lists that it read.
    pub fn read(&self) -> &L {
        &self.read
    }

    /// Containers that it must not refer to, whether they are there or not.
    pub fn condemned(&self) -> &C {
        &self.condemned
    }

    /// Containers that it may refer to without another look. One that came up since may be referred to once it is seen
    /// to be there and is not condemned: whoever condemns it waits for this session.
    pub fn live(&self) -> &C {
        &self.live
    }

    /// Notes that the session is visible to sweeps.
    pub fn begun(&mut self) {
        expect(self.step, SessionStep::Begin);
        self.step = SessionStep::ReadLists;
    }

    /// The lists that there are, and the containers on them.
    pub fn lists_read(&mut self, lists: L, condemned: C) {
        expect(self.step, SessionStep::ReadLists);
        (self.read, self.condemned) = (lists, condemned);
        self.step = SessionStep::TellLists;
    }

    /// Sweeps see which lists it read.
    pub fn lists_told(&mut self) {
        expect(self.step, SessionStep::TellLists);
        self.step = SessionStep::ListContainers;
    }

    /// The containers that there are.
    pub fn containers_listed(&mut self, listed: C) {
        expect(self.step, SessionStep::ListContainers);
        self.live = listed.minus(&self.condemned);
        self.step = SessionStep::Work;
    }

    /// All that the root refers to is durable.
    pub fn work_done(&mut self) {
        expect(self.step, SessionStep::Work);
        (self.condemned, self.live) = (C::default(), C::default());
        self.step = if self.rules.hold(Rule::CommitByDecision) {
            SessionStep::Commit
        } else {
            SessionStep::PutRoot
        };
    }

    /// Notes the durable decision that the root counts.
    pub fn committed(&mut self) {
        expect(self.step, SessionStep::Commit);
        self.step = SessionStep::PutRoot;
    }

    /// The root is durable.
    pub fn root_put(&mut self) {
        expect(self.step, SessionStep::PutRoot);
        self.step = SessionStep::End;
    }

    /// Notes that the session was revoked, fails, or has no root to put: everything that it stored counts for nothing.
    pub fn given_up(&mut self) {
        (self.read, self.condemned, self.live) = (L::default(), C::default(), C::default());
        self.step = SessionStep::Over;
    }

    /// Notes that the session is not visible any more.
    pub fn ended(&mut self) {
        expect(self.step, SessionStep::End);
        self.given_up();
    }
}
