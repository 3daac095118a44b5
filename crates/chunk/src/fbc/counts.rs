//! The first pass's table of counts: twelve bytes for a signature and its count. A table of all facts about a segment
//! takes twice that, and a general hash table twice as much again at its worst load.
//!
//! Open addressing with at most fifteen places of sixteen taken. Taken places are never freed one by one, only by
//! [`thin`](SignatureCounts::thin).

use super::filter::mix;
use super::window::passes;

/// Signatures and counts. A signature that [`passes`] is never 0, which marks a free place.
pub struct SignatureCounts {
    signatures: Vec<u64>,
    counts: Vec<u32>,
    taken: usize,
    entries_max: usize,
}

const PLACES_MIN: usize = 1024;
/// One place in this many stays free.
const LOAD: usize = 16;

impl SignatureCounts {
    /// An empty table that is thinned out where it has more than `entries_max`.
    pub fn new(entries_max: usize) -> Self {
        Self {
            signatures: vec![0; PLACES_MIN],
            counts: vec![0; PLACES_MIN],
            taken: 0,
            entries_max: entries_max.max(2),
        }
    }

    /// The count of the signature, if it is in the table.
    #[inline]
    pub fn get_mut(&mut self, signature: u64) -> Option<&mut u32> {
        let place = self.place(signature);
        (self.signatures[place] == signature).then(|| &mut self.counts[place])
    }

    /// Adds a signature that is not in the table yet; returns whether there are too many now.
    pub fn insert(&mut self, signature: u64, count: u32) -> bool {
        let places = self.signatures.len();
        if self.taken + 1 > places - places / LOAD {
            self.rebuild(2 * places, |_| true);
        }
        let place = self.place(signature);
        (self.signatures[place], self.counts[place]) = (signature, count);
        self.taken += 1;
        self.taken > self.entries_max
    }

    /// Keeps the signatures that pass `modulo`; returns whether there are still too many.
    pub fn thin(&mut self, modulo: u32) -> bool {
        self.rebuild(self.signatures.len(), |signature| passes(signature, modulo));
        self.taken > self.entries_max
    }

    /// All signatures with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let all = self
            .signatures
            .iter()
            .copied()
            .zip(self.counts.iter().copied());
        all.filter(|(signature, _)| *signature != 0)
    }

    /// RAM of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.signatures.len() * (size_of::<u64>() + size_of::<u32>())
    }

    /// The place of the signature, or the free place for it.
    #[inline]
    fn place(&self, signature: u64) -> usize {
        let mask = self.signatures.len() - 1;
        let mut place = mix(signature) as usize & mask;
        while self.signatures[place] != signature && self.signatures[place] != 0 {
            place = (place + 1) & mask;
        }
        place
    }

    fn rebuild(&mut self, places: usize, stays: impl Fn(u64) -> bool) {
        let staying: Vec<(u64, u32)> = self.iter().filter(|(one, _)| stays(*one)).collect();
        self.signatures.clear();
        self.signatures.resize(places, 0);
        self.counts.clear();
        self.counts.resize(places, 0);
        self.taken = staying.len();
        for (signature, count) in staying {
            let place = self.place(signature);
            (self.signatures[place], self.counts[place]) = (signature, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn counts_as_a_map_does() {
        let (mut counts, mut map) = (SignatureCounts::new(5000), HashMap::new());
        for i in 0..20_000u64 {
            let signature = mix(i % 7001) << 5 | 1;
            *map.entry(signature).or_insert(0u32) += 1;
            match counts.get_mut(signature) {
                Some(count) => *count += 1,
                None => assert_eq!(counts.insert(signature, 1), map.len() > 5000),
            }
        }
        let all: HashMap<u64, u32> = counts.iter().collect();
        assert_eq!(all, map);
        assert!(!counts.thin(64));
        map.retain(|signature, _| passes(*signature, 64));
        let all: HashMap<u64, u32> = counts.iter().collect();
        assert_eq!(all, map);
        assert!(map.len() > 3000 && map.len() < 4000);
        assert!(map.keys().all(|one| counts.get_mut(*one).is_some()));
        assert_eq!(counts.bytes(), 12 * 8192);
    }
}
