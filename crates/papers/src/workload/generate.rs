//! Generators of streams with the counts and repeats of the papers' data sets, at any scale.

use onefold_chunk::Fingerprint;
use onefold_io::Random;

use super::kernels::Kernels;
use super::recent::{EVEN, PRINTED, Recent};
use super::versions::Versions;

/// A data set of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// 20 versions of the Linux kernel, 10.0 M chunks, 2.43 M unique: a repeat comes a version later (dissertation
    /// table 4.1).
    Linux,
    /// A primary file system, 9.0 M chunks, 5.63 M unique: repeats are of recent chunks (table 4.1).
    Vx,
    /// Linux of the filters' chapter, 57.4 M chunks, 4.65 M unique (table 3.2), calibrated to its other printed tables.
    Fbf,
    /// A primary file system as the filters' chapter sees it (§3.5.2), of the size of `Vx`: repeats go back as far as
    /// its tables imply.
    Vx9m,
    /// A primary file system like [`Vx9m`](Self::Vx9m), 20 M chunks, 11.3 M unique.
    Vx20m,
}

impl Workload {
    /// All workloads, with their names.
    pub const ALL: [(&'static str, Workload); 5] = [
        ("linux", Workload::Linux),
        ("vx", Workload::Vx),
        ("fbf", Workload::Fbf),
        ("vx-9m", Workload::Vx9m),
        ("vx-20m", Workload::Vx20m),
    ];

    /// The numbers of chunks and of unique chunks, at full scale.
    pub fn counts(self) -> (u64, u64) {
        match self {
            Workload::Linux => (10_000_000, 2_427_697),
            Workload::Vx | Workload::Vx9m => (9_000_000, 5_628_873),
            Workload::Fbf => (57_400_000, 4_650_000),
            Workload::Vx20m => (20_000_000, 11_328_914),
        }
    }

    /// The numbers of the chunks in their order, for `scale` of the full set; new chunks are numbered from 0.
    pub fn numbers(self, scale: f64, seed: u64) -> Box<dyn Iterator<Item = u64>> {
        let (chunks, unique) = self.counts();
        let chunks = (chunks as f64 * scale) as u64;
        let unique = (unique as f64 * scale) as u64;
        match self {
            Workload::Linux => Box::new(Versions::new(chunks, unique, 20, seed)),
            Workload::Fbf => Box::new(Kernels::new(scale, seed).take(chunks as usize)),
            Workload::Vx => Box::new(Recent::new(chunks, unique, EVEN, scale, seed)),
            Workload::Vx9m | Workload::Vx20m => {
                Box::new(Recent::new(chunks, unique, PRINTED, scale, seed))
            }
        }
    }
}

/// The key of chunk `number`, uniformly distributed.
pub fn key_of(number: u64) -> Fingerprint {
    let mut random = Random(number.wrapping_mul(0x0123_4567_89ab_cdef) + 1);
    let mut bytes = [0; 32];
    bytes
        .chunks_exact_mut(8)
        .for_each(|eight| eight.copy_from_slice(&random.next().to_le_bytes()));
    Fingerprint(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn counts_are_those_of_the_papers() {
        for (name, workload) in Workload::ALL {
            let numbers: Vec<u64> = workload.numbers(0.01, 1).collect();
            let unique = numbers.iter().collect::<HashSet<_>>().len() as f64;
            let (chunks, expected) = workload.counts();
            assert_eq!(numbers.len() as u64, chunks / 100, "{name}");
            let error = unique / (expected as f64 / 100.0) - 1.0;
            assert!(error.abs() < 0.1, "{name}: {unique} unique");
        }
    }
}
