//! Findings about damaged containers, which all readers of a repository share ([`recover`](super::recover) makes them).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onefold_index::ContainerId;
use parking_lot::Mutex;

use crate::container::opened::Opened;
use crate::reader::cache::Cache;

/// Tables of damaged containers that are kept.
const TABLES_BYTES: usize = 8 << 20;
/// Largest number of times that a container that the device did not give whole is opened anew.
const LOOKS_MAX: u32 = 16;

/// Knowledge of all readers of a repository about damaged containers.
pub struct Recovered {
    tables: Cache<ContainerId, Opened>,
    /// Containers of which nothing can be read.
    hopeless: HashSet<ContainerId>,
    /// Containers of which a warning told.
    told: HashSet<ContainerId>,
    /// For who looks into one: others who want the same one wait, and nobody else does.
    turns: HashMap<ContainerId, Arc<Mutex<()>>>,
    /// Number of times that each container was opened anew.
    looks: HashMap<ContainerId, u32>,
}

impl Default for Recovered {
    fn default() -> Self {
        Self {
            tables: Cache::new(TABLES_BYTES),
            hopeless: HashSet::new(),
            told: HashSet::new(),
            turns: HashMap::new(),
            looks: HashMap::new(),
        }
    }
}

impl Recovered {
    /// The table of a container that was found damaged before.
    pub fn get(&mut self, id: ContainerId) -> Option<Arc<Opened>> {
        self.tables.get(&id)
    }

    /// Keeps what is left of a container.
    pub fn keep(&mut self, id: ContainerId, opened: Opened) -> Arc<Opened> {
        let bytes = opened.ram_bytes();
        self.tables.put(id, opened, bytes)
    }

    /// Forgets the table of a container that is gone.
    pub fn forget(&mut self, id: ContainerId) {
        self.tables.forget(&id);
    }

    /// Notes that nothing of a container can be read.
    pub fn give_up(&mut self, id: ContainerId) {
        self.hopeless.insert(id);
    }

    /// Whether nothing of a container can be read.
    pub fn is_hopeless(&self, id: ContainerId) -> bool {
        self.hopeless.contains(&id)
    }

    /// Whether no warning has told of the container yet; from now on one has.
    pub fn is_untold(&mut self, id: ContainerId) -> bool {
        self.told.insert(id)
    }

    /// The lock of who looks into a container.
    pub fn turn(&mut self, id: ContainerId) -> Arc<Mutex<()>> {
        Arc::clone(self.turns.entry(id).or_default())
    }

    /// Counts a look at a container that the device did not give whole. Returns false after too many.
    pub fn may_look_again(&mut self, id: ContainerId) -> bool {
        let looks = self.looks.entry(id).or_default();
        *looks += 1;
        *looks <= LOOKS_MAX
    }
}
