//! Which runs are merged, and when.
//!
//! The newest runs become one as soon as they are so many at least, and the oldest of them is no larger than such a part of the others together, as many as fulfil it: see [`FAN_IN`]. So runs of a
//! size are merged by four to thirteen or so, and a merge takes in what it would soon meet anyway. The smaller an index is, counted in tails, the less often its records were written yet, so the sooner
//! it merges. By simulation it has 5 runs in the mean up to 100 tails, 8 at most; 7.5 up to 400; 12 up to 1500 (0.7 bytes of RAM a key), 21 at most; and each record was written
//! 4.2 times at most to a run, 4.75 up to 2200 tails. That is what bounds write amplification: `(2 × 32.5 + 20.6 × 4.2) / 52 = 2.9`, the log being written twice, because tail-sized log
//! files are put together once. Thirteen runs and 35 % whatever the size, as was done before, is 8 runs in a small index and 9.5 up to 400 tails, 11 and a quarter fewer false reads up to 1500, and
//! writes 4.35 times (3.04 in all, measured at 200 million keys).

use std::ops::Range;

use super::manifest::{Manifest, RunEntry};

/// While all runs have no more records than so many tails: runs that are merged, at least, and how many records the oldest of them has at most for 100 of the others.
const FAN_IN: [(u64, usize, u64); 4] = [
    (100, 4, 35),
    (520, 8, 35),
    (1000, 13, 30),
    (u64::MAX, 10, 19),
];
/// Smaller runs count as if they had so many records.
const RUN_RECORDS_MIN: u64 = 2048;
/// A run is written anew when this share of what it speaks of is gone, in percent.
const GONE_PERCENT: u64 = 30;

/// The runs to merge: the newest ones, as many as the module says, or one of whose pages too many are gone.
pub fn choose(manifest: &Manifest, gone: &[Range<u32>], tail_records: u64) -> Option<Range<usize>> {
    let runs = &manifest.runs;
    let sizes: Vec<u64> = runs.iter().map(|run| run.records).collect();
    if let Some(from) = due(&sizes, tail_records) {
        return Some(from..runs.len());
    }
    let too_much = |run: &RunEntry| {
        let within = gone.iter().map(|pages| {
            u64::from(
                pages
                    .end
                    .min(run.end_page)
                    .saturating_sub(pages.start.max(run.first_page)),
            )
        });
        run.records > 0
            && within.sum::<u64>() * 100 > u64::from(run.end_page - run.first_page) * GONE_PERCENT
            && may_shrink(run)
    };
    runs.iter().position(too_much).map(|run| run..run + 1)
}

/// Where the runs begin that are to become one, by the records of all runs from the oldest on.
fn due(runs: &[u64], tail_records: u64) -> Option<usize> {
    let all: u64 = runs.iter().sum();
    let fits = |(tails, ..): &&(u64, usize, u64)| all <= tail_records.saturating_mul(*tails);
    let (_, fan_in, oldest_percent) = FAN_IN
        .iter()
        .find(fits)
        .unwrap_or(&FAN_IN[FAN_IN.len() - 1]);
    let (mut from, mut newer) = (None, 0);
    for (place, records) in runs.iter().enumerate().rev() {
        let records = *records.max(&RUN_RECORDS_MIN);
        if runs.len() - place >= *fan_in && records * 100 <= newer * oldest_percent {
            from = Some(place);
        }
        newer += records;
    }
    from
}

/// A run that was written anew has fewer records than its pages had, so that it isn't chosen again for the same reason.
fn may_shrink(run: &RunEntry) -> bool {
    run.records > u64::from(run.end_page - run.first_page) * 127 * (100 - GONE_PERCENT) / 100
}

#[cfg(test)]
mod tests {
    use super::due;

    /// Runs in the tail's size, merged as they come: how often each record was written to a run, and the most runs there were.
    fn grow(tails: u64) -> (f64, usize) {
        let (mut runs, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..tails {
            runs.push(10_000);
            written += 10_000;
            while let Some(from) = due(&runs, 10_000) {
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
            let amplification = (2.0 * 32.5 + 20.6 * written) / 52.0;
            let (limit, runs) = match tails {
                0..=100 => (2.66, 8),
                101..=1500 => (2.92, 22),
                _ => (3.23, 22),
            };
            assert!(amplification <= limit, "{tails} tails: {amplification}");
            assert!(most <= runs, "{tails} tails: {most} runs");
        }
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
            while let Some(from) = due(&runs, 1000) {
                let merged = runs.drain(from..).sum();
                runs.push(merged);
            }
            assert!(runs.len() < 40, "{runs:?}");
        }
    }
}
