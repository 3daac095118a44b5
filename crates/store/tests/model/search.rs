//! Breadth-first search of all states. For each state 64 bits of a hash are kept, at 9 to 18 bytes a state, and the
//! step that led to it, at five. Two states with one hash count as one: among 100 million states that happens with a
//! probability below 0.03 %. States themselves are kept until their successors are known, in blocks: a vector that
//! grows holds everything twice for a moment, and keeps the room of elements that were taken out.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::steps::{Label, successors};
use super::world::{Cast, World};

/// The result of a search.
pub enum Outcome {
    /// No loss among all states; their number.
    All(usize),
    /// No loss among this many states, and there are more.
    Limit(usize),
    /// The steps to a loss, and the number of states until then.
    Loss(Vec<Label>, usize),
}

/// Searches up to `states_max` states.
pub fn search(cast: &Cast, states_max: usize) -> Outcome {
    let first = World::first(cast);
    let mut met = Met::default();
    let mut came_by = CameBy::default();
    let mut waiting = Waiting::default();
    came_by.push(u32::MAX, 0);
    waiting.push(first);
    met.insert(hash(&first));
    let mut at = 0u32;
    while let Some(world) = waiting.pop() {
        let mut number = 0u8;
        let mut loss = None;
        successors(&world, cast, &mut |next, _| {
            if met.insert(hash(&next)) {
                came_by.push(at, number);
                if next.has_lost_data() && loss.is_none() {
                    loss = Some(came_by.count - 1);
                }
                waiting.push(next);
            }
            number += 1;
        });
        if let Some(state) = loss {
            return Outcome::Loss(trace(cast, &came_by, state), came_by.count);
        }
        if came_by.count >= states_max {
            return Outcome::Limit(came_by.count);
        }
        at += 1;
    }
    Outcome::All(came_by.count)
}

/// Number of entries of a block.
const BLOCK: usize = 1 << 16;

/// The step and the earlier state that led to each state.
#[derive(Default)]
struct CameBy {
    blocks: Vec<(Vec<u32>, Vec<u8>)>,
    count: usize,
}

impl CameBy {
    fn push(&mut self, from: u32, step: u8) {
        if self.count.is_multiple_of(BLOCK) {
            let block = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
            self.blocks.push(block);
        }
        if let Some((froms, steps)) = self.blocks.last_mut() {
            froms.push(from);
            steps.push(step);
        }
        self.count += 1;
    }

    fn get(&self, state: usize) -> (u32, u8) {
        let (froms, steps) = &self.blocks[state / BLOCK];
        (froms[state % BLOCK], steps[state % BLOCK])
    }
}

/// States whose successors are not known yet, in order.
#[derive(Default)]
struct Waiting {
    blocks: VecDeque<Vec<World>>,
    /// Number of states of the first block that were taken.
    taken: usize,
}

impl Waiting {
    fn push(&mut self, world: World) {
        if self.blocks.back().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push_back(Vec::with_capacity(BLOCK));
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push(world);
        }
    }

    fn pop(&mut self) -> Option<World> {
        let world = *self.blocks.front()?.get(self.taken)?;
        self.taken += 1;
        if self.taken == BLOCK {
            self.blocks.pop_front();
            self.taken = 0;
        }
        Some(world)
    }
}

/// The steps that lead to a state, repeated from the first one.
fn trace(cast: &Cast, came_by: &CameBy, state: usize) -> Vec<Label> {
    let mut numbers = Vec::new();
    let mut at = state;
    while at > 0 {
        let (from, number) = came_by.get(at);
        numbers.push(number);
        at = from as usize;
    }
    let mut world = World::first(cast);
    let mut steps = Vec::new();
    for number in numbers.into_iter().rev() {
        let mut count = 0;
        let mut taken = None;
        successors(&world, cast, &mut |next, label| {
            if count == number {
                taken = Some((next, label));
            }
            count += 1;
        });
        let (next, label) = taken.expect("successors come in the same order");
        world = next;
        steps.push(label);
    }
    steps
}

fn hash(world: &World) -> u64 {
    let mut hasher = Folded::default();
    world.hash(&mut hasher);
    // 0 marks an empty place.
    hasher.finish().max(1)
}

/// A hasher that folds eight bytes at a time by a product of 128 bits.
#[derive(Default)]
struct Folded {
    folded: u64,
    word: u64,
    bits: u32,
}

impl Folded {
    fn folded(&self) -> u64 {
        let product = u128::from(self.folded ^ 0xa076_1d64_78bd_642f)
            * u128::from(self.word ^ 0xe703_7ed1_a0b4_28db);
        product as u64 ^ (product >> 64) as u64
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == 64 {
            (self.folded, self.word, self.bits) = (self.folded(), 0, 0);
        }
    }

    /// The number of an enum's variant, which is small.
    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }

    fn finish(&self) -> u64 {
        self.folded()
    }
}

/// A set of hashes with open addressing; 0 marks an empty place.
#[derive(Default)]
struct Met {
    places: Vec<u64>,
    count: usize,
}

impl Met {
    /// Whether the hash is new.
    fn insert(&mut self, hash: u64) -> bool {
        if self.count * 8 >= self.places.len() * 7 {
            self.grow();
        }
        let is_new = place(&mut self.places, hash);
        self.count += usize::from(is_new);
        is_new
    }

    fn grow(&mut self) {
        let mut larger = vec![0; (self.places.len() * 2).max(1 << 10)];
        for hash in self.places.drain(..).filter(|hash| *hash != 0) {
            place(&mut larger, hash);
        }
        self.places = larger;
    }
}

fn place(places: &mut [u64], hash: u64) -> bool {
    let mask = places.len() - 1;
    let mut at = hash as usize & mask;
    loop {
        match places[at] {
            0 => {
                places[at] = hash;
                return true;
            }
            found if found == hash => return false,
            _ => at = (at + 1) & mask,
        }
    }
}
