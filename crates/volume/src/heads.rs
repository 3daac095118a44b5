//! Volumes and snapshots of an engine: names, sizes, and the changes of them that an engine commits.

use crate::{Error, Result};

/// Volumes and snapshots of a depot at most: a manifest lists them all.
pub const HEADS_MAX: usize = 10_000;
/// Longest name of a volume, and of a snapshot without its volume's, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Number of a volume or snapshot of the depot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HeadId(pub u32);

/// A volume or snapshot that an engine keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadInfo {
    /// Its number, which is never given to another one.
    pub id: HeadId,
    /// Its name: of a snapshot `volume@name`.
    pub name: String,
    /// Its size in chunks.
    pub lbns: u64,
    /// Whether it takes writes: a volume does, a snapshot does not.
    pub is_writable: bool,
    /// Time at which it was made, in seconds since 1970; 0 where nobody said.
    pub created: u64,
}

impl HeadInfo {
    /// The volume that a depot is created with.
    pub fn first(name: &str, lbns: u64) -> Self {
        Self {
            id: HeadId(0),
            name: name.to_owned(),
            lbns,
            is_writable: true,
            created: 0,
        }
    }
}

/// A change of the volumes and snapshots: after a crash all of it is there, or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeadChange {
    /// A new volume of zeros.
    Create {
        /// Its name.
        name: String,
        /// Its size in chunks.
        lbns: u64,
        /// The time, in seconds since 1970.
        created: u64,
    },
    /// A volume or snapshot with what another one holds at this moment.
    Copy {
        /// The other one.
        from: HeadId,
        /// The new one's name.
        name: String,
        /// Whether it is a volume.
        is_writable: bool,
        /// The time, in seconds since 1970.
        created: u64,
    },
    /// A volume or snapshot goes. The others keep what they share with it.
    Delete {
        /// Its number.
        head: HeadId,
    },
    /// A volume becomes larger; what is new is zeros.
    Grow {
        /// Its number.
        head: HeadId,
        /// Its new size in chunks.
        lbns: u64,
    },
}

/// Checks the name of a volume, or the part of a snapshot's name behind its volume's.
///
/// # Errors
/// [`Error::Invalid`] with the limit that is broken.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_fine = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain);
    if is_fine {
        Ok(())
    } else {
        Err(Error::Invalid {
            what: format!(
                "the name \"{name}\" is not possible: volumes and snapshots are named by 1 to {NAME_BYTES_MAX} letters from a to z, digits, '-', '_' and '.'"
            ),
        })
    }
}

/// Checks the whole name of a volume (`is_writable`) or snapshot.
///
/// # Errors
/// [`Error::Invalid`] with the limit that is broken.
pub fn check_full_name(name: &str, is_writable: bool) -> Result<()> {
    match name.split_once('@') {
        None if is_writable => check_name(name),
        Some((volume, snapshot)) if !is_writable => {
            check_name(volume)?;
            check_name(snapshot)
        }
        _ => Err(Error::Invalid {
            what: format!("\"{name}\", where a snapshot is named VOLUME@NAME and a volume NAME"),
        }),
    }
}
