//! Retired containers, and the changes since the last checkpoint: for indexes that keep a journal.

use std::collections::{HashMap, HashSet};

use onefold_index::ContainerId;

/// Retired containers, and the changes since the last checkpoint.
#[derive(Default)]
pub struct Retirements {
    gone: HashSet<ContainerId>,
    /// Containers that were retired (`true`) or came back (`false`) since the last checkpoint.
    unsaid: HashMap<ContainerId, bool>,
}

impl Retirements {
    /// The state as read from a journal, in which `gone` are retired.
    pub fn of(gone: HashSet<ContainerId>) -> Retirements {
        Retirements {
            gone,
            unsaid: HashMap::new(),
        }
    }

    /// The containers that are retired now.
    pub fn gone(&self) -> &HashSet<ContainerId> {
        &self.gone
    }

    /// Whether the container is retired.
    pub fn contains(&self, container: &ContainerId) -> bool {
        self.gone.contains(container)
    }

    /// Marks containers as retired.
    pub fn retire(&mut self, containers: &[ContainerId]) {
        for container in containers {
            if self.gone.insert(*container) {
                self.unsaid.insert(*container, true);
            }
        }
    }

    /// Notes an insertion into the container: a retired one is back by it.
    pub fn told(&mut self, container: ContainerId) {
        if !self.gone.is_empty() && self.gone.remove(&container) {
            self.unsaid.insert(container, false);
        }
    }

    /// The changes that the last checkpoint does not have: `true` for retired containers, `false` for those that are
    /// back.
    pub fn unsaid(&self) -> impl Iterator<Item = (ContainerId, bool)> + '_ {
        self.unsaid
            .iter()
            .map(|(container, gone)| (*container, *gone))
    }

    /// The number of changes that the last checkpoint does not have.
    pub fn unsaid_len(&self) -> usize {
        self.unsaid.len()
    }

    /// Notes that a checkpoint has all changes.
    pub fn said(&mut self) {
        self.unsaid.clear();
    }

    /// Makes all retired containers changes again, for a new journal.
    pub fn unsay(&mut self) {
        let gone = self.gone.iter().map(|container| (*container, true));
        self.unsaid.extend(gone);
    }

    /// Forgets retired containers outside of `spoken_of`, as a change: a later insertion into one is no return.
    pub fn retain(&mut self, spoken_of: &HashSet<ContainerId>) {
        let forgotten = self
            .gone
            .extract_if(|container| !spoken_of.contains(container));
        self.unsaid
            .extend(forgotten.map(|container| (container, false)));
    }

    /// RAM of both sets, in bytes.
    pub fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        (self.gone.capacity() * 9 + self.unsaid.capacity() * 17) * 8 / 7
    }
}
