//! Metadata that a restore was asked for and that what it made does not have: the target refused it, or took it and
//! keeps something else.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

/// A kind of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metadata {
    /// User and group.
    Owner,
    /// Permissions.
    Mode,
    /// Time of the last change, and of the last access where the snapshot has it.
    Times,
    /// Extended attributes and ACLs.
    Attributes,
}

impl Metadata {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Mode, Self::Times, Self::Attributes];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Metadata that could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataFailure {
    /// Its kind.
    pub what: Metadata,
    /// The call that failed, in words.
    pub op: &'static str,
    /// Why it failed.
    pub why: Errno,
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(u8);

impl Kinds {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is one of them.
    pub fn has(self, kind: Metadata) -> bool {
        self.0 & kind.bit() != 0
    }
}

impl FromIterator<Metadata> for Kinds {
    fn from_iter<T: IntoIterator<Item = Metadata>>(kinds: T) -> Self {
        Self(kinds.into_iter().fold(0, |all, kind| all | kind.bit()))
    }
}

/// Whether this restore has given something its metadata, and which kinds of it could not be set.
#[derive(Default)]
pub struct MetadataOutcome(AtomicU8);

/// The bit of [`MetadataOutcome`] that says that it happened.
const HAPPENED: u8 = 1 << 7;

impl MetadataOutcome {
    /// It happened, and these kinds could not be set.
    pub fn set(&self, missed: Kinds) {
        self.0.store(HAPPENED | missed.0, Relaxed);
    }

    /// The kinds that could not be set; `None`: this restore has not described it.
    pub fn missed(&self) -> Option<Kinds> {
        let bits = self.0.load(Relaxed);
        (bits & HAPPENED != 0).then_some(Kinds(bits & !HAPPENED))
    }
}

/// Paths that lack metadata, by its kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Lacking {
    /// Paths with another owner or group.
    pub owner: u64,
    /// Paths with another mode.
    pub mode: u64,
    /// Paths with another time.
    pub times: u64,
    /// Paths without some of their attributes.
    pub attributes: u64,
}

/// The same, while it is counted.
#[derive(Default)]
pub struct LackingTally([AtomicU64; Metadata::ALL.len()]);

impl LackingTally {
    /// One path more lacks these kinds.
    pub fn add(&self, kinds: Kinds) {
        for kind in Metadata::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            self.0[kind as usize].fetch_add(1, Relaxed);
        }
    }

    /// How many they are now.
    pub fn get(&self) -> Lacking {
        let of = |kind: Metadata| self.0[kind as usize].load(Relaxed);
        Lacking {
            owner: of(Metadata::Owner),
            mode: of(Metadata::Mode),
            times: of(Metadata::Times),
            attributes: of(Metadata::Attributes),
        }
    }
}
