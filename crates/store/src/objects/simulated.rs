//! Object storage in RAM that fails as real ones do: the second implementation of [`ObjectStore`] and `Registers`,
//! for tests.
//!
//! Each handle is a process's connection. A request may be refused, its answer may be lost, it may come late or twice,
//! and a process may die at any request; what was said is in [`RequestFaults`]. The same seed and the same requests
//! repeat exactly.

mod objects;
mod registers;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::Dir;
use onefold_keys::Entropy;
use parking_lot::Mutex;

use crate::objects::ObjectStore;
use crate::registry::lease::LeaseRegistry;
use crate::repository::place::{Place, Ways};
use world::World;

/// Bytes of a container's end that are read at once.
const TAIL_BYTES: usize = 4 << 10;

/// Faults, each as a number of requests in 10,000.
#[derive(Clone, Copy, Default, Debug)]
pub struct RequestFaults {
    /// Nothing is done, and no answer comes.
    pub refused: u32,
    /// The request is carried out, and no answer comes.
    pub answer_lost: u32,
    /// Nothing is done and no answer comes; some requests later it is done all the same.
    pub late: u32,
    /// The request is carried out, and once more some requests later.
    pub doubled: u32,
    /// A reading of a part of an object says that the object ends early.
    pub short: u32,
    /// The process dies at this request, counted as [`SimStore::requests`] does: a request of an odd number is done
    /// before, one of an even number is not.
    pub dies_at: Option<u64>,
}

/// A process's connection to a simulated object store.
#[derive(Clone)]
pub struct SimStore {
    world: Arc<Mutex<World>>,
    clock_ms: Arc<AtomicU64>,
    process: u64,
}

impl SimStore {
    /// An empty store, and the first process's connection. `seed` decides which requests fail.
    pub fn new(seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(seed))),
            clock_ms: Arc::default(),
            process: 0,
        }
    }

    /// Another process's connection to the same store.
    #[must_use]
    pub fn connect(&self) -> Self {
        let process = self.world.lock().new_process();
        Self {
            process,
            ..self.clone()
        }
    }

    /// Ends this process as `kill -9` does: no request of it does anything any more, but for those that come late.
    pub fn kill(&self) {
        self.world.lock().kill(self.process);
    }

    /// Makes requests fail like this from now on.
    pub fn inject(&self, faults: RequestFaults) {
        self.world.lock().faults = faults;
    }

    /// Requests so far, of all processes.
    pub fn requests(&self) -> u64 {
        self.world.lock().requests
    }

    /// Lets what is late come now.
    pub fn settle(&self) {
        self.world.lock().settle();
    }

    /// Lets time pass, by the store's clock and every process's.
    pub fn advance_ms(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::Relaxed);
        self.world.lock().now_ms += ms;
    }

    /// A copy of what is stored, with no fault and no process: what would be there if all ended now.
    #[must_use]
    pub fn image(&self, seed: u64) -> Self {
        let image = Self::new(seed);
        *image.world.lock() = self.world.lock().image(seed);
        image
            .clock_ms
            .store(self.clock_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        image
    }

    /// The place of a repository in this store, with `own` as the folder of this process's machine.
    pub fn place(&self, own: Arc<dyn Dir>, entropy: &Entropy) -> Place {
        let objects: Arc<dyn ObjectStore> = Arc::new(self.clone());
        let clock = Arc::clone(&self.clock_ms);
        let registry = LeaseRegistry::new(
            Arc::new(self.clone()),
            Arc::clone(&objects),
            entropy.clone(),
            Arc::new(move || clock.load(Ordering::Relaxed)),
        );
        Place {
            objects,
            registry: Arc::new(registry),
            own,
            // One request after the other, which repeats exactly.
            ways: Ways {
                tail_bytes: TAIL_BYTES,
                gets_at_once: 1,
                ..Ways::default()
            },
        }
    }
}
