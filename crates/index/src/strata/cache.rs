//! The prefetch cache: log pages that were read, and where in them each fingerprint stands.
//!
//! A hit brings 64 KiB of the log, in which the stream's next two thousand fingerprints stand when it repeats an
//! earlier one (DDFS's locality-preserved caching, ChunkStash's and PRUNE's prefetch). Invariant: an answer was
//! compared with the full fingerprint in the page. A newer record may supersede the answer, so the caller asks the runs
//! that are newer than the page. Replacement is CLOCK by page. A word whose bucket is full goes to the neighbouring
//! bucket; where that is full too, the oldest word is dropped. A word whose page has left the cache fails the
//! comparison: a forgotten word costs a read, never a wrong answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_chunk::Fingerprint;
use onefold_io::os::prefetch;

use super::log::{LogPage, PAGE_RECORDS_MAX, Said};
use super::manifest::FileId;
use super::page::PAGE_BYTES;

/// Words in a bucket: one cache line.
const BUCKET: usize = 8;
/// Words for a page's records. The room is enough that a bucket and its neighbour seldom fill: a full cache forgets one
/// word in a thousand.
const WORDS_A_PAGE: usize = PAGE_RECORDS_MAX * 2;
/// Pages by which the cache grows until it is full.
const GROW_PAGES: usize = 64;
/// RAM for a page in bytes: the page, its words, its number, its file and its entry in the map.
pub const CACHE_PAGE_BYTES: usize = PAGE_BYTES + WORDS_A_PAGE * 8 + 48;
/// Page number of a slot whose page was forgotten.
const FORGOTTEN: u32 = u32::MAX;

/// Log pages that were read, and where in them each fingerprint stands. Its size is fixed.
pub struct PageCache {
    capacity: usize,
    bytes: Vec<u8>,
    numbers: Vec<u32>,
    /// The file from which the page in each slot was read.
    files: Vec<FileId>,
    used: Vec<AtomicBool>,
    slots: HashMap<u32, u32>,
    buckets: Vec<CacheLine>,
    hand: usize,
}

/// One line of memory: tags of records' hashes and the places of the records, newest first.
#[derive(Clone, Default)]
#[repr(align(64))]
struct CacheLine {
    tags: [u32; BUCKET],
    /// Places of the records: slot of the page × 128, plus the record's position in the page.
    places: [u32; BUCKET],
}

impl CacheLine {
    /// Whether all words of the bucket were written. The very first word of a cache may look unwritten.
    #[inline]
    fn is_full(&self) -> bool {
        self.tags[BUCKET - 1] | self.places[BUCKET - 1] != 0
    }
}

impl PageCache {
    /// A cache within `bytes` of RAM.
    pub fn new(bytes: usize) -> PageCache {
        let capacity = (bytes / CACHE_PAGE_BYTES).max(2);
        let buckets = (capacity * WORDS_A_PAGE).div_ceil(2 * BUCKET) * 2;
        PageCache {
            capacity,
            bytes: Vec::new(),
            numbers: Vec::new(),
            files: Vec::new(),
            used: Vec::new(),
            slots: HashMap::new(),
            buckets: vec![CacheLine::default(); buckets],
            hand: 0,
        }
    }

    /// Looks `key`, whose hash is `hash`, up in the cached pages: returns the log page's number and what its record
    /// says.
    #[inline]
    pub fn get(&self, key: &Fingerprint, hash: u64) -> Option<(u32, Said)> {
        let at = self.bucket_of(hash);
        let found = self.get_in(at, key, hash);
        match found {
            None if self.buckets[at].is_full() => self.get_in(at ^ 1, key, hash),
            found => found,
        }
    }

    #[inline]
    fn get_in(&self, bucket: usize, key: &Fingerprint, hash: u64) -> Option<(u32, Said)> {
        let bucket = &self.buckets[bucket];
        let tag = tag_of(hash);
        let same = bucket.tags.map(|other| u32::from(other == tag));
        let mut same = (0..).zip(same).map(|(at, same)| same << at).sum::<u32>();
        while same != 0 {
            let place = bucket.places[same.trailing_zeros() as usize] as usize;
            same &= same - 1;
            let (slot, record) = (place >> 7, place & 127);
            if slot >= self.numbers.len() {
                continue;
            }
            let page = self.page(slot);
            if record < page.len() && page.fingerprint(record) == &key.0 {
                let said = page.said(record);
                self.mark_used(slot);
                return Some((self.numbers[slot], said));
            }
        }
        None
    }

    /// Tells the processor to fetch the bucket that [`PageCache::get`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets, self.bucket_of(hash));
    }

    /// Whether log page `number` is in the cache.
    pub fn holds(&self, number: u32) -> bool {
        self.slots.contains_key(&number)
    }

    /// Log page `number`, if it is in the cache.
    pub fn page_of(&self, number: u32) -> Option<LogPage<'_>> {
        self.slots
            .get(&number)
            .map(|slot| self.page(*slot as usize))
    }

    /// Adds log page `number`, whose `bytes` were read from `file` and checked.
    pub fn insert(&mut self, number: u32, file: FileId, bytes: &[u8]) {
        if self.holds(number) {
            return;
        }
        let slot = self.free_slot(file);
        self.bytes[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES].copy_from_slice(bytes);
        self.numbers[slot] = number;
        self.files[slot] = file;
        self.mark_used(slot);
        self.slots.insert(number, slot as u32);
        let page = LogPage::checked(bytes);
        let hash = |record| super::run::hash_of(&Fingerprint(*page.fingerprint(record)));
        // buckets lie anywhere in memory: they are fetched together
        (0..page.len()).for_each(|record| self.prefetch(hash(record)));
        for record in 0..page.len() {
            let hash = hash(record);
            let own = self.bucket_of(hash);
            let full = self.buckets[own].is_full() && !self.buckets[own ^ 1].is_full();
            let bucket = &mut self.buckets[own ^ usize::from(full)];
            bucket.tags.copy_within(..BUCKET - 1, 1);
            bucket.places.copy_within(..BUCKET - 1, 1);
            bucket.tags[0] = tag_of(hash);
            bucket.places[0] = (slot << 7 | record) as u32;
        }
    }

    /// Forgets the pages for whose number and file `stays` returns `false`.
    pub fn retain(&mut self, stays: impl Fn(u32, FileId) -> bool) {
        for slot in 0..self.numbers.len() {
            let number = self.numbers[slot];
            if number != FORGOTTEN && !stays(number, self.files[slot]) {
                self.slots.remove(&number);
                self.numbers[slot] = FORGOTTEN;
                *self.used[slot].get_mut() = false;
                self.bytes[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES].fill(0);
            }
        }
    }

    /// The number of pages that the cache has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// RAM that the cache takes, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.numbers.capacity() * 4
            + self.files.capacity() * size_of::<FileId>()
            + self.used.capacity()
            + self.slots.capacity() * 9
            + self.buckets.len() * size_of::<CacheLine>()
    }

    /// Marks a slot as used, with a write only where it is not marked yet: callers on several cores would wait for each
    /// other's writes.
    fn mark_used(&self, slot: usize) {
        if !self.used[slot].load(Ordering::Relaxed) {
            self.used[slot].store(true, Ordering::Relaxed);
        }
    }

    fn page(&self, slot: usize) -> LogPage<'_> {
        LogPage::checked(&self.bytes[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES])
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.buckets.len() as u64) >> 32) as usize
    }

    fn free_slot(&mut self, file: FileId) -> usize {
        if self.numbers.len() < self.capacity {
            if self.bytes.len() == self.bytes.capacity() {
                self.bytes
                    .reserve_exact(GROW_PAGES.min(self.capacity - self.numbers.len()) * PAGE_BYTES);
            }
            self.bytes.resize(self.bytes.len() + PAGE_BYTES, 0);
            self.numbers.push(FORGOTTEN);
            self.files.push(file);
            self.used.push(AtomicBool::new(false));
            return self.numbers.len() - 1;
        }
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.capacity;
            if !std::mem::take(self.used[slot].get_mut()) {
                self.slots.remove(&self.numbers[slot]);
                return slot;
            }
        }
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 24) as u32
}
