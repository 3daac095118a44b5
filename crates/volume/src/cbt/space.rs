//! Which pages of the device are in use: a bit each, in RAM as a whole (4 KiB for each 125 MiB of metadata), and on the
//! device in pages of bits.
//!
//! ```text
//! group := 32,000 pages: superblock, superblock (of the first group; unused in others), bits, bits, pages
//! ```
//!
//! The bits of a group have two places; the superblock says which of them counts, and a commit writes to the other. So
//! writing bits needs no page that would have to be allocated.
//!
//! Invariant: a page that the last superblock leads to is not allocated before the next one is durable, even if it
//! was freed since.

use super::page::{self, BODY_AT, CbtPageHead, PageKind};
use crate::page_cache::PAGE_BYTES;
use crate::{Error, Result};

/// Pages of a group.
pub(super) const GROUP_PAGES: u64 = 32_000;
/// Pages at the beginning of each group that hold no node.
const RESERVED: u64 = 4;
/// Bits of a group lie here, in pages from its beginning, or one further.
const BITS_AT: u64 = 2;
const WORDS: usize = GROUP_PAGES as usize / 64;
/// Groups that fit in a superblock: 2.6 TB of metadata.
pub(super) const GROUPS_MAX: usize = 22_000;
/// Pages are added at the end while fewer than one in this many is free.
const FREE_SHARE_MIN: u64 = 8;

pub(super) const BITS: CbtPageHead = CbtPageHead {
    kind: PageKind::Bits,
    level: 0,
    key_bytes: 0,
};

/// Pages in use, as of the transaction that is under way.
pub(super) struct Space {
    groups: Vec<Group>,
    /// Pages below were in use at some time.
    end: u64,
    /// Where the search for a free page goes on.
    cursor: u64,
    /// Free pages below the end.
    free: u64,
    /// Pages that the last superblock leads to, and the next will not.
    freed: Vec<u64>,
}

struct Group {
    words: Box<[u64; WORDS]>,
    /// Which of its two places holds what the last superblock means: 0 or 1.
    slot: u8,
    is_dirty: bool,
}

impl Group {
    fn new() -> Self {
        let mut words = Box::new([0; WORDS]);
        words[0] = (1 << RESERVED) - 1;
        Self {
            words,
            slot: 0,
            is_dirty: true,
        }
    }
}

impl Space {
    pub fn new() -> Self {
        Self {
            groups: vec![Group::new()],
            end: RESERVED,
            cursor: RESERVED,
            free: 0,
            freed: Vec::new(),
        }
    }

    /// As the superblock says; `read` gives a page of bits, checked.
    ///
    /// # Errors
    /// Those of `read`; [`Error::Damaged`].
    pub fn load(
        slots: &[u8],
        end: u64,
        cursor: u64,
        mut read: impl FnMut(u64) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let mut groups = Vec::new();
        for (number, slot) in (0..).zip(slots) {
            let place = bits_page(number, *slot);
            let bytes = read(place)?;
            page::expect(&bytes, place, BITS)?;
            let mut group = Group::new();
            for (word, raw) in group.words.iter_mut().zip(bytes[BODY_AT..].chunks_exact(8)) {
                *word = page::u64_at(raw, 0);
            }
            let reserved = group.words[0] & ((1 << RESERVED) - 1);
            if reserved != (1 << RESERVED) - 1 {
                let what = format!(
                    "offset {BODY_AT}: expected {RESERVED} pages in use, found {reserved:#b}"
                );
                return Err(page::damaged(place, what));
            }
            group.slot = *slot;
            group.is_dirty = false;
            groups.push(group);
        }
        let mut space = Self {
            groups,
            end,
            cursor,
            free: 0,
            freed: Vec::new(),
        };
        let used = space.used();
        space.free = end.checked_sub(used).ok_or_else(|| {
            let what = format!("expected at most {end} pages in use, found {used}");
            page::damaged(bits_page(0, slots.first().copied().unwrap_or(0)), what)
        })?;
        Ok(space)
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// For each group which of its two places counts.
    pub fn slots(&self) -> impl Iterator<Item = u8> {
        self.groups.iter().map(|group| group.slot)
    }

    pub fn ram_bytes(&self) -> u64 {
        (self.groups.len() * WORDS * 8 + self.freed.capacity() * 8) as u64
    }

    /// Pages in use, with those that hold no node.
    fn used(&self) -> u64 {
        let words = self.groups.iter().flat_map(|group| group.words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn is_used(&self, page: u64) -> bool {
        let group = self.groups.get((page / GROUP_PAGES) as usize);
        let at = page % GROUP_PAGES;
        group.is_some_and(|group| group.words[(at / 64) as usize] >> (at % 64) & 1 == 1)
    }

    /// Whether the next page comes from the end, where the device has room for pages below `room_end`.
    pub fn wants_more_than(&self, room_end: u64) -> bool {
        !self.has_many_free()
            && self.groups_at_end() <= GROUPS_MAX
            && self.next_at_end() >= room_end
    }

    /// Pages that can be allocated before the transaction that is under way is durable.
    pub fn left(&self, room_end: u64) -> u64 {
        let room_end = room_end.min(GROUPS_MAX as u64 * GROUP_PAGES);
        let groups_of = |end: u64| end.div_ceil(GROUP_PAGES);
        let groups = groups_of(room_end).saturating_sub(groups_of(self.end));
        let at_end = room_end.saturating_sub(self.end);
        self.free + at_end.saturating_sub(groups * RESERVED)
    }

    /// A page below `room_end` that nothing leads to, neither now nor after a crash.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: all pages below are in use, or as many as a superblock can name. Nothing was changed.
    pub fn allocate(&mut self, room_end: u64) -> Result<u64> {
        let has_room = self.next_at_end() < room_end && self.groups_at_end() <= GROUPS_MAX;
        let page = match (has_room, self.free) {
            (true, _) if !self.has_many_free() => self.extend(),
            (_, 1..) => self.find_free(),
            _ => {
                return Err(Error::NoSpace {
                    what: format!("the metadata has all of its {} pages in use", self.end),
                });
            }
        };
        self.cursor = page + 1;
        Ok(page)
    }

    fn has_many_free(&self) -> bool {
        self.free > 0 && self.free * FREE_SHARE_MIN >= self.end
    }

    /// The page that comes next where one is added at the end.
    fn next_at_end(&self) -> u64 {
        if self.end.is_multiple_of(GROUP_PAGES) {
            self.end + RESERVED
        } else {
            self.end
        }
    }

    /// Groups, once a page is added at the end.
    fn groups_at_end(&self) -> usize {
        (self.next_at_end() / GROUP_PAGES + 1) as usize
    }

    /// The page is free at once: only the transaction that is under way ever led to it. In damaged trees two pages may
    /// lead to one, which is freed once.
    pub fn release(&mut self, page: u64) {
        self.free += u64::from(self.is_used(page));
        self.set(page, false);
    }

    /// The page is free once the transaction that is under way is durable.
    pub fn release_later(&mut self, page: u64) {
        self.freed.push(page);
    }

    /// Ends a transaction: frees what waited, and gives the pages of bits that have to be written, with their places.
    /// Nothing may be allocated before the superblock is durable.
    pub fn commit(&mut self, transaction: u64) -> Vec<(u64, Vec<u8>)> {
        for page in std::mem::take(&mut self.freed) {
            self.release(page);
        }
        let mut writes = Vec::new();
        for (number, group) in (0..).zip(&mut self.groups) {
            if std::mem::take(&mut group.is_dirty) {
                group.slot ^= 1;
                let mut bytes = vec![0; PAGE_BYTES];
                page::begin(&mut bytes, BITS, transaction);
                for (raw, word) in bytes[BODY_AT..].chunks_exact_mut(8).zip(&group.words[..]) {
                    raw.copy_from_slice(&word.to_le_bytes());
                }
                writes.push((bits_page(number, group.slot), bytes));
            }
        }
        writes
    }

    /// Pages that are freed once the transaction is durable.
    pub fn freed(&self) -> &[u64] {
        &self.freed
    }

    fn extend(&mut self) -> u64 {
        let page = self.next_at_end();
        if self.groups.len() < self.groups_at_end() {
            self.groups.push(Group::new());
        }
        self.end = page + 1;
        self.set(page, true);
        page
    }

    /// The next free page behind the one that was allocated last. There is one.
    fn find_free(&mut self) -> u64 {
        let start = if self.cursor < self.end {
            self.cursor
        } else {
            0
        };
        let page = self
            .free_in(start, self.end)
            .or_else(|| self.free_in(0, start))
            .unwrap_or(self.end);
        self.set(page, true);
        self.free -= 1;
        page
    }

    fn free_in(&self, start: u64, end: u64) -> Option<u64> {
        let mut at = start;
        while at < end {
            let place = at % GROUP_PAGES;
            let word = self.groups[(at / GROUP_PAGES) as usize].words[(place / 64) as usize];
            // Bits below the place count as used.
            let taken = word | ((1 << (place % 64)) - 1);
            let next = at - place % 64 + 64;
            let found = at - place % 64 + u64::from(taken.trailing_ones());
            if found < next.min(end) {
                return Some(found);
            }
            at = next;
        }
        None
    }

    fn set(&mut self, page: u64, is_used: bool) {
        let group = &mut self.groups[(page / GROUP_PAGES) as usize];
        let at = page % GROUP_PAGES;
        let word = &mut group.words[(at / 64) as usize];
        if is_used {
            *word |= 1 << (at % 64)
        } else {
            *word &= !(1 << (at % 64))
        }
        group.is_dirty = true;
    }
}

fn bits_page(group: u64, slot: u8) -> u64 {
    group * GROUP_PAGES + BITS_AT + u64::from(slot & 1)
}
