//! Versions of one tree: three fifths of it never change, and the others change a little each time.

use onefold_io::Random;

/// Length of a run of new chunks, as changed files have.
const NEW_RUN: u64 = 16;
/// Share of a version's places that may change; the others stay as in the first version (table 3.5: the oldest layer
/// answers 71 % of lookups).
const CHANGING: f64 = 2.0 / 5.0;
/// Number of neighbouring places that all may change, or none.
const PLACES: u64 = 64;

/// Versions that repeat the one before in its order, except for runs of new chunks.
pub struct Versions {
    left: u64,
    before: Vec<u64>,
    now: Vec<u64>,
    /// Number of chunks in a version.
    len: usize,
    /// The chance that a run of new chunks begins.
    begins_new: f64,
    run: u64,
    next: u64,
    random: Random,
}

impl Versions {
    /// A stream of `chunks` chunks of which `unique` are new, in `versions` versions.
    pub fn new(chunks: u64, unique: u64, versions: u64, seed: u64) -> Versions {
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
            random: Random(seed),
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
        if self.run == 0 && may_change && self.random.unit() < self.begins_new {
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
