//! Files, links, pipes and devices with several names: the first name is restored, the others are linked to it.
//!
//! Invariant: a name is linked only to a file of the same size and time. A snapshot is taken while the system goes on,
//! so an inode may have been freed and given to another file, or its content changed, between two names; such a name
//! gets the content that was read under it.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use crate::linked::{LinkKey, Linked, Value};
use crate::wire::{WireReader, put, zigzag};
use crate::{Entry, Result, Time, path};

/// A file whose first name was planned, or found in the target.
#[derive(Clone)]
pub struct FirstNameRecord {
    /// Path of the first name in the target.
    pub path: Vec<u8>,
    size: u64,
    mtime: Time,
    /// Whether a file found in the target was compared with the snapshot's content.
    pub is_compared: bool,
}

impl Value for FirstNameRecord {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put(out, zigzag(self.mtime.secs));
        put(out, self.mtime.nanos.into());
        put(out, self.is_compared.into());
        out.extend_from_slice(&self.path);
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = WireReader::new("temporary file", bytes);
        let size = reader.varint()?;
        let (secs, nanos) = (reader.signed()?, reader.small()?);
        let is_compared = reader.varint()? != 0;
        Ok(Self {
            is_compared,
            path: reader.take(reader.left())?.to_vec(),
            size,
            mtime: Time { secs, nanos },
        })
    }

    fn heap_bytes(&self) -> usize {
        self.path.len() + 16
    }
}

/// First names, by device and inode.
pub struct Links(Linked<FirstNameRecord>);

impl Links {
    /// Makes an empty map. Paths take `bytes_max` bytes of RAM; further ones go to a temporary file.
    pub fn new(bytes_max: usize) -> Self {
        Self(Linked::new(bytes_max))
    }

    /// Returns the path of the first name of `entry`, which goes to `path`; `None` where it is the first. Errors: a
    /// temporary file failed.
    pub fn first_name(&mut self, entry: &Entry, path: Vec<u8>) -> Result<Option<Vec<u8>>> {
        if entry.links < 2 {
            return Ok(None);
        }
        let first = self.meet(entry)?.map(|first| first.path);
        if first.is_none() {
            let to_come = u32::try_from(entry.links - 1).unwrap_or(u32::MAX);
            self.insert(entry, path, to_come)?;
        }
        Ok(first)
    }

    /// Returns what is remembered of the file of `entry`, and counts the entry as one of the names to come. Errors: a
    /// temporary file failed.
    pub fn meet(&mut self, entry: &Entry) -> Result<Option<FirstNameRecord>> {
        let looks = (entry.size, entry.mtime);
        self.0
            .meet(key(entry), |first| (first.size, first.mtime) == looks)
    }

    /// Remembers `path` for the file of `entry`, until `to_come` names have come. Errors: a temporary file failed.
    pub fn insert(&mut self, entry: &Entry, path: Vec<u8>, to_come: u32) -> Result<()> {
        let first = FirstNameRecord {
            path,
            size: entry.size,
            mtime: entry.mtime,
            is_compared: false,
        };
        self.0.insert(key(entry), to_come, first)
    }

    /// Remembers `path` for the file of `entry`, whose content is the snapshot's, until as many names have come as it
    /// has. Errors: a temporary file failed.
    pub fn insert_compared(&mut self, entry: &Entry, path: &[u8]) -> Result<()> {
        let first = FirstNameRecord {
            path: path.to_vec(),
            size: entry.size,
            mtime: entry.mtime,
            is_compared: true,
        };
        let to_come = u32::try_from(entry.links).unwrap_or(u32::MAX);
        self.0.insert(key(entry), to_come, first)
    }

    /// Forgets the file of `entry`. Errors: a temporary file failed.
    pub fn forget(&mut self, entry: &Entry) -> Result<()> {
        self.0.forget(key(entry))
    }
}

fn key(entry: &Entry) -> LinkKey {
    (entry.device, entry.inode)
}

/// Largest number of failed names that are remembered: some 36 MiB.
const FAILED_MAX: usize = 1 << 21;

/// First names that failed, by hashes of their paths in the target: a file under such a name is not the one of the
/// snapshot, however it looks. Where too many failed to be remembered, any name may have.
#[derive(Default)]
pub struct FailedFirsts {
    hashes: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl FailedFirsts {
    /// Notes that the first name at `path` failed.
    pub fn add(&self, path: &[u8]) {
        let mut hashes = self.hashes.lock();
        if hashes.len() < FAILED_MAX {
            hashes.insert(self.hasher.hash_one(path::split(path)));
        }
    }

    /// Whether this first name failed, or may have.
    pub fn has(&self, folder: &[u8], name: &[u8]) -> bool {
        let hashes = self.hashes.lock();
        // Hashing a long path takes a while, so it comes last.
        let is_known = || hashes.contains(&self.hasher.hash_one((folder, name)));
        hashes.len() >= FAILED_MAX || !hashes.is_empty() && is_known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn entry(size: u64, secs: i64) -> Entry {
        let mut entry = Entry::new(b"name".to_vec(), Kind::File);
        (entry.device, entry.inode, entry.links) = (1, 5, 2);
        (entry.size, entry.mtime.secs) = (size, secs);
        entry
    }

    #[test]
    fn another_file_under_a_freed_inode_is_no_link() {
        let mut links = Links::new(0);
        let mut first = |entry, path: &str| links.first_name(&entry, path.into()).unwrap();
        assert_eq!(first(entry(10, 1), "/old"), None);
        assert_eq!(first(entry(10, 2), "/new"), None);
        assert_eq!(first(entry(10, 2), "/new-again"), Some("/new".into()));
        assert_eq!(first(entry(11, 2), "/larger"), None);
    }
}
