//! How likely a cut must be at a position for chunks of a wanted mean: PRUNE's model of the chunk size (Min et al.
//! 2010, eq. 2), and its inverse.

use crate::ChunkLimits;
use crate::real;

/// Default limits of the classic content-defined chunkers: from a quarter of the mean to four times the mean.
pub fn usual_limits(mean: usize) -> ChunkLimits {
    let mean = mean.max(256);
    ChunkLimits {
        min: mean / 4,
        mean,
        max: 4 * mean,
    }
}

/// The mean chunk in bytes where every position from `min` to `max` is a cut with probability `p`, and `max` always is
/// a cut.
pub fn mean_of(min: usize, max: usize, p: f64) -> f64 {
    let positions = (max - min) as f64;
    min as f64 + (1.0 - real::exp(positions * real::ln_1p(-p))) / p
}

/// The probability that gives `limits.mean`, by halving on a logarithmic scale.
pub fn odds_for(limits: ChunkLimits) -> f64 {
    let (mut low, mut high) = (-60f64, -1f64);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if mean_of(limits.min, limits.max, real::exp2(middle)) > limits.mean as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    real::exp2(high)
}
