//! Remembers files with several names until all of their names were seen.
//!
//! The first values are in RAM, further ones in nameless files: a hash table of 32-byte slots, and the values one
//! behind another. So RAM stays a budget however many files have several names, and every further name still finds its
//! file: copies of a tree made of hard links (`cp -al`, rsnapshot) have all of their first names in one folder and all
//! the others in folders that come much later.
//!
//! Invariant: a value is found as often as names were to come, then it is gone.

use std::collections::HashMap;
use std::collections::hash_map::{Entry as Place, RandomState};
use std::hash::BuildHasher;

use onefold_io::os::Scratch;

use crate::{Error, Result};

/// A file by its file system and inode number, which its hard links have in common.
pub type LinkKey = (u64, u64);

/// A value that can be written to a file and read again.
pub trait Value: Clone {
    /// Appends the value's bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes the value of these bytes.
    fn get(bytes: &[u8]) -> Result<Self>;
    /// Approximate bytes on the heap.
    fn heap_bytes(&self) -> usize;
}

/// Values by file.
pub struct Linked<V> {
    near: HashMap<LinkKey, NearValue<V>>,
    near_bytes: usize,
    near_bytes_max: usize,
    far: Option<Far>,
}

struct NearValue<V> {
    to_come: u32,
    value: V,
}

impl<V: Value> Linked<V> {
    /// Makes an empty map, which takes about `bytes_max` bytes of RAM at most.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            near: HashMap::new(),
            near_bytes: 0,
            near_bytes_max: bytes_max,
            far: None,
        }
    }

    /// Remembers `value` for `to_come` further names, in place of an earlier value. Errors: a temporary file was needed
    /// and failed.
    pub fn insert(&mut self, key: LinkKey, to_come: u32, value: V) -> Result<()> {
        if let Some(old) = self.near.remove(&key) {
            self.near_bytes -= ram_bytes(&old.value);
        }
        let bytes = ram_bytes(&value);
        let is_near = self.near_bytes + bytes <= self.near_bytes_max;
        if (to_come == 0 || is_near)
            && let Some(far) = &mut self.far
        {
            far.remove(key)?;
        }
        match (to_come, is_near) {
            (0, _) => Ok(()),
            (_, true) => {
                self.near_bytes += bytes;
                self.near.insert(key, NearValue { to_come, value });
                Ok(())
            }
            (_, false) => {
                let far = match &mut self.far {
                    Some(far) => far,
                    none => none.insert(Far::create(PAGES_MIN)?),
                };
                let mut bytes = Vec::new();
                value.put(&mut bytes);
                far.insert(key, to_come, &bytes)
            }
        }
    }

    /// Forgets the value of a file. Errors: a temporary file failed.
    pub fn forget(&mut self, key: LinkKey) -> Result<()> {
        if let Some(old) = self.near.remove(&key) {
            self.near_bytes -= ram_bytes(&old.value);
        }
        match &mut self.far {
            Some(far) => far.remove(key),
            None => Ok(()),
        }
    }

    /// Returns the value, if it is there and `fits`, and counts one of its names as seen. Errors: a temporary file
    /// failed.
    pub fn meet(&mut self, key: LinkKey, fits: impl Fn(&V) -> bool) -> Result<Option<V>> {
        if let Place::Occupied(mut kept) = self.near.entry(key) {
            if !fits(&kept.get().value) {
                return Ok(None);
            }
            kept.get_mut().to_come -= 1;
            if kept.get().to_come > 0 {
                return Ok(Some(kept.get().value.clone()));
            }
            let value = kept.remove().value;
            self.near_bytes -= ram_bytes(&value);
            return Ok(Some(value));
        }
        let Some(far) = &mut self.far else {
            return Ok(None);
        };
        let Some((place, slot)) = far.find(key)?.taken() else {
            return Ok(None);
        };
        let value = V::get(&far.value(&slot)?)?;
        if !fits(&value) {
            return Ok(None);
        }
        far.seen(place, slot)?;
        if far.live == 0 {
            self.far = None;
        }
        Ok(Some(value))
    }
}

/// RAM of one more value, in bytes: a hash map may be half empty.
fn ram_bytes<V: Value>(value: &V) -> usize {
    2 * size_of::<(LinkKey, NearValue<V>)>() + value.heap_bytes()
}

const SLOT_BYTES: usize = 32;
const PAGE_BYTES: usize = 512;
const PAGE_SLOTS: u64 = (PAGE_BYTES / SLOT_BYTES) as u64;
/// First size of the table in pages: 32 MiB, most of it a hole at first. It doubles at seven tenths.
const PAGES_MIN: u64 = 65_536;

/// The part of the map that is in files.
struct Far {
    slots: Scratch,
    values: Scratch,
    pages: u64,
    /// Number of slots that are not empty.
    used: u64,
    /// Number of slots whose names have not all come yet.
    live: u64,
    values_bytes: u64,
    hashes: RandomState,
}

/// Device, inode, names to come, length of the value, and its offset plus one; all zeros: an empty slot.
#[derive(Clone, Copy)]
struct TableSlot {
    key: LinkKey,
    to_come: u32,
    len: u32,
    start: u64,
}

impl TableSlot {
    fn to_bytes(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.1.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to_come.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..].copy_from_slice(&(self.start + 1).to_le_bytes());
        bytes
    }

    /// Decodes a slot; `None` where it is empty.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let long =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let short =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Some(Self {
            key: (long(0), long(8)),
            to_come: short(16),
            len: short(20),
            start: long(24).checked_sub(1)?,
        })
    }
}

/// Result of looking for a key: its place, or the place where it would be.
enum SlotLookup {
    Taken(u64, TableSlot),
    Free(u64),
}

impl SlotLookup {
    fn taken(self) -> Option<(u64, TableSlot)> {
        match self {
            Self::Taken(place, slot) => Some((place, slot)),
            Self::Free(_) => None,
        }
    }
}

impl Far {
    fn create(pages: u64) -> Result<Self> {
        Ok(Self {
            slots: Scratch::create().map_err(Error::Temporary)?,
            values: Scratch::create().map_err(Error::Temporary)?,
            pages,
            used: 0,
            live: 0,
            values_bytes: 0,
            hashes: RandomState::new(),
        })
    }

    /// Looks from the key's page on for the first page that has the key or a free slot.
    fn find(&self, key: LinkKey) -> Result<SlotLookup> {
        let mut page =
            ((u128::from(self.hashes.hash_one(key)) * u128::from(self.pages)) >> 64) as u64;
        let mut bytes = [0; PAGE_BYTES];
        loop {
            let start = page * PAGE_BYTES as u64;
            let read = self.slots.read_at(&mut bytes, start);
            read.map_err(Error::Temporary)?;
            for (number, bytes) in bytes.chunks_exact(SLOT_BYTES).enumerate() {
                let place = start + (number * SLOT_BYTES) as u64;
                match TableSlot::from_bytes(bytes) {
                    None => return Ok(SlotLookup::Free(place)),
                    Some(slot) if slot.key == key && slot.to_come > 0 => {
                        return Ok(SlotLookup::Taken(place, slot));
                    }
                    Some(_) => {}
                }
            }
            // The table is never full, so the search ends.
            page = (page + 1) % self.pages;
        }
    }

    fn put(&self, place: u64, slot: TableSlot) -> Result<()> {
        let written = self.slots.write_at(&slot.to_bytes(), place);
        written.map_err(Error::Temporary)
    }

    fn insert(&mut self, key: LinkKey, to_come: u32, value: &[u8]) -> Result<()> {
        let slot = TableSlot {
            key,
            to_come,
            len: value.len() as u32,
            start: self.values_bytes,
        };
        let written = self.values.write_at(value, slot.start);
        written.map_err(Error::Temporary)?;
        self.values_bytes += value.len() as u64;
        if self.used >= self.pages * PAGE_SLOTS / 10 * 7 {
            self.grow()?;
        }
        self.place(slot)
    }

    fn place(&mut self, slot: TableSlot) -> Result<()> {
        let place = match self.find(slot.key)? {
            SlotLookup::Taken(place, _) => place,
            SlotLookup::Free(place) => {
                (self.used, self.live) = (self.used + 1, self.live + 1);
                place
            }
        };
        self.put(place, slot)
    }

    /// Makes a table of twice the size, or of the same size where half of its slots are not live any more.
    fn grow(&mut self) -> Result<()> {
        let pages = if self.live > self.used / 2 {
            self.pages * 2
        } else {
            self.pages
        };
        let mut larger = Self::create(pages)?;
        let mut bytes = vec![0; 512 * PAGE_BYTES];
        for start in (0..self.pages * PAGE_BYTES as u64).step_by(bytes.len()) {
            let read = self.slots.read_at(&mut bytes, start);
            read.map_err(Error::Temporary)?;
            let slots = bytes
                .chunks_exact(SLOT_BYTES)
                .filter_map(TableSlot::from_bytes);
            slots
                .filter(|slot| slot.to_come > 0)
                .try_for_each(|slot| larger.place(slot))?;
        }
        (self.slots, self.hashes) = (larger.slots, larger.hashes);
        (self.pages, self.used, self.live) = (larger.pages, larger.used, larger.live);
        Ok(())
    }

    fn value(&self, slot: &TableSlot) -> Result<Vec<u8>> {
        let mut bytes = vec![0; slot.len as usize];
        let read = self.values.read_at(&mut bytes, slot.start);
        read.map_err(Error::Temporary).map(|()| bytes)
    }

    /// Counts one of the names as seen.
    fn seen(&mut self, place: u64, slot: TableSlot) -> Result<()> {
        let to_come = slot.to_come - 1;
        self.live -= u64::from(to_come == 0);
        self.put(place, TableSlot { to_come, ..slot })
    }

    fn remove(&mut self, key: LinkKey) -> Result<()> {
        match self.find(key)? {
            SlotLookup::Free(_) => Ok(()),
            SlotLookup::Taken(place, slot) => self.seen(place, TableSlot { to_come: 1, ..slot }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Value for String {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.as_bytes());
        }

        fn get(bytes: &[u8]) -> Result<Self> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }

        fn heap_bytes(&self) -> usize {
            self.len()
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u64, u32, String),
        Meet(u64, bool),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..40u64, 0..4u32, "[a-z]{0,9}").prop_map(|(inode, n, s)| Act::Insert(inode, n, s)),
            (0..40u64, any::<bool>()).prop_map(|(inode, fits)| Act::Meet(inode, fits)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn in_files_as_in_ram(acts in prop::collection::vec(act(), 0..200), room in 0..3usize) {
            let mut all_near = Linked::new(usize::MAX);
            let mut mostly_far = Linked::new(room * 200);
            for act in acts {
                match act {
                    Act::Insert(inode, n, value) => {
                        all_near.insert((1, inode), n, value.clone()).unwrap();
                        mostly_far.insert((1, inode), n, value).unwrap();
                    }
                    Act::Meet(inode, fits) => prop_assert_eq!(
                        all_near.meet((1, inode), |_| fits).unwrap(),
                        mostly_far.meet((1, inode), |_| fits).unwrap()
                    ),
                }
            }
        }
    }

    #[test]
    fn a_table_grows_and_forgets_nothing() {
        let mut far = Far::create(2).unwrap();
        let value = |inode: u64| inode.to_string();
        for inode in 0..2000 {
            far.insert((7, inode), 1, value(inode).as_bytes()).unwrap();
        }
        assert!(far.pages > 16 && far.live == 2000);
        for inode in 0..2000 {
            let (place, slot) = far.find((7, inode)).unwrap().taken().unwrap();
            assert_eq!(far.value(&slot).unwrap(), value(inode).as_bytes());
            far.seen(place, slot).unwrap();
            assert!(far.find((7, inode)).unwrap().taken().is_none());
        }
        assert_eq!(far.live, 0);
    }
}
