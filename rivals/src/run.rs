//! Filling and asking a store.

use std::time::{Duration, Instant};

use onefold_chunk::Fingerprint;
use onefold_papers::workload::{Asked, Order, container_of, seeded_key};
use serde_json::json;

use crate::process::{Counts, counts, forget_pages, thread_cpu};
use crate::store::{Error, Store, open};
use crate::{Build, Kind, Measure, What};

/// Keys that are asked for at once.
const SEGMENT: u64 = 512;
/// Keys a transaction where all come in order.
const BULK: usize = 100_000;
/// Before measuring, so that caches hold what they would.
const WARM: Duration = Duration::from_secs(3);
/// In seconds: as long as no limit.
const YEAR: u64 = 365 * 24 * 3600;

/// Fills a store: as a first backup does, or where that is hopeless, in the order of keys. One that is not full when
/// the time is over has fewer keys; in the order of keys it has an end of them only, and cannot be asked.
pub fn build(build: &Build) -> Result<(), Error> {
    let what = &build.what;
    let store = open(what)?;
    let (start, before) = (Instant::now(), counts());
    let is_over = || start.elapsed() > Duration::from_secs(build.seconds);
    let is_sorted = matches!(what.store, Kind::Redb | Kind::Lmdb);
    let keys = match is_sorted {
        true => build_sorted(&*store, what, &is_over)?,
        false => build_in_stream_order(&*store, what, &is_over)?,
    };
    store.flush()?;
    let names = match is_sorted {
        true => ["build sorted", "build sorted, merged"],
        false => ["insert", "merged"],
    };
    let spent = || (start.elapsed(), counts().since(before));
    print(what, names[0], 1, keys, spent());
    // merges that are behind get as long again
    store.settle(start + Duration::from_secs(build.seconds.saturating_mul(2).min(YEAR)))?;
    print(what, names[1], 1, keys, spent());
    if is_sorted && keys < what.keys {
        return Err(format!("{keys} keys after {} s", build.seconds).into());
    }
    Ok(())
}

/// Returns how many keys there are then.
fn build_in_stream_order(
    store: &dyn Store,
    what: &What,
    is_over: &dyn Fn() -> bool,
) -> Result<u64, Error> {
    for first in (0..what.keys).step_by(SEGMENT as usize) {
        if is_over() {
            return Ok(first);
        }
        let end = (first + SEGMENT).min(what.keys);
        look_up_and_insert(store, what, first..end)?;
    }
    Ok(what.keys)
}

/// Asks for absent keys, then for present ones.
pub fn measure(measure: &Measure) -> Result<(), Error> {
    let what = &measure.what;
    forget_pages(&what.dir)?;
    let store = open(what)?;
    ask(&*store, what, Order::Random, WARM, 16)?;
    for &threads in &measure.threads {
        let orders = [
            ("absent", Order::Absent),
            ("stream", Order::Stream),
            ("random", Order::Random),
        ];
        for (name, order) in orders {
            let before = counts();
            let time = Duration::from_secs(measure.seconds);
            let answered = ask(&*store, what, order, time, threads)?;
            let mut spent = counts().since(before);
            spent.cpu -= answered.generating;
            let took = answered.took / threads as u32;
            print(what, name, threads, answered.keys, (took, spent));
        }
    }
    if matches!(what.store, Kind::Redb | Kind::Lmdb) {
        let (start, before) = (Instant::now(), counts());
        let mut next = what.keys;
        while start.elapsed() < Duration::from_secs(measure.seconds * 2) {
            look_up_and_insert(&*store, what, next..next + SEGMENT)?;
            next += SEGMENT;
        }
        store.flush()?;
        // nothing is left to merge in a tree: both are the same
        for name in ["insert", "merged"] {
            let spent = (start.elapsed(), counts().since(before));
            print(what, name, 1, next - what.keys, spent);
        }
    }
    Ok(())
}

fn look_up_and_insert(
    store: &dyn Store,
    what: &What,
    numbers: std::ops::Range<u64>,
) -> Result<(), Error> {
    let keys: Vec<Fingerprint> = numbers
        .clone()
        .map(|number| seeded_key(what.seed, number))
        .collect();
    let mut found = vec![None; keys.len()];
    store.get(&keys, &mut found)?;
    let new: Vec<(Fingerprint, u64)> = keys
        .into_iter()
        .zip(numbers)
        .zip(found)
        .filter(|(_, found)| found.is_none())
        .map(|((key, number), _)| (key, container_of(number).0))
        .collect();
    store.insert(&new)
}

/// Returns how many keys there are then.
fn build_sorted(store: &dyn Store, what: &What, is_over: &dyn Fn() -> bool) -> Result<u64, Error> {
    let mut order: Vec<(u64, u32)> = (0..u32::try_from(what.keys)?)
        .map(|number| (prefix(what.seed, number.into()), number))
        .collect();
    order.sort_unstable();
    for (done, numbers) in (0..).step_by(BULK).zip(order.chunks(BULK)) {
        if is_over() {
            return Ok(done);
        }
        let entries: Vec<(Fingerprint, u64)> = numbers
            .iter()
            .map(|(_, number)| u64::from(*number))
            .map(|number| (seeded_key(what.seed, number), container_of(number).0))
            .collect();
        store.insert(&entries)?;
    }
    Ok(what.keys)
}

fn prefix(seed: u64, number: u64) -> u64 {
    let bytes = seeded_key(seed, number).0;
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Count of the keys that some threads asked for, with the time it took.
#[derive(Default)]
struct Answered {
    keys: u64,
    /// Within the store, of all threads together: making keys and looking at answers is not its work, here as with
    /// `strata`.
    took: Duration,
    /// CPU of making keys.
    generating: Duration,
}

/// Asks with `threads` threads for some time.
fn ask(
    store: &dyn Store,
    what: &What,
    order: Order,
    time: Duration,
    threads: u64,
) -> Result<Answered, Error> {
    std::thread::scope(|scope| {
        let each = |thread: u64| {
            let asked = Asked::new(order, what.keys, 7 + thread * (what.keys / threads));
            scope.spawn(move || ask_alone(store, what, asked, time))
        };
        let all: Vec<_> = (0..threads).map(each).collect();
        let mut answered = Answered::default();
        for thread in all {
            let one = thread.join().expect("a thread that asks does not panic")?;
            answered.keys += one.keys;
            answered.took += one.took;
            answered.generating += one.generating;
        }
        Ok(answered)
    })
}

fn ask_alone(
    store: &dyn Store,
    what: &What,
    mut asked: Asked,
    time: Duration,
) -> Result<Answered, Error> {
    let start = Instant::now();
    let mut answered = Answered::default();
    while start.elapsed() < time {
        let making = thread_cpu();
        let numbers: Vec<u64> = asked.by_ref().take(SEGMENT as usize).collect();
        let keys: Vec<Fingerprint> = numbers
            .iter()
            .map(|number| seeded_key(what.seed, *number))
            .collect();
        let mut found = vec![None; keys.len()];
        answered.generating += thread_cpu() - making;
        let asking = Instant::now();
        store.get(&keys, &mut found)?;
        answered.took += asking.elapsed();
        for (number, found) in numbers.iter().zip(found) {
            let expected = (*number < what.keys).then(|| container_of(*number).0);
            if found != expected {
                return Err(format!("key {number}: {found:?}, expected {expected:?}").into());
            }
        }
        answered.keys += SEGMENT;
    }
    Ok(answered)
}

fn print(what: &What, name: &str, threads: u64, keys: u64, (took, spent): (Duration, Counts)) {
    let store = clap::ValueEnum::to_possible_value(&what.store);
    println!(
        "{}",
        json!({
            "store": store.map_or(String::new(), |store| store.get_name().to_string()),
            "what": name,
            "threads": threads,
            "keys": keys,
            "seconds": took.as_secs_f64(),
            "cpu_seconds": spent.cpu.as_secs_f64(),
            "read_bytes": spent.read_bytes,
            "write_bytes": spent.write_bytes,
            "peak_kib": spent.peak_kib,
        })
    );
}
