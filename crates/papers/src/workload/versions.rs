//! Versions of one tree, of which three fifths never change and the others a little each time.

use onefold_io::Random;

/// New chunks come in runs of this many, as files that changed do.
const NEW_RUN: u64 = 16;
/// Places of a version that may change; the others stay as in the first one (table 3.5: 71 % of lookups are answered by
/// the oldest layer).
const CHANGING: f64 = 2.0 / 5.0;
/// Neighbours that all may change, or none.
const PLACES: u64 = 64;

/// Each version repeats the one before in its order, but for runs of chunks that are new.
pub struct Versions {
    left: u64,
    before: Vec<u64>,
    now: Vec<u64>,
    /// Chunks a version.
    len: usize,
    /// The chance that a run of new ones begins.
    begins_new: f64,
    run: u64,
    next: u64,
    random: Random,
}

impl Versions {
    /// `chunks` of which `unique` are new, in so many versions.
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
