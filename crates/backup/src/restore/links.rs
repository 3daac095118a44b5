//! Files, links, pipes and devices with several names: the first is restored, the others are linked to it.
//!
//! What always holds: a name is linked only to a file of the same size and time. A snapshot is taken while the system goes on, so that an inode may
//! have been freed and given to another file, or its content changed, between two names; such a name gets the content that was read under it.

use std::collections::HashMap;

use crate::{Entry, Time};

/// Files with several names whose first path is remembered; further ones are restored as copies.
const LINKS_MAX: usize = 256 << 10;

/// A file whose first name was planned.
struct First {
    /// Its path in the target.
    path: Vec<u8>,
    size: u64,
    mtime: Time,
    /// Names that are still to come.
    to_come: u64,
}

/// The first names, by device and inode.
#[derive(Default)]
pub struct Links(HashMap<(u64, u64), First>);

impl Links {
    /// The path of the file that `entry`, which goes to `path`, is another name of.
    pub fn first_name(&mut self, entry: &Entry, path: Vec<u8>) -> Option<Vec<u8>> {
        if entry.links < 2 {
            return None;
        }
        let key = (entry.device, entry.inode);
        let has_room = self.0.len() < LINKS_MAX;
        match self.0.get_mut(&key) {
            Some(first) if (first.size, first.mtime) == (entry.size, entry.mtime) => {
                let path = first.path.clone();
                first.to_come -= 1;
                if first.to_come == 0 {
                    self.0.remove(&key);
                }
                return Some(path);
            }
            None if !has_room => return None,
            _ => {}
        }
        let first = First {
            path,
            size: entry.size,
            mtime: entry.mtime,
            to_come: entry.links - 1,
        };
        self.0.insert(key, first);
        None
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
        let mut links = Links::default();
        let mut first = |entry, path: &str| links.first_name(&entry, path.into());
        assert_eq!(first(entry(10, 1), "/old"), None);
        assert_eq!(first(entry(10, 2), "/new"), None);
        assert_eq!(first(entry(10, 2), "/new-again"), Some("/new".into()));
        assert_eq!(first(entry(11, 2), "/larger"), None);
    }
}
