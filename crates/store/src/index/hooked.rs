//! Containers of which the index has only the hooks that a catalog names, and how it learns the rest of them.
//!
//! Invariant: a container is learned at most once in a session.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onefold_index::ContainerId;
use parking_lot::Mutex;

/// Containers that are still to be learned.
#[derive(Default)]
pub(crate) struct Hooked {
    state: Mutex<StreamOrder>,
    /// How many there are, so that where there is none nobody waits for the lock.
    left: AtomicUsize,
}

#[derive(Default)]
struct StreamOrder {
    /// In the order of the streams that stored them.
    order: Vec<ContainerId>,
    /// Places in `order`, in order of name.
    by_name: Vec<u32>,
    /// Whether each container has been learned, by its place.
    is_learned: Vec<bool>,
}

impl Hooked {
    /// Containers in the order of the streams that stored them.
    pub fn new(order: Vec<ContainerId>) -> Self {
        let mut by_name: Vec<u32> = (0..order.len() as u32).collect();
        by_name.sort_unstable_by_key(|at| order[*at as usize]);
        Self {
            left: AtomicUsize::new(order.len()),
            state: Mutex::new(StreamOrder {
                is_learned: vec![false; order.len()],
                by_name,
                order,
            }),
        }
    }

    /// Whether there is nothing left to learn.
    pub fn is_empty(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Those of `ids` that are to be learned, each with the container that was stored after it: a stream that meets one
    /// usually goes on in the next (Min et al. 2010, section 3.3).
    pub fn to_learn(&self, ids: &[ContainerId]) -> Vec<ContainerId> {
        let state = self.state.lock();
        let mut places: Vec<_> = ids.iter().filter_map(|id| state.place(*id)).collect();
        let is_left = |at: &usize| state.is_learned.get(*at) == Some(&false);
        places.retain(is_left);
        let next: Vec<_> = places.iter().map(|at| at + 1).filter(is_left).collect();
        places.extend(next);
        places.sort_unstable();
        places.dedup();
        places.iter().map(|at| state.order[*at]).collect()
    }

    /// The index knows all of these from now on, or as much of them as can be read.
    pub fn learned(&self, ids: &[ContainerId]) {
        let mut state = self.state.lock();
        for id in ids {
            if let Some(at) = state.place(*id)
                && !std::mem::replace(&mut state.is_learned[at], true)
            {
                self.left.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl StreamOrder {
    fn place(&self, id: ContainerId) -> Option<usize> {
        let key = |at: &u32| self.order[*at as usize];
        let found = self.by_name.binary_search_by_key(&id, key);
        Some(self.by_name[found.ok()?] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_is_learned_once_with_the_next_of_its_stream() {
        let ids = [9, 2, 7, 4].map(ContainerId);
        let hooked = Hooked::new(ids.to_vec());
        assert_eq!(hooked.to_learn(&[ContainerId(5)]), []);
        assert_eq!(hooked.to_learn(&[ids[1], ids[1]]), [ids[1], ids[2]]);
        hooked.learned(&[ids[1], ids[2]]);
        assert_eq!(hooked.to_learn(&[ids[0], ids[1]]), [ids[0]]);
        hooked.learned(&[ids[0], ids[2]]);
        assert!(!hooked.is_empty());
        assert_eq!(hooked.to_learn(&[ids[3]]), [ids[3]]);
        hooked.learned(&[ids[3]]);
        assert!(hooked.is_empty());
    }
}
