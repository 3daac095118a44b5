//! How far off the store's clock is, and how fast the store is. None of it hurts what is stored.

use std::time::Instant;

use jiff::Timestamp;
use onefold_store::Result;
use onefold_store::objects::ObjectStore;

use super::{RunningTrials, TrialOutcome};

/// Requests whose median is the round trip.
const ROUND_TRIPS: usize = 9;
/// Bytes that are sent and received to see how fast that goes.
const BYTES: usize = 8 << 20;
/// Stores refuse signatures whose time is further off than this, in seconds.
const SKEW_S_MAX: i64 = 15 * 60;
/// More is worth a word, in seconds.
const SKEW_S_WORD: i64 = 60;

pub(super) fn clock(trials: &mut RunningTrials<'_>) {
    const TRIAL: &str = "clock";
    let [one, _] = trials.connections;
    let now = Timestamp::now().as_second();
    let Some(skew) = one.traffic.date_unix_s().map(|date| date - now) else {
        trials.tell(
            TRIAL,
            TrialOutcome::Note,
            "the store's answers have no date",
        );
        return;
    };
    let words = match skew {
        0 => "the store's and this machine's are the same".into(),
        ahead @ 1.. => format!("the store's is {ahead} s ahead of this machine's"),
        behind => format!("the store's is {} s behind this machine's", -behind),
    };
    let remedy = "set this machine's clock: signatures whose time is 15 minutes off are refused";
    match skew.abs() {
        SKEW_S_MAX.. => trials.tell_with(TRIAL, TrialOutcome::Bad, words, Some(remedy)),
        SKEW_S_WORD.. => trials.tell_with(TRIAL, TrialOutcome::Note, words, Some(remedy)),
        _ => trials.tell(TRIAL, TrialOutcome::Good, words),
    }
}

pub(super) fn speed(trials: &mut RunningTrials<'_>) -> Result<()> {
    let name = trials.name("speed");
    let [one, _] = trials.connections;
    let mut bytes = vec![0; BYTES];
    // Random bytes, since a store might compress others: that speed would tell nothing.
    for eight in bytes.chunks_mut(8) {
        eight.copy_from_slice(&one.entropy.u64().to_le_bytes());
    }
    let began = Instant::now();
    ObjectStore::put(one, &name, &[&bytes])?;
    let up = began.elapsed();
    let began = Instant::now();
    ObjectStore::get(one, &name)?;
    let down = began.elapsed();
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        one.len(&name)?;
        trips.push(began.elapsed());
    }
    trips.sort_unstable();
    let rate = |took: std::time::Duration| BYTES as f64 / 1e6 / took.as_secs_f64().max(1e-6);
    let seen = format!(
        "a round trip takes {:.1} ms; one connection sends {:.0} and receives {:.0} MB/s",
        trips[ROUND_TRIPS / 2].as_secs_f64() * 1e3,
        rate(up),
        rate(down)
    );
    trials.tell("speed", TrialOutcome::Good, seen);
    Ok(())
}
