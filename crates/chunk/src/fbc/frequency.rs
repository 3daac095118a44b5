//! Frequencies that are counted while chunks are cut: algorithm 1 (§2.4.2) and the two stages at once, "the frequency
//! estimation and the chunking process simultaneously" of §2.6, which the dissertation leaves as future work.
//!
//! A segment is split out of coarse chunks as soon as its estimate passes θ, and never earlier. The counts are kept in
//! the table of [`Segments`](super::Segments), so a later run goes on with them; the Bloom filters begin empty.

use super::Params;
use super::filter::{ParallelFilter, SplitMix, bias};
use super::segments::{SegmentFacts, Segments};

/// Counts candidates that pass the parallel filter.
pub struct Frequency {
    filter: ParallelFilter,
    random: SplitMix,
    resample: f64,
    /// Segments that were counted at least this often are frequent.
    pub count_min: u32,
}

/// Random choices are the same in each run.
const SEED: u64 = 1;

impl Frequency {
    /// A counter that has counted nothing.
    pub fn new(params: &Params) -> Self {
        // The estimate is (count + bias) / r₁; a segment is frequent if it is above θ.
        let beyond = f64::from(params.threshold) * params.resample - bias(params.filters);
        Self {
            filter: ParallelFilter::new(params.filters, params.filter_bytes, SEED),
            random: SplitMix(SEED ^ 0x5eed),
            resample: params.resample,
            count_min: (beyond.floor() + 1.0).clamp(1.0, f64::from(u32::MAX)) as u32,
        }
    }

    /// Notes an occurrence of a candidate, which is counted in `segments` if it was in all filters before.
    pub fn count(&mut self, signature: u64, epoch: u32, segments: &mut Segments) {
        if !self.random.chance(self.resample) {
            return;
        }
        if let Some(segment) = segments.entries.get_mut(&signature) {
            segment.count = segment.count.saturating_add(1);
            segment.epoch = epoch;
        } else if self.filter.passes(signature) {
            let first = SegmentFacts {
                count: 1,
                epoch,
                ..SegmentFacts::default()
            };
            segments.entries.insert(signature, first);
        }
    }

    /// Heap bytes of the filters.
    pub fn bytes(&self) -> usize {
        self.filter.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_frequent_where_algorithm_1_puts_it_out() {
        for (threshold, filters, resample) in
            [(5, 3, 1.0), (15, 3, 1.0), (40, 1, 0.25), (9, 5, 0.5)]
        {
            let params = Params {
                threshold,
                filters,
                resample,
                ..Params::new(512)
            };
            let is_frequent =
                |count: u32| (f64::from(count) + bias(filters)) / resample > f64::from(threshold);
            let least = (1..1000).find(|count| is_frequent(*count));
            assert_eq!(Some(Frequency::new(&params).count_min), least);
        }
    }
}
