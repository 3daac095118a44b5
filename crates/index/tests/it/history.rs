//! A naive history of all insertions and removals: the twin that every index is compared with.

use std::collections::{HashMap, HashSet};

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location};
pub use onefold_io::Random;

/// Key number `number`, spread over the whole range.
pub fn key(number: u64) -> Fingerprint {
    let mut random = Random(number.wrapping_mul(0x0123_4567_89ab_cdef));
    let mut bytes = [0; 32];
    bytes
        .chunks_exact_mut(8)
        .for_each(|eight| eight.copy_from_slice(&random.next().to_be_bytes()));
    Fingerprint(bytes)
}

/// Locations of each key since its last removal, oldest first. After a retirement an index may answer an older
/// location, even one from before a removal, or nothing. Of a container that is back, locations from before its
/// retirement may be found again, or not, whatever removed them.
#[derive(Clone, Default)]
pub struct History {
    /// Locations of each key, with the number of retirements of the container before.
    said: HashMap<u64, Vec<(ContainerId, u64)>>,
    ever: HashMap<u64, Vec<ContainerId>>,
    retired: HashSet<ContainerId>,
    times_retired: HashMap<ContainerId, u64>,
}

impl History {
    /// Inserts a location; a retired container is back by it.
    pub fn insert(&mut self, number: u64, container: ContainerId) {
        self.retired.remove(&container);
        let times = self.times_retired(container);
        self.said
            .entry(number)
            .or_default()
            .push((container, times));
        self.ever.entry(number).or_default().push(container);
    }

    pub fn remove(&mut self, number: u64) {
        self.said.remove(&number);
    }

    pub fn retire(&mut self, container: ContainerId) {
        self.retired.insert(container);
        *self.times_retired.entry(container).or_default() += 1;
    }

    fn times_retired(&self, container: ContainerId) -> u64 {
        self.times_retired.get(&container).copied().unwrap_or(0)
    }

    pub fn agrees(&self, number: u64, found: Option<Location>) -> bool {
        let said = self.said.get(&number).map_or(&[][..], |said| &said[..]);
        match (said.last(), found) {
            (None, found) => found.is_none_or(|Location { container }| {
                let is_back =
                    self.times_retired(container) > 0 && !self.retired.contains(&container);
                is_back && self.ever[&number].contains(&container)
            }),
            (Some((newest, times)), found) if self.times_retired(*newest) == *times => {
                found == Some(Location { container: *newest })
            }
            (Some(_), None) => true,
            (_, Some(Location { container })) => {
                self.ever[&number].contains(&container) && !self.retired.contains(&container)
            }
        }
    }

    /// Whether `found` is allowed for an index that may forget, and may not know of the newest location.
    pub fn allows(&self, number: u64, found: Option<Location>) -> bool {
        let said = self.said.get(&number).map_or(&[][..], |said| &said[..]);
        found.is_none_or(|Location { container }| {
            said.iter().any(|(said, _)| *said == container) && !self.retired.contains(&container)
        })
    }

    pub fn check(&self, number: u64, found: Option<Location>) {
        assert!(
            self.agrees(number, found),
            "key {number}: found {found:?}, said {:?}",
            self.said.get(&number)
        );
    }

    pub fn check_all(&self, index: &mut dyn ChunkIndex, keys: u64, random: &mut Random) {
        let mut numbers: Vec<u64> = (0..keys).collect();
        if random.below(2) == 0 {
            numbers.sort_by_key(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        for numbers in numbers.chunks(300) {
            let wanted: Vec<Fingerprint> = numbers.iter().map(|number| key(*number)).collect();
            let mut found = vec![None; wanted.len()];
            index.lookup(&wanted, &mut found).expect("lookup");
            numbers
                .iter()
                .zip(&found)
                .for_each(|(number, found)| self.check(*number, *found));
        }
        self.check_iterate(index, keys);
    }

    fn check_iterate(&self, index: &mut dyn ChunkIndex, keys: u64) {
        let numbers: HashMap<Fingerprint, u64> =
            (0..keys).map(|number| (key(number), number)).collect();
        let mut seen = HashMap::new();
        index
            .iterate(&mut |key, location| {
                assert!(
                    seen.insert(numbers[&key], location).is_none(),
                    "key {} twice",
                    numbers[&key]
                );
                Ok(())
            })
            .expect("iterate");
        (0..keys).for_each(|number| self.check(number, seen.get(&number).copied()));
    }
}
