//! Which runs are merged, and when.
//!
//! The newest runs are merged into one once there are enough of them and the oldest of them is no larger than a given
//! percentage of the others together: see [`FAN_IN`]. As many runs are taken as fulfil this. Runs of one size are
//! therefore merged by four to thirteen or so, and a merge takes in what it would soon meet anyway. The smaller an
//! index is, counted in tails, the less often its records were written yet, so the sooner it merges. By simulation it
//! has 5 runs in the mean up to 100 tails, 8 at most; 7.5 up to 400; 12 up to 1500 (0.7 bytes of RAM a key), 21 at
//! most; and each record was written 4.2 times at most to a run, 4.75 up to 2200 tails. That is what bounds write
//! amplification: `(32.6 + 20.6 × 4.2) / 40 = 3.0` of a key's and its container's bytes, where the log is written once:
//! see [`seal`](super::seal). Thirteen runs and 35 % whatever the size, as was done before, is 8 runs in a small index
//! and 9.5 up to 400 tails, 11 and a quarter fewer false reads up to 1500, and writes 4.35 times (measured at 200
//! million keys).
//!
//! The bound holds where openers that insert much stay open long, or merge in `checkpoint`. In short sessions with few
//! insertions the merging thread ends with its session. There, merges larger than
//! [`StrataState::merges_at_most`](super::state::Shared::merges_at_most) wait for a longer session, or until there are
//! twice as many runs as the smallest merge takes ([`are_many`]); then an opener that has inserted something completes
//! the merge. Such an index has up to 8 runs while it is no larger than 100 tails, 16 up to 520, 26 up to 1000, and
//! some more where small runs are between them.

use std::collections::HashSet;
use std::ops::Range;

use super::gone::GoneParts;
use super::manifest::{FileId, IndexManifest, RUNS_MANY, RunEntry};

/// Rows of (size, fewest runs, percent). While all runs together have no more records than `size` tails, a merge takes
/// at least this number of runs, and the oldest of them has at most this percentage of the others' records.
const FAN_IN: [(u64, usize, u64); 4] = [
    (100, 4, 35),
    (520, 8, 35),
    (1000, 13, 30),
    (u64::MAX, 10, 19),
];
/// Smaller runs count as if they had this number of records.
const RUN_RECORDS_MIN: u64 = 2048;
/// A run is written anew when this percentage of the log pages it speaks of is gone.
const GONE_PERCENT: u64 = 30;

/// The runs to merge, with at most `most` records together: the newest ones, as the module's text says; or the smallest
/// two neighbours where there are [`RUNS_MANY`] runs; or one run too many of whose pages are gone, unless it was
/// written anew in vain before.
pub fn choose(
    manifest: &IndexManifest,
    gone: &GoneParts,
    vain: &HashSet<FileId>,
    tail_records: u64,
    most: u64,
) -> Option<Range<usize>> {
    let runs = &manifest.runs;
    let sizes = sizes(manifest);
    if let Some(from) = due(&sizes, tail_records, most) {
        return Some(from..runs.len());
    }
    if let Some(first) = least_pair(&sizes, most).filter(|_| runs.len() >= RUNS_MANY) {
        return Some(first..first + 2);
    }
    let too_much = |run: &RunEntry| {
        let pages = run.first_page..run.end_page;
        (1..=most).contains(&run.records)
            && gone.pages_within(pages) * 100
                > u64::from(run.end_page - run.first_page) * GONE_PERCENT
            && !vain.contains(&run.id)
            && may_shrink(run)
    };
    runs.iter().position(too_much).map(|run| run..run + 1)
}

/// Whether there are twice as many runs as the smallest merge takes: then every opener that inserted anything completes
/// all merges that are due.
pub fn are_many(manifest: &IndexManifest, tail_records: u64) -> bool {
    let (_, fan_in, _) = fan_in(&sizes(manifest), tail_records);
    manifest.runs.len() >= fan_in * 2
}

fn sizes(manifest: &IndexManifest) -> Vec<u64> {
    manifest.runs.iter().map(|run| run.records).collect()
}

fn fan_in(runs: &[u64], tail_records: u64) -> (u64, usize, u64) {
    let all: u64 = runs.iter().sum();
    let fits = |(tails, ..): &&(u64, usize, u64)| all <= tail_records.saturating_mul(*tails);
    *FAN_IN
        .iter()
        .find(fits)
        .unwrap_or(&FAN_IN[FAN_IN.len() - 1])
}

/// The first of the runs to merge into one of at most `most` records. `runs` has the records of each run, oldest first.
fn due(runs: &[u64], tail_records: u64, most: u64) -> Option<usize> {
    let (_, fan_in, oldest_percent) = fan_in(runs, tail_records);
    let (mut from, mut newer, mut all) = (None, 0, 0);
    for (place, own) in runs.iter().enumerate().rev() {
        let records = *own.max(&RUN_RECORDS_MIN);
        all += own;
        if all > most {
            break;
        }
        if runs.len() - place >= fan_in && records * 100 <= newer * oldest_percent {
            from = Some(place);
        }
        newer += records;
    }
    from
}

/// The older of the two neighbours that have the fewest records, at most `most` together: a merge for which a nearly
/// full device may still have room.
fn least_pair(runs: &[u64], most: u64) -> Option<usize> {
    let pairs = (0..).zip(runs.windows(2));
    let (records, first) = pairs
        .map(|(first, pair)| (pair[0] + pair[1], first))
        .min()?;
    (records <= most).then_some(first)
}

/// Whether the run may become smaller when it is written anew. A run that was written anew already has fewer records
/// than its pages had, so that it is not chosen again for the same reason.
fn may_shrink(run: &RunEntry) -> bool {
    run.records > u64::from(run.end_page - run.first_page) * 127 * (100 - GONE_PERCENT) / 100
}

#[cfg(test)]
mod tests {
    use super::{due, least_pair};

    /// Simulates runs of a tail's size that are merged as they come: returns how often each record was written to a
    /// run, and the largest number of runs.
    fn grow(tails: u64) -> (f64, usize) {
        let (mut runs, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..tails {
            runs.push(10_000);
            written += 10_000;
            while let Some(from) = due(&runs, 10_000, u64::MAX) {
                let merged = runs.drain(from..).sum();
                written += merged;
                runs.push(merged);
            }
            most = most.max(runs.len());
        }
        (written as f64 / (tails * 10_000) as f64, most)
    }

    #[test]
    fn write_amplification_and_the_number_of_runs_are_bounded() {
        for tails in (5..100).chain((100..2200).step_by(7)) {
            let (written, most) = grow(tails);
            let amplification = (32.6 + 20.6 * written) / 40.0;
            let (limit, runs) = match tails {
                0..=100 => (2.65, 8),
                101..=1500 => (2.98, 22),
                _ => (3.39, 22),
            };
            assert!(amplification <= limit, "{tails} tails: {amplification}");
            assert!(most <= runs, "{tails} tails: {most} runs");
        }
    }

    #[test]
    fn of_many_runs_the_least_neighbours_are_left_to_a_device_that_is_nearly_full() {
        assert_eq!(least_pair(&[9, 3, 2, 4, 1], u64::MAX), Some(1));
        assert_eq!(least_pair(&[9, 3, 2, 4, 1], 4), None);
        assert_eq!(least_pair(&[9], u64::MAX), None);
    }

    #[test]
    fn runs_of_any_sizes_are_few() {
        let mut runs = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            runs.push(1 << (random >> 60));
            while let Some(from) = due(&runs, 1000, u64::MAX) {
                let merged = runs.drain(from..).sum();
                runs.push(merged);
            }
            assert!(runs.len() < 40, "{runs:?}");
        }
    }
}
