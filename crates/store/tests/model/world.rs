//! The simulated world: objects, registry, and all processes that work on a repository. All containers hold the same
//! chunk, so that a root is hurt exactly when no container is left.

use onefold_store::protocol::{ChangeMachine, Names, ProtocolRules, SessionMachine, SweepMachine};

/// Largest numbers of sessions and of sweeps.
pub const SESSIONS: usize = 2;
pub const SWEEPS: usize = 2;
/// Containers: one from the beginning, one of each session, one copy of each sweep.
pub const FIRST: u8 = 0;
pub const CONTAINERS: u8 = 5;
/// Roots: one from the beginning, one of each session, one that a change of tags writes.
pub const OLD_ROOT: u8 = 0;
pub const TAG_ROOT: u8 = 3;
pub const ROOTS: usize = 4;

pub const fn container_of_session(session: usize) -> u8 {
    1 + session as u8
}

pub const fn container_of_sweep(sweep: usize) -> u8 {
    3 + sweep as u8
}

pub const fn root_of_session(session: usize) -> u8 {
    1 + session as u8
}

/// A set of numbers below eight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Set(pub u8);

impl Set {
    pub fn of(number: u8) -> Self {
        Self(1 << number)
    }

    pub fn has(self, number: u8) -> bool {
        self.0 >> number & 1 == 1
    }

    pub fn add(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    pub fn remove(&mut self, number: u8) {
        self.0 &= !(1 << number);
    }

    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn numbers(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |number| self.has(*number))
    }
}

impl Names for Set {
    fn is_empty(&self) -> bool {
        self.0 == 0
    }

    fn plus(&self, other: &Self) -> Self {
        Self(self.0 | other.0)
    }

    fn minus(&self, other: &Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The registry's record of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Record {
    #[default]
    Absent,
    Active,
    Committing,
    Revoked,
}

/// A session and its record in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Writer {
    pub machine: SessionMachine<Set, Set>,
    pub record: Record,
    /// The lists that the session says it has read.
    pub told: Set,
}

/// A sweep and its record in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sweeper {
    pub machine: SweepMachine<Set, Set, Set>,
    pub is_alive: bool,
    /// The roots on the first page of a listing under way.
    pub page: Option<Set>,
}

/// The holder of the lock for changes of roots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum RootsHolder {
    #[default]
    Nobody,
    Forget,
    Tag,
    Sweep(u8),
}

/// The plan that was decided in that lock and may not be carried out yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum RootPlan {
    #[default]
    Nothing,
    Forget,
    Tag,
}

/// A change of roots, and the root that it removes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Changer {
    pub machine: ChangeMachine,
    pub source: u8,
}

/// The state of the whole world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// Containers that exist, and those that were ever made.
    pub containers: Set,
    pub made: Set,
    /// Roots that were written, the container that each refers to, and those that were removed.
    pub roots: Set,
    pub references: [u8; ROOTS],
    pub removed: Set,
    /// Lists of condemned containers that exist, and the containers on each.
    pub lists: Set,
    pub condemned: [Set; SWEEPS],
    pub sweep_lock: Option<u8>,
    pub roots_lock: RootsHolder,
    pub plan: RootPlan,
    pub sessions: [Writer; SESSIONS],
    pub sweeps: [Sweeper; SWEEPS],
    pub forget: Changer,
    pub tag: Changer,
}

/// The processes that take part, and the rules in force.
#[derive(Clone, Copy)]
pub struct Cast {
    pub sessions: usize,
    pub sweeps: usize,
    pub has_forget: bool,
    pub has_tag: bool,
    pub rules: ProtocolRules,
}

impl World {
    /// The first state: one root and its container; no process has begun. Processes that take no part have ended.
    pub fn first(cast: &Cast) -> Self {
        let mut world = Self {
            containers: Set::of(FIRST),
            made: Set::of(FIRST),
            roots: Set::of(OLD_ROOT),
            references: [FIRST; ROOTS],
            removed: Set::default(),
            lists: Set::default(),
            condemned: [Set::default(); SWEEPS],
            sweep_lock: None,
            roots_lock: RootsHolder::Nobody,
            plan: RootPlan::Nothing,
            sessions: [Writer {
                machine: SessionMachine::new(cast.rules),
                record: Record::Absent,
                told: Set::default(),
            }; SESSIONS],
            sweeps: [Sweeper {
                machine: SweepMachine::new(cast.rules),
                is_alive: false,
                page: None,
            }; SWEEPS],
            forget: Changer {
                machine: ChangeMachine::new(cast.rules),
                source: OLD_ROOT,
            },
            tag: Changer {
                machine: ChangeMachine::new(cast.rules),
                source: OLD_ROOT,
            },
        };
        let idle_sessions = world.sessions.iter_mut().skip(cast.sessions);
        idle_sessions.for_each(|idle| idle.machine.given_up());
        let idle_sweeps = world.sweeps.iter_mut().skip(cast.sweeps);
        idle_sweeps.for_each(|idle| idle.machine.over());
        if !cast.has_forget {
            world.forget.machine.over();
        }
        if !cast.has_tag {
            world.tag.machine.over();
        }
        world
    }

    /// The roots that count.
    pub fn listed_roots(&self) -> Set {
        self.roots.minus(&self.removed)
    }

    /// The containers that `roots` refer to.
    pub fn referred(&self, roots: Set) -> Set {
        let containers = roots.numbers().map(|root| self.references[root as usize]);
        containers.fold(Set::default(), |all, one| all.plus(&Set::of(one)))
    }

    /// The containers on all existing lists.
    pub fn all_condemned(&self) -> Set {
        let lists = self.lists.numbers();
        lists.fold(Set::default(), |all, list| {
            all.plus(&self.condemned[list as usize])
        })
    }

    /// Whether a root that counts has lost its chunk.
    pub fn has_lost_data(&self) -> bool {
        !self.listed_roots().is_empty() && self.containers.is_empty()
    }

    /// Takes the lock for changes of roots; the new holder first carries out a plan that was decided in it.
    pub fn take_roots_lock(&mut self, holder: RootsHolder) {
        match self.plan {
            RootPlan::Nothing => {}
            RootPlan::Forget => self.removed.add(self.forget.source),
            RootPlan::Tag => {
                self.roots.add(TAG_ROOT);
                self.removed.add(self.tag.source);
            }
        }
        self.plan = RootPlan::Nothing;
        self.roots_lock = holder;
    }

    pub fn free_roots_lock(&mut self, holder: RootsHolder) {
        if self.roots_lock == holder {
            self.plan = RootPlan::Nothing;
            self.roots_lock = RootsHolder::Nobody;
        }
    }
}
