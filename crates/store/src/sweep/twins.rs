//! Finds containers much of whose chunks another container holds, too: two backups that run at once may both store
//! chunks that neither of them can see of the other yet.
//!
//! Invariant: a sample of the references into each container is looked up, the first ones and then fewer and fewer,
//! some seventy of two thousand; RAM is some bytes a container. Being called a twin is advice: it makes the sweep ask
//! the index for each reference.

use std::collections::HashMap;

use onefold_index::{ContainerId, Location};

use crate::ChunkRef;

/// References into each container that are looked up at first; after that, half as many each time the number of
/// references has doubled.
const FIRST: u32 = 16;
/// Looked up at once.
const BATCH: usize = 512;

/// Samples of the containers.
#[derive(Default)]
pub struct Twins {
    samples: HashMap<ContainerId, TwinSample>,
    waiting: Vec<ChunkRef>,
    /// For how many references each of those stands.
    weights: Vec<u32>,
}

/// Counts references, those that were passed over with the one that was looked up for them.
#[derive(Default)]
struct TwinSample {
    met: u32,
    looked_up: u64,
    elsewhere: u64,
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
            self.weights.push(apart);
        }
        self.waiting.len() >= BATCH
    }

    /// Returns the references that wait to be looked up.
    pub fn waiting(&self) -> &[ChunkRef] {
        &self.waiting
    }

    /// Takes what the index says of those that waited, as far as it `is_there`.
    pub fn found(&mut self, found: &[Option<Location>], is_there: impl Fn(&ContainerId) -> bool) {
        let waiting = self.waiting.drain(..).zip(self.weights.drain(..));
        for ((chunk, weight), found) in waiting.zip(found) {
            let elsewhere = found.map(|location| location.container);
            let elsewhere = elsewhere.filter(|id| *id != chunk.container && is_there(id));
            if let Some(sample) = self.samples.get_mut(&chunk.container) {
                let weight = u64::from(weight);
                sample.looked_up += weight;
                sample.elsewhere += if elsewhere.is_some() { weight } else { 0 };
            }
        }
    }

    /// Returns the containers of which at least this share is stored elsewhere, too, sorted; a little less counts,
    /// since a sample errs. Nothing may wait any more.
    pub fn containers(self, share: f64) -> Vec<ContainerId> {
        let least = |sample: &TwinSample| sample.looked_up as f64 * share * 0.75;
        let twins = self
            .samples
            .into_iter()
            .filter(|(_, sample)| sample.elsewhere > 0 && sample.elsewhere as f64 >= least(sample));
        let mut twins: Vec<_> = twins.map(|(id, _)| id).collect();
        twins.sort_unstable();
        twins
    }
}

#[cfg(test)]
mod tests {
    use onefold_chunk::Fingerprint;

    use super::*;

    /// Whether a container is called a twin where some of the 2,000 references into it are elsewhere, too.
    fn is_twin(share: f64, is_elsewhere: impl Fn(u32) -> bool) -> bool {
        let mut twins = Twins::default();
        for number in 0..2_000_u32 {
            let mut fingerprint = Fingerprint([0; 32]);
            fingerprint.0[..4].copy_from_slice(&number.to_be_bytes());
            twins.meet(&ChunkRef {
                fingerprint,
                container: ContainerId(1),
                len: 1,
            });
        }
        let of = |chunk: &ChunkRef| (chunk.fingerprint.prefix() >> 32) as u32;
        let place = |chunk| {
            let id = 1 + u64::from(is_elsewhere(of(chunk)));
            Some(Location {
                container: ContainerId(id),
            })
        };
        let found: Vec<_> = twins.waiting().iter().map(place).collect();
        assert!((40..100).contains(&found.len()), "{}", found.len());
        twins.found(&found, |_| true);
        twins.containers(share) == [ContainerId(1)]
    }

    #[test]
    fn a_container_is_a_twin_wherever_in_it_that_is_which_is_elsewhere_too() {
        assert!(is_twin(0.5, |number| number < 1_200));
        assert!(is_twin(0.5, |number| number >= 800));
        assert!(is_twin(0.5, |number| number % 5 < 3));
        assert!(!is_twin(0.5, |number| number < 400));
        assert!(!is_twin(0.5, |number| number >= 1_600));
        assert!(!is_twin(0.0, |_| false));
    }
}
