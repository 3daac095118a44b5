//! Files with several names, as long as somebody knows their number: all names of one have the same.
//!
//! The number is a hash of file system and inode, which does not say where an entry is. So that is remembered, from the
//! moment somebody is told the number until all who know it have forgotten it: as many as the kernel keeps inodes.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::number::{EntryPosition, Number};
use crate::{Entry, Kind};

/// Where the files are whose numbers are known to somebody.
#[derive(Default)]
pub struct HardLinks {
    known: Mutex<HashMap<(u32, u64), KnownFile>>,
}

struct KnownFile {
    device: u64,
    inode: u64,
    position: EntryPosition,
    /// Times that somebody was told the number.
    times: u64,
}

impl HardLinks {
    /// The number of an entry, which nobody may be told unless it is [met](Self::meet).
    pub fn number(snapshot: u32, position: EntryPosition, entry: &Entry) -> Number {
        let has_further_names = entry.links > 1 && entry.inode != 0 && entry.kind != Kind::Dir;
        if has_further_names {
            Number::linked(snapshot, entry.device, entry.inode)
        } else {
            Number::Entry(snapshot, position)
        }
    }

    /// The number of an entry, of which somebody is told. Of two files with one hash the second has a number of its
    /// own, by its name.
    pub fn meet(&self, snapshot: u32, position: EntryPosition, entry: &Entry) -> Number {
        let number = Self::number(snapshot, position, entry);
        let Number::Linked(_, hash) = number else {
            return number;
        };
        let mut known = self.known.lock();
        let (device, inode) = (entry.device, entry.inode);
        let file = known.entry((snapshot, hash)).or_insert(KnownFile {
            device,
            inode,
            position,
            times: 0,
        });
        if (file.device, file.inode) != (device, inode) {
            return Number::Entry(snapshot, position);
        }
        file.times += 1;
        number
    }

    /// Where the file with this number is.
    pub fn position(&self, snapshot: u32, hash: u64) -> Option<EntryPosition> {
        Some(self.known.lock().get(&(snapshot, hash))?.position)
    }

    /// Somebody forgets the number, as often as they were told it.
    pub fn forget(&self, number: u64, times: u64) {
        let Some(Number::Linked(snapshot, hash)) = Number::decode(number) else {
            return;
        };
        let mut known = self.known.lock();
        if let Some(file) = known.get_mut(&(snapshot, hash)) {
            file.times = file.times.saturating_sub(times);
            if file.times == 0 {
                known.remove(&(snapshot, hash));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u64, links: u64) -> Entry {
        Entry {
            inode,
            links,
            ..Entry::new(b"x".to_vec(), Kind::File)
        }
    }

    #[test]
    fn names_of_a_file_have_one_number_until_it_is_forgotten() {
        let links = HardLinks::default();
        let (first, second) = (EntryPosition::of_code(7), EntryPosition::of_code(9));
        let number = links.meet(1, first, &entry(5, 2));
        assert_eq!(links.meet(1, second, &entry(5, 2)), number);
        assert_ne!(links.meet(2, second, &entry(5, 2)), number);
        let Number::Linked(1, hash) = number else {
            panic!("{number:?}");
        };
        assert_eq!(links.position(1, hash), Some(first));
        links.forget(number.encode(), 1);
        assert_eq!(links.position(1, hash), Some(first));
        links.forget(number.encode(), 1);
        assert_eq!(links.position(1, hash), None);
        let alone = Number::Entry(1, first);
        assert_eq!(links.meet(1, first, &entry(5, 1)), alone);
        assert_eq!(links.meet(1, first, &entry(0, 2)), alone);
    }
}
