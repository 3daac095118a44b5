//! Which containers are gone, and what of that the last checkpoint does not know: for indexes that keep a journal.

use std::collections::{HashMap, HashSet};

use onefold_index::ContainerId;

/// Which containers are gone, and what of that the last checkpoint does not know.
#[derive(Default)]
pub struct Retirements {
    gone: HashSet<ContainerId>,
    /// Whether it is gone, of those that were retired or told of again since the last checkpoint.
    unsaid: HashMap<ContainerId, bool>,
}

impl Retirements {
    /// As a journal has it.
    pub fn of(gone: HashSet<ContainerId>) -> Retirements {
        Retirements {
            gone,
            unsaid: HashMap::new(),
        }
    }

    /// Those that are gone now.
    pub fn gone(&self) -> &HashSet<ContainerId> {
        &self.gone
    }

    /// Whether it is gone.
    pub fn contains(&self, container: &ContainerId) -> bool {
        self.gone.contains(container)
    }

    /// They are gone.
    pub fn retire(&mut self, containers: &[ContainerId]) {
        for container in containers {
            if self.gone.insert(*container) {
                self.unsaid.insert(*container, true);
            }
        }
    }

    /// Something is said to be in it: if it was gone, it is back.
    pub fn told(&mut self, container: ContainerId) {
        if !self.gone.is_empty() && self.gone.remove(&container) {
            self.unsaid.insert(container, false);
        }
    }

    /// What the last checkpoint does not know: `true` for those that are gone, `false` for those that are back.
    pub fn unsaid(&self) -> impl Iterator<Item = (ContainerId, bool)> + '_ {
        self.unsaid
            .iter()
            .map(|(container, gone)| (*container, *gone))
    }

    /// How many the last checkpoint does not know.
    pub fn unsaid_len(&self) -> usize {
        self.unsaid.len()
    }

    /// A checkpoint knows all.
    pub fn said(&mut self) {
        self.unsaid.clear();
    }

    /// All is to be said anew, in a journal that has nothing of it.
    pub fn unsay(&mut self) {
        let gone = self.gone.iter().map(|container| (*container, true));
        self.unsaid.extend(gone);
    }

    /// Forgets those that nothing speaks of, and says so: what is told of them again is not gone.
    pub fn retain(&mut self, spoken_of: &HashSet<ContainerId>) {
        let forgotten = self
            .gone
            .extract_if(|container| !spoken_of.contains(container));
        self.unsaid
            .extend(forgotten.map(|container| (container, false)));
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        (self.gone.capacity() * 9 + self.unsaid.capacity() * 17) * 8 / 7
    }
}
