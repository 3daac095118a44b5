//! New chunks, and runs of repeats of chunks that were seen some distance before.

use onefold_io::Random;

/// Points of a distribution of distances: a distance in keys at full scale, and the share of repeats with a smaller
/// one. In between, each factor of distance is equally likely.
type Distances = &'static [(f64, f64)];

/// Even distances: between 100 and 200 is as likely as between 10,000 and 20,000.
pub const EVEN: Distances = &[(1.0, 0.0)];

/// Distances that the dissertation's tables 3.3 and 3.7 imply (vx-20m, 8.67 M repeats): a buffer of the newest 70,000
/// keys answers 42 % of them (compartments: 3.63 M hits), one of 200,000 keys 48 % (pooled: 4.19 M), and one of a
/// million, with two hashes a key in place of ten, 15 % more.
pub const PRINTED: Distances = &[(1.0, 0.0), (70e3, 0.42), (200e3, 0.48), (1e6, 0.63)];

/// New chunks, and runs of repeats of chunks that were seen some distance before.
pub struct Recent {
    left: u64,
    is_new: f64,
    distances: Distances,
    scale: f64,
    next: u64,
    from: u64,
    run: u64,
    random: Random,
}

impl Recent {
    /// A stream of `chunks` chunks of which `unique` are new, at `scale` of the full set.
    pub fn new(chunks: u64, unique: u64, distances: Distances, scale: f64, seed: u64) -> Recent {
        Recent {
            left: chunks,
            is_new: unique as f64 / chunks.max(1) as f64,
            distances,
            scale,
            next: 0,
            from: 0,
            run: 0,
            random: Random(seed),
        }
    }

    /// A random distance in keys, from 1 to the number of present keys.
    fn distance(&mut self) -> u64 {
        let (all, part) = (self.next as f64, self.random.unit());
        let behind = self.distances.partition_point(|(_, below)| *below <= part);
        let (near, from) = self.distances[behind - 1];
        let next = self.distances.get(behind).copied();
        let (far, to) = next.unwrap_or((f64::MAX, 1.0));
        let near = if near > 1.0 { near * self.scale } else { near };
        let far = (far * self.scale).min(all).max(near);
        let distance = near * (far / near).powf((part - from) / (to - from));
        if distance > all {
            // there are not as many keys yet: any present one is as good as another
            return (all * self.random.unit()).ceil() as u64;
        }
        distance.clamp(1.0, all) as u64
    }
}

impl Iterator for Recent {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        if self.next == 0 || self.random.unit() < self.is_new {
            self.next += 1;
            return Some(self.next - 1);
        }
        if self.run == 0 || self.from >= self.next {
            self.from = self.next - self.distance();
            self.run = 8 + self.random.next() % 56;
        }
        self.run -= 1;
        self.from += 1;
        Some(self.from - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_go_back_as_far_as_in_the_tables() {
        const SCALE: f64 = 0.01;
        let (mut seen, mut near, mut all) = (0, [0u64; 3], 0);
        for number in Recent::new(200_000, 113_289, PRINTED, SCALE, 1) {
            if number == seen {
                seen += 1;
                continue;
            }
            all += 1;
            for (near, (far, _)) in near.iter_mut().zip(&PRINTED[1..]) {
                *near += u64::from(((seen - number) as f64) < far * SCALE);
            }
        }
        for (near, (far, part)) in near.iter().zip(&PRINTED[1..]) {
            let here = *near as f64 / all as f64;
            // runs are as long at any scale, and move back while new keys come in between; early repeats cannot go back
            // as far
            assert!(here > part - 0.1 && here < part + 0.12, "{far}: {here}");
        }
    }
}
