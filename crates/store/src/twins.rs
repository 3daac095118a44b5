//! Which containers hold much that another container holds, too: two backups that run at once may both store what neither of them can see of the other yet.
//!
//! What always holds: a sample of what roots refer to in each container is looked up, the first references and then fewer and fewer, some seventy of two
//! thousand; RAM is some bytes a container. Being called a twin is advice: it makes the sweep ask the index for each reference.

use std::collections::HashMap;

use onefold_index::{ContainerId, Location};

use crate::ChunkRef;

/// Of each container's references so many are looked up at first, and then half as many each time their number has doubled.
const FIRST: u32 = 16;
/// Looked up at once.
const BATCH: usize = 512;

/// What the sample says so far.
#[derive(Default)]
pub struct Twins {
    samples: HashMap<ContainerId, Sample>,
    waiting: Vec<ChunkRef>,
}

#[derive(Default)]
struct Sample {
    met: u32,
    looked_up: u32,
    elsewhere: u32,
}

impl Twins {
    /// Takes a reference into the sample, or passes it over; whether there are enough now to be looked up.
    pub fn meet(&mut self, chunk: &ChunkRef) -> bool {
        let sample = self.samples.entry(chunk.container).or_default();
        let apart = (sample.met / FIRST + 1).next_power_of_two();
        let is_looked_up = sample.met.is_multiple_of(apart);
        sample.met = sample.met.wrapping_add(1);
        if is_looked_up {
            self.waiting.push(*chunk);
        }
        self.waiting.len() >= BATCH
    }

    /// Those that wait to be looked up.
    pub fn waiting(&self) -> &[ChunkRef] {
        &self.waiting
    }

    /// Takes what the index says of those that waited, as far as it `is_there`.
    pub fn found(&mut self, found: &[Option<Location>], is_there: impl Fn(&ContainerId) -> bool) {
        for (chunk, found) in self.waiting.drain(..).zip(found) {
            let elsewhere = found.map(|location| location.container);
            let elsewhere = elsewhere.filter(|id| *id != chunk.container && is_there(id));
            if let Some(sample) = self.samples.get_mut(&chunk.container) {
                sample.looked_up += 1;
                sample.elsewhere += u32::from(elsewhere.is_some());
            }
        }
    }

    /// Those of which at least such a share is stored elsewhere, too, sorted; of which a little less, since a sample errs. Nothing may wait any more.
    pub fn containers(self, share: f64) -> Vec<ContainerId> {
        let least = |sample: &Sample| f64::from(sample.looked_up) * share * 0.75;
        let twins = self.samples.into_iter().filter(|(_, sample)| {
            sample.elsewhere > 0 && f64::from(sample.elsewhere) >= least(sample)
        });
        let mut twins: Vec<_> = twins.map(|(id, _)| id).collect();
        twins.sort_unstable();
        twins
    }
}
