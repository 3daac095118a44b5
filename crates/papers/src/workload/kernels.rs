//! Twenty versions of a source tree, as in the dissertation's *Linux* set: 2.6.30.1 to .10, 2.6.35.1 to .8, 2.6.36.1
//! and .2.
//!
//! Each version repeats the one before, place by place, except for runs of new chunks. Their number and places follow
//! from the figures that the dissertation prints of its set, all at full scale:
//!
//! - 57.41 M chunks in 20 versions (table 3.2): 2.871 M a version;
//! - 2.337 M keys are new among the first 6.31 M chunks (table 3.5: those that cost no read), 2.428 M among the first
//!   10.0 M (table 4.1): 2.25 M in the first version, the rest of it repeats within, and 0.07 M in each further one of
//!   a series;
//! - of the other 51.1 M chunks, 8.05 M are of keys that came later than the first 2.337 M (table 3.5, bottom-up, one
//!   read), and a buffer of the newest 200,000 keys answers 0.42 M in all (table 3.4): places that a point release
//!   changes, the next one changes again, and 2.6.35.1 brings seven times as many new ones as 2.6.36.1.

use onefold_io::Random;

/// Number of chunks in a version.
const VERSION: f64 = 2_870_736.0;
/// Share of the first version's chunks that are not repeats within it.
const NEW_AT_FIRST: f64 = 2_252_000.0 / VERSION;
/// Share of new chunks in a point release: in the same places each time.
const NEW_A_POINT: f64 = 70_600.0 / VERSION;
/// Share of new chunks in 2.6.35.1 and 2.6.36.1, with the number of the version.
const NEW_A_SERIES: [(usize, f64); 2] = [(10, 970_000.0 / VERSION), (18, 140_000.0 / VERSION)];
/// Share of all places that a new series changes, besides those of point releases.
const SOMETIMES: f64 = 0.33;
/// Length of a run of new chunks, as changed files have.
const NEW_RUN: u64 = 16;
/// Length of a run of repeats within the first version.
const REPEAT_RUN: u64 = 32;
/// Number of neighbouring places that change alike.
const PLACES: u64 = 64;

/// Versions of a source tree. The stream is endless: after the twentieth version come point releases.
pub struct Kernels {
    before: Vec<u64>,
    now: Vec<u64>,
    /// Number of chunks in a version.
    len: usize,
    version: usize,
    /// Rest of a run of new chunks; `repeat` is the rest of a run of repeats, with the place that is repeated next.
    new_run: u64,
    repeat: (u64, usize),
    next: u64,
    random: Random,
}

impl Kernels {
    /// The stream of this scale and seed.
    pub fn new(scale: f64, seed: u64) -> Kernels {
        Kernels {
            before: Vec::new(),
            now: Vec::new(),
            len: ((VERSION * scale) as usize).max(1),
            version: 0,
            new_run: 0,
            repeat: (0, 0),
            next: 0,
            random: Random(seed),
        }
    }

    fn new_chunk(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn of_first_version(&mut self) -> u64 {
        let (left, from) = &mut self.repeat;
        if *left == 0 {
            if self.now.is_empty() || self.random.unit() < begins(NEW_AT_FIRST, REPEAT_RUN) {
                return self.new_chunk();
            }
            *left = REPEAT_RUN;
            *from = (self.random.next() % self.now.len() as u64) as usize;
        }
        *left -= 1;
        *from += 1;
        self.now[*from - 1]
    }

    fn of_further_version(&mut self) -> u64 {
        let place = self.now.len() as u64;
        if self.new_run == 0 {
            let share = share(self.version, place / PLACES);
            // a run begins at a multiple of its length, so it is new as a whole with this chance
            if place.is_multiple_of(NEW_RUN) && self.random.unit() < share {
                self.new_run = NEW_RUN;
            }
        }
        if self.new_run > 0 {
            self.new_run -= 1;
            return self.new_chunk();
        }
        self.before[place as usize]
    }
}

/// The chance that a chunk is new in `version`, in this block of places.
fn share(version: usize, block: u64) -> f64 {
    let place = Random(block).unit();
    let series = NEW_A_SERIES.iter().find(|(first, _)| *first == version);
    match series {
        _ if place < NEW_A_POINT => 1.0,
        Some((_, new)) if place < NEW_A_POINT + SOMETIMES => (new - NEW_A_POINT) / SOMETIMES,
        _ => 0.0,
    }
}

/// The chance that a single chunk comes next where `part` of all are single and the others come in runs of `run`.
fn begins(part: f64, run: u64) -> f64 {
    let runs = (1.0 - part) / run as f64;
    part / (part + runs)
}

impl Iterator for Kernels {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.now.len() == self.len {
            self.before = std::mem::take(&mut self.now);
            self.version += 1;
            (self.new_run, self.repeat) = (0, (0, 0));
        }
        let number = match self.version {
            0 => self.of_first_version(),
            _ => self.of_further_version(),
        };
        self.now.push(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the figures at the beginning of the module.
    #[test]
    fn it_has_the_counts_that_the_dissertation_prints() {
        const SCALE: f64 = 0.01;
        // there are few blocks at this scale
        let at = |millions: f64| (millions * 1e6 * SCALE) as usize;
        let numbers: Vec<u64> = Kernels::new(SCALE, 1).take(at(57.41)).collect();
        let new = |chunks: usize| numbers[..chunks].iter().max().map_or(0, |most| most + 1) as f64;
        let near = |what: &str, found: f64, millions: f64, part: f64| {
            let off = found / (millions * 1e6 * SCALE) - 1.0;
            assert!(off.abs() < part, "{what}: {found}, {off:.3} off");
        };
        near("new of the first 6.31 M", new(at(6.31)), 2.337, 0.03);
        near("new of the first 10 M", new(at(10.0)), 2.428, 0.03);
        near("new", new(at(57.41)), 4.650, 0.06);
        let late = (2.337e6 * SCALE) as u64;
        let mut seen = late;
        let repeats = numbers.iter().filter(|number| {
            let is_new = **number == seen;
            seen += u64::from(is_new);
            **number >= late && !is_new
        });
        near(
            "repeats of later keys",
            repeats.count() as f64,
            8.05 + 0.3,
            0.15,
        );
    }
}
