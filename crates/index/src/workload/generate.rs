//! Generators that have the papers' counts and the shape of their repeats, at any scale.

use onefold_chunk::Fingerprint;

/// A data set of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// 20 versions of the Linux kernel, 10.0 M chunks, 2.43 M unique: a repeat comes a version later (dissertation table 4.1).
    Linux,
    /// A primary file system, 9.0 M chunks, 5.63 M unique: repeats are of what was lately seen (table 4.1).
    Vx,
    /// Backups of the FBF paper, 57.4 M chunks, 4.65 M unique.
    Fbf,
    /// `vx` grown to 20 M chunks, 11.3 M unique (§3.5.2).
    Vx20m,
}

impl Workload {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Workload); 4] = [
        ("linux", Workload::Linux),
        ("vx", Workload::Vx),
        ("fbf", Workload::Fbf),
        ("vx-20m", Workload::Vx20m),
    ];

    /// Chunks and unique ones, at full scale.
    pub fn counts(self) -> (u64, u64) {
        match self {
            Workload::Linux => (10_000_000, 2_427_697),
            Workload::Vx => (9_000_000, 5_628_873),
            Workload::Fbf => (57_400_000, 4_650_000),
            Workload::Vx20m => (20_000_000, 11_328_914),
        }
    }

    /// The numbers of the chunks in their order, `scale` of the full set; the numbers of new ones count up from 0.
    pub fn numbers(self, scale: f64, seed: u64) -> Box<dyn Iterator<Item = u64>> {
        let (chunks, unique) = self.counts();
        let chunks = (chunks as f64 * scale) as u64;
        let unique = (unique as f64 * scale) as u64;
        match self {
            Workload::Linux => Box::new(Versions::new(chunks, unique, 20, seed)),
            Workload::Fbf => Box::new(Versions::new(chunks, unique, 50, seed)),
            Workload::Vx | Workload::Vx20m => Box::new(Recent {
                left: chunks,
                is_new: unique as f64 / chunks.max(1) as f64,
                next: 0,
                from: 0,
                run: 0,
                random: seed,
            }),
        }
    }
}

/// The key of chunk `number`, uniform.
pub fn key_of(number: u64) -> Fingerprint {
    let (mut bytes, mut state) = ([0; 32], number.wrapping_mul(0x0123_4567_89ab_cdef) + 1);
    bytes
        .chunks_exact_mut(8)
        .for_each(|eight| eight.copy_from_slice(&draw(&mut state).to_le_bytes()));
    Fingerprint(bytes)
}

/// New chunks come in runs of this many, as files that changed do.
const NEW_RUN: u64 = 16;
/// Places of a version that may change; the others stay as in the first one (table 3.5: 71 % of lookups are answered by the oldest layer).
const CHANGING: f64 = 2.0 / 5.0;
/// Neighbours that all may change, or none.
const PLACES: u64 = 64;

/// Each version repeats the one before in its order, but for runs of chunks that are new.
struct Versions {
    left: u64,
    before: Vec<u64>,
    now: Vec<u64>,
    /// Chunks a version.
    len: usize,
    /// The chance that a run of new ones begins.
    begins_new: f64,
    run: u64,
    next: u64,
    random: u64,
}

impl Versions {
    fn new(chunks: u64, unique: u64, versions: u64, seed: u64) -> Versions {
        let len = (chunks / versions).max(1);
        let later = (chunks - len.min(chunks)).max(1) as f64;
        let share = unique.saturating_sub(len) as f64 / later / CHANGING;
        Versions {
            left: chunks,
            before: Vec::new(),
            now: Vec::new(),
            len: len as usize,
            begins_new: share / (NEW_RUN as f64 * (1.0 - share) + share),
            run: 0,
            next: 0,
            random: seed,
        }
    }
}

impl Iterator for Versions {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        if self.now.len() == self.len {
            self.before = std::mem::take(&mut self.now);
        }
        let old = self.before.get(self.now.len()).copied();
        let may_change = self.now.len() as u64 / PLACES % 5 < 2;
        if self.run == 0 && may_change && unit(&mut self.random) < self.begins_new {
            self.run = NEW_RUN;
        }
        let is_new = self.run > 0;
        self.run = self.run.saturating_sub(1);
        let number = old.filter(|_| !is_new).unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.now.push(number);
        Some(number)
    }
}

/// New chunks, and runs of repeats whose distance is as likely to be between 100 and 200 as between 10,000 and 20,000.
struct Recent {
    left: u64,
    is_new: f64,
    next: u64,
    from: u64,
    run: u64,
    random: u64,
}

impl Iterator for Recent {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        if self.next == 0 || unit(&mut self.random) < self.is_new {
            self.next += 1;
            return Some(self.next - 1);
        }
        if self.run == 0 || self.from >= self.next {
            let distance = (self.next as f64).powf(unit(&mut self.random)) as u64;
            self.from = self.next - distance.clamp(1, self.next);
            self.run = 8 + draw(&mut self.random) % 56;
        }
        self.run -= 1;
        self.from += 1;
        Some(self.from - 1)
    }
}

/// Splitmix64.
pub(super) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From 0 to 1.
fn unit(state: &mut u64) -> f64 {
    (draw(state) >> 11) as f64 / (1u64 << 53) as f64
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
