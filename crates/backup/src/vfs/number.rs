//! Numbers of files, as programs see them (`st_ino`): each says by itself where its entry stands, so that nobody keeps
//! a table of them.
//!
//! ```text
//! 2 bits kind | 18 bits snapshot | 28 bits leaf | 16 bits entry in the leaf      kind 1: an entry, or a snapshot's top
//! 2 bits kind | 18 bits snapshot | 44 bits hash of file system and inode         kind 2: a file with several names
//! 2 bits kind | 62 bits                                                          kind 0: a shelf, 1 is the top one
//! ```
//!
//! Invariant: a number means the same file as long as the process lives.

use onefold_chunk::Fingerprint;

const SNAPSHOT_BITS: u32 = 18;
const LEAF_BITS: u32 = 28;
const ENTRY_BITS: u32 = 16;
const REST_BITS: u32 = LEAF_BITS + ENTRY_BITS;
const KIND_SHIFT: u32 = SNAPSHOT_BITS + REST_BITS;
const REST_MAX: u64 = (1 << REST_BITS) - 1;

/// Snapshots that numbers can tell apart.
pub const SNAPSHOTS_MAX: usize = 1 << SNAPSHOT_BITS;

/// Meaning of a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// A folder of folders, or a link in one.
    Shelf(u64),
    /// The top folder of a snapshot.
    Top(u32),
    /// An entry of a snapshot.
    Entry(u32, EntryPosition),
    /// A file of a snapshot that has several names.
    Linked(u32, u64),
}

/// Where an entry stands in its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryPosition {
    /// The number of the leaf.
    pub leaf: u32,
    /// The number of the entry in the leaf.
    pub entry: u32,
}

impl EntryPosition {
    /// Returns the position as a number, in order.
    pub fn code(self) -> u64 {
        u64::from(self.leaf) << ENTRY_BITS | u64::from(self.entry)
    }

    /// The position of this [`code`](Self::code).
    pub fn of_code(code: u64) -> Self {
        Self {
            leaf: (code >> ENTRY_BITS & ((1 << LEAF_BITS) - 1)) as u32,
            entry: (code & ((1 << ENTRY_BITS) - 1)) as u32,
        }
    }
}

impl Number {
    /// The first shelf, in which all others are.
    pub const ROOT: Self = Self::Shelf(1);

    /// The number of a file with several names. Of two files the hash can be the same, once in many millions.
    pub fn linked(snapshot: u32, device: u64, inode: u64) -> Self {
        let name = [device.to_le_bytes(), inode.to_le_bytes()].concat();
        Self::Linked(snapshot, Fingerprint::of(&name).prefix() & REST_MAX)
    }

    /// Returns the number as programs see it.
    pub fn encode(self) -> u64 {
        let of = |kind: u64, snapshot: u32, rest: u64| {
            kind << KIND_SHIFT | u64::from(snapshot) << REST_BITS | rest
        };
        match self {
            Self::Shelf(number) => number,
            Self::Top(snapshot) => of(1, snapshot, REST_MAX),
            Self::Entry(snapshot, position) => of(1, snapshot, position.code()),
            Self::Linked(snapshot, hash) => of(2, snapshot, hash),
        }
    }

    /// Returns the meaning of the number, if it has one.
    pub fn decode(number: u64) -> Option<Self> {
        let snapshot = (number >> REST_BITS & (SNAPSHOTS_MAX as u64 - 1)) as u32;
        let rest = number & REST_MAX;
        match number >> KIND_SHIFT {
            0 => Some(Self::Shelf(number)),
            1 if rest == REST_MAX => Some(Self::Top(snapshot)),
            1 => Some(Self::Entry(snapshot, EntryPosition::of_code(rest))),
            2 => Some(Self::Linked(snapshot, rest)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_what_they_were_made_of() {
        let position = EntryPosition {
            leaf: (1 << LEAF_BITS) - 1,
            entry: (1 << ENTRY_BITS) - 2,
        };
        let all = [
            Number::ROOT,
            Number::Shelf(77),
            Number::Top(0),
            Number::Top(SNAPSHOTS_MAX as u32 - 1),
            Number::Entry(0, EntryPosition::of_code(0)),
            Number::Entry(3, position),
            Number::linked(3, 66_000, 12_345),
        ];
        for (i, number) in all.iter().enumerate() {
            assert_eq!(Number::decode(number.encode()), Some(*number));
            let same = all.iter().filter(|other| other.encode() == number.encode());
            assert_eq!(same.count(), 1, "number {i}");
        }
        assert_eq!(Number::decode(u64::MAX), None);
    }
}
