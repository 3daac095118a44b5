//! Metadata that was to be restored and is missing in the target: the file system refused it, or accepted it and kept
//! something else.

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
    /// All kinds, in the order of their bits.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Mode, Self::Times, Self::Attributes];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Metadata that could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataFailure {
    /// Kind of metadata.
    pub what: Metadata,
    /// The call that failed, in words.
    pub op: &'static str,
    /// Error of the system.
    pub why: Errno,
}

/// A set of kinds of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(u8);

impl Kinds {
    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is in the set.
    pub fn has(self, kind: Metadata) -> bool {
        self.0 & kind.bit() != 0
    }
}

impl FromIterator<Metadata> for Kinds {
    fn from_iter<T: IntoIterator<Item = Metadata>>(kinds: T) -> Self {
        Self(kinds.into_iter().fold(0, |all, kind| all | kind.bit()))
    }
}

/// Whether this restore has set a thing's metadata, and which kinds could not be set.
#[derive(Default)]
pub struct MetadataOutcome(AtomicU8);

/// Bit of [`MetadataOutcome`]: the metadata was set.
const HAPPENED: u8 = 1 << 7;

impl MetadataOutcome {
    /// Notes that the metadata was set, except the kinds in `missed`.
    pub fn set(&self, missed: Kinds) {
        self.0.store(HAPPENED | missed.0, Relaxed);
    }

    /// Returns the kinds that could not be set; `None` where this restore has not set the thing's metadata.
    pub fn missed(&self) -> Option<Kinds> {
        let bits = self.0.load(Relaxed);
        (bits & HAPPENED != 0).then_some(Kinds(bits & !HAPPENED))
    }
}

/// Number of paths that lack metadata, by kind.
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

/// Counter of paths that lack metadata, which threads share.
#[derive(Default)]
pub struct LackingTally([AtomicU64; Metadata::ALL.len()]);

impl LackingTally {
    /// Counts one more path that lacks these kinds.
    pub fn add(&self, kinds: Kinds) {
        for kind in Metadata::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            self.0[kind as usize].fetch_add(1, Relaxed);
        }
    }

    /// Returns the current counts.
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
