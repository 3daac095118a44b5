//! A sweep: what it condemns, for whom it waits, and what it deletes.

use super::{Names, ProtocolRules, Rule, expect};

/// A sweep lists the roots twice: to judge, and to see what came up while it waited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// Before it judges.
    First,
    /// After all sessions are over that may not have read its list.
    Second,
}

/// Next step of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SweepStep {
    /// Take the lock of sweeps.
    TakeLock,
    /// Become visible to other sweeps.
    Begin,
    /// Revoke whoever held the lock before.
    RevokeOthers,
    /// Read all lists of the condemned.
    ReadLists,
    /// List the containers.
    ListContainers,
    /// Take the lock of those who change roots.
    LockRoots(Look),
    /// List the roots, and free that lock.
    ListRoots(Look),
    /// Mark, judge, and copy out what still lives of what is to go.
    Judge,
    /// Put the list of what is condemned, durably.
    PutList,
    /// Make sure that nobody went on in this sweep's place.
    Confirm(Look),
    /// Wait for the sessions that have not read this sweep's list and the inherited ones.
    Wait,
    /// Mark from the roots that came up since the first look.
    MarkNew,
    /// Delete what [`SweepMachine::going`] says, each container at any time from now on.
    Delete,
    /// Free the lock, be visible no longer.
    End,
    /// Nothing: the sweep is over.
    Over,
}

/// Decision of a sweep about containers, after it has copied what still lives in them.
pub struct Verdict<C> {
    /// Containers that are dead, or of which all that lives was copied.
    pub condemned: C,
    /// Containers of older lists that hold what could not be copied out of them: they stay for a later sweep.
    pub not_rescued: C,
}

/// A sweep. `C` are names of containers, `R` of roots, `L` of lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SweepMachine<C, R, L> {
    step: SweepStep,
    rules: ProtocolRules,
    lists: L,
    inherited: C,
    listed: C,
    marked: R,
    new: R,
    condemned: C,
    going: C,
}

impl<C: Names, R: Names, L: Names> SweepMachine<C, R, L> {
    /// A sweep that has done nothing yet.
    pub fn new(rules: ProtocolRules) -> Self {
        Self {
            step: SweepStep::TakeLock,
            rules,
            lists: L::default(),
            inherited: C::default(),
            listed: C::default(),
            marked: R::default(),
            new: R::default(),
            condemned: C::default(),
            going: C::default(),
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> SweepStep {
        self.step
    }

    /// The lists of earlier sweeps that were there.
    pub fn lists(&self) -> &L {
        &self.lists
    }

    /// Returns the containers on the lists of earlier sweeps: nobody refers to them anew.
    pub fn inherited(&self) -> &C {
        &self.inherited
    }

    /// The containers that there were before the roots were listed.
    pub fn listed(&self) -> &C {
        &self.listed
    }

    /// The roots that were there at the first look.
    pub fn marked(&self) -> &R {
        &self.marked
    }

    /// The roots that came up between the first look and the second.
    pub fn new_roots(&self) -> &R {
        &self.new
    }

    /// Returns the containers on this sweep's own list.
    pub fn condemned(&self) -> &C {
        &self.condemned
    }

    /// Returns the containers that this sweep deletes.
    pub fn going(&self) -> &C {
        &self.going
    }

    /// The lock is taken.
    pub fn lock_taken(&mut self) {
        expect(self.step, SweepStep::TakeLock);
        self.step = SweepStep::Begin;
    }

    /// Notes that the sweep is visible to others.
    pub fn begun(&mut self) {
        expect(self.step, SweepStep::Begin);
        self.step = SweepStep::RevokeOthers;
    }

    /// Notes that earlier holders of the lock can confirm their places no longer.
    pub fn others_revoked(&mut self) {
        expect(self.step, SweepStep::RevokeOthers);
        self.step = SweepStep::ReadLists;
    }

    /// The lists that there are, and the containers on them.
    pub fn lists_read(&mut self, lists: L, containers: C) {
        expect(self.step, SweepStep::ReadLists);
        self.lists = lists;
        if self.rules.hold(Rule::CondemnedForEver) {
            self.inherited = containers;
        }
        self.step = SweepStep::ListContainers;
    }

    /// The containers that there are.
    pub fn containers_listed(&mut self, listed: C) {
        expect(self.step, SweepStep::ListContainers);
        self.listed = listed;
        self.step = self.look(Look::First);
    }

    fn look(&self, look: Look) -> SweepStep {
        if self.rules.hold(Rule::ListRootsLocked) {
            SweepStep::LockRoots(look)
        } else {
            SweepStep::ListRoots(look)
        }
    }

    /// The lock of those who change roots is taken, and what was decided in it is done.
    pub fn roots_locked(&mut self) {
        self.step = match self.step {
            SweepStep::LockRoots(look) => SweepStep::ListRoots(look),
            other => panic!("the protocol was left: {other:?}"),
        };
    }

    /// The roots that there are. Where that lock was lost meanwhile they are listed again.
    pub fn roots_listed(&mut self, roots: R, is_still_locked: bool) {
        let SweepStep::ListRoots(look) = self.step else {
            panic!("the protocol was left: {:?}", self.step);
        };
        if !is_still_locked && self.rules.hold(Rule::ListRootsLocked) {
            self.step = SweepStep::LockRoots(look);
            return;
        }
        self.step = match look {
            Look::First => {
                self.marked = roots;
                SweepStep::Judge
            }
            Look::Second => {
                self.new = roots.minus(&self.marked);
                SweepStep::MarkNew
            }
        };
    }

    /// Notes the decision about the containers; everything that lives in containers that go is durable elsewhere.
    pub fn judged(&mut self, verdict: Verdict<C>) {
        expect(self.step, SweepStep::Judge);
        self.condemned = verdict.condemned.minus(&self.inherited);
        self.inherited = self.inherited.minus(&verdict.not_rescued);
        self.listed = C::default();
        self.step = match (self.condemned.is_empty(), self.inherited.is_empty()) {
            (true, true) => self.end(),
            (true, false) => self.confirm(Look::First),
            (false, _) => SweepStep::PutList,
        };
    }

    /// The list is durable.
    pub fn list_put(&mut self) {
        expect(self.step, SweepStep::PutList);
        self.step = self.confirm(Look::First);
    }

    fn confirm(&self, look: Look) -> SweepStep {
        match (self.rules.hold(Rule::ConfirmPlace), look) {
            (true, look) => SweepStep::Confirm(look),
            (false, Look::First) => self.wait(),
            (false, Look::Second) => SweepStep::Delete,
        }
    }

    fn wait(&self) -> SweepStep {
        if self.rules.hold(Rule::WaitForSessions) {
            SweepStep::Wait
        } else {
            self.look(Look::Second)
        }
    }

    /// Whether this sweep has its place still. Overtaken, it deletes nothing, ever.
    pub fn confirmed(&mut self, is_in_place: bool) {
        self.step = match self.step {
            SweepStep::Confirm(_) if !is_in_place => self.end(),
            SweepStep::Confirm(Look::First) => self.wait(),
            SweepStep::Confirm(Look::Second) => SweepStep::Delete,
            other => panic!("the protocol was left: {other:?}"),
        };
    }

    /// No session is left that could refer to what is condemned and not have put its root.
    pub fn waited(&mut self) {
        expect(self.step, SweepStep::Wait);
        self.step = self.look(Look::Second);
    }

    /// Nobody waits for the sessions that are left: a later sweep deletes.
    pub fn gave_up_waiting(&mut self) {
        expect(self.step, SweepStep::Wait);
        self.step = self.end();
    }

    /// The containers that hold what new roots refer to.
    pub fn new_marked(&mut self, needed: C) {
        expect(self.step, SweepStep::MarkNew);
        self.going = self.condemned.plus(&self.inherited).minus(&needed);
        (self.marked, self.new) = (R::default(), R::default());
        (self.condemned, self.inherited) = (C::default(), C::default());
        self.lists = L::default();
        self.step = self.confirm(Look::Second);
    }

    /// All of them are gone.
    pub fn deleted(&mut self) {
        expect(self.step, SweepStep::Delete);
        self.step = self.end();
    }

    fn end(&mut self) -> SweepStep {
        *self = Self::new(self.rules);
        SweepStep::End
    }

    /// Notes that the sweep is not visible any more, or has failed: the containers on its list stay condemned.
    pub fn over(&mut self) {
        *self = Self::new(self.rules);
        self.step = SweepStep::Over;
    }
}
