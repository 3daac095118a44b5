//! Whether conditions are kept, alone and where many write at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use object_store::{PutMode, UpdateVersion};
use onefold_store::objects::ObjectStore;
use onefold_store::registry::registers::Registers;
use onefold_store::{Error, Result};

use super::{RunningTrials, TrialOutcome};
use crate::answer::{self, Failure};
use crate::client::Client;

/// Races of each kind.
const ROUNDS: usize = 8;
/// Number of threads in a race.
const RACERS: usize = 16;

/// Number of writes while others read.
const SWAPS: usize = 64;
/// Number of threads that read meanwhile.
const READERS: usize = 4;

const TORN: &str = "use another store, or another way to keep tags: versitygw does so with --sidecar, and not with extended \
     attributes of the file system";
const SHARED: &str = "use another store. Known to let several win: SeaweedFS before its change 8801, versitygw before 1.8.0; \
     Garage has no conditional writes as far as is known";

/// Tries that a write whose condition does not hold is refused, and one whose condition holds is not.
pub(super) fn conditions(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "conditional writes";
    let name = trials.name("condition");
    let [one, other] = trials.connections;
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    let outcome = || -> Result<Option<&'static str>> {
        if one.put_if(&name, &first, PutMode::Create)? == Some(false) {
            return Ok(Some("an object could not be put under a free name"));
        }
        if other.put_if(&name, &second, PutMode::Create)? == Some(true) {
            return Ok(Some("an object was put under a name that was taken"));
        }
        let Some(found) = Registers::read(other, &name)? else {
            return Ok(Some("an object that was put is not there"));
        };
        if one.put_if(&name, &second, swap(&found.version.0))? == Some(false) {
            return Ok(Some(
                "an object could not be replaced by who named its version",
            ));
        }
        if other.put_if(&name, &first, swap(&found.version.0))? == Some(true) {
            return Ok(Some(
                "an object was replaced by who named a version that it no longer had",
            ));
        }
        one.delete(&name)?;
        if other.put_if(&name, &first, swap(&found.version.0))? == Some(true) {
            Ok(Some(
                "an object that was removed was replaced by who named its version",
            ))
        } else {
            Ok(None)
        }
    };
    match outcome() {
        Ok(None) => trials.tell(TRIAL, TrialOutcome::Good, "kept"),
        Ok(Some(wrong)) => trials.tell_with(TRIAL, TrialOutcome::Unshared, wrong, Some(SHARED)),
        Err(Error::Option(words)) => {
            trials.tell_with(TRIAL, TrialOutcome::Unshared, words, Some(SHARED));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn swap(tag: &str) -> PutMode {
    PutMode::Update(UpdateVersion {
        e_tag: Some(tag.to_owned()),
        version: None,
    })
}

/// One replaces an object again and again while others read it: nobody may get a version with the bytes before it.
pub(super) fn versions(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "version and bytes";
    let name = trials.name("version");
    let [one, other] = trials.connections;
    let first = Bytes::from(bytes_of(0));
    ObjectStore::put(one, &name, &[&first])?;
    let is_done = AtomicBool::new(false);
    let (written, read) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(|| read_until(other, &name, &is_done)))
            .collect();
        let written = replace_often(one, &name);
        is_done.store(true, Relaxed);
        let joined = readers.into_iter().map(|reader| reader.join());
        let read: Result<Vec<_>> = joined
            .map(|read| read.expect("a reader does not panic"))
            .collect();
        (written, read)
    });
    let (tags, read) = (written?, read?.concat());
    let is_torn = |(tag, bytes): &(String, Vec<u8>)| {
        tags.iter()
            .position(|written| written == tag)
            .is_some_and(|at| !(at..tags.len()).any(|at| bytes_of(at) == *bytes))
    };
    match read.iter().filter(|found| is_torn(found)).count() {
        0 => {
            let seen = format!("{} readings beside {SWAPS} writes fit", read.len());
            trials.tell(TRIAL, TrialOutcome::Good, seen);
        }
        torn => {
            let seen = format!(
                "{torn} of {} readings gave a version with the bytes before it",
                read.len()
            );
            trials.tell_with(TRIAL, TrialOutcome::Unshared, seen, Some(TORN));
        }
    }
    Ok(())
}

fn bytes_of(write: usize) -> Vec<u8> {
    format!("write {write:04}").into_bytes()
}

/// The tags of all writes, in order.
fn replace_often(client: &Client, name: &str) -> Result<Vec<String>> {
    let mut tags = Vec::new();
    for write in 0..=SWAPS {
        let bytes = Bytes::from(bytes_of(write));
        match client.put(name, bytes, PutMode::Overwrite) {
            Ok(tag) => tags.push(tag.unwrap_or_default()),
            Err((Failure::NoAnswer(_) | Failure::Conflict, _)) => tags.push(String::new()),
            Err((failure, words)) => return Err(answer::error("write", name, failure, words)),
        }
    }
    Ok(tags)
}

fn read_until(client: &Client, name: &str, is_done: &AtomicBool) -> Result<Vec<(String, Vec<u8>)>> {
    let mut read = Vec::new();
    while !is_done.load(Relaxed) || read.is_empty() {
        if let Some(found) = client.read_once(name)? {
            read.push((found.version.0, found.bytes));
        }
    }
    Ok(read)
}

/// Many put one name at once.
pub(super) fn create(trials: &mut RunningTrials<'_>) -> Result<()> {
    let mode = |_: &Client, _: &str| Ok(PutMode::Create);
    race(trials, "race for a free name", "create", &mode)
}

/// Many replace one version at once.
pub(super) fn replace(trials: &mut RunningTrials<'_>) -> Result<()> {
    let mode = |client: &Client, name: &str| {
        ObjectStore::put(client, name, &[b"before"])?;
        let found = Registers::read(client, name)?;
        Ok(swap(
            &found.map_or_else(String::new, |found| found.version.0),
        ))
    };
    race(trials, "race for a version", "swap", &mode)
}

fn race(
    trials: &mut RunningTrials<'_>,
    trial: &'static str,
    word: &str,
    mode: &dyn Fn(&Client, &str) -> Result<PutMode>,
) -> Result<()> {
    let mut undecided = 0;
    for round in 0..ROUNDS {
        let name = trials.name(&format!("{word}-{round}"));
        let mode = mode(trials.connections[0], &name)?;
        match run(trials.connections, &name, &mode) {
            Ok(RaceOutcome::One) => {}
            Ok(RaceOutcome::Undecided) => undecided += 1,
            Ok(RaceOutcome::Wrong(what)) => {
                trials.tell_with(trial, TrialOutcome::Unshared, what, Some(SHARED));
                return Ok(());
            }
            // Told by the trial of conditions.
            Err(Error::Option(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    let seen = match undecided {
        0 => format!("{ROUNDS} races of {RACERS}: one won each"),
        some => format!("{ROUNDS} races of {RACERS}: one won each, {some} without an answer"),
    };
    trials.tell(trial, TrialOutcome::Good, seen);
    Ok(())
}

enum RaceOutcome {
    One,
    /// An answer did not come, so nobody knows how many won.
    Undecided,
    Wrong(String),
}

fn run(connections: [&Client; 2], name: &str, mode: &PutMode) -> Result<RaceOutcome> {
    let bytes = |racer: usize| Bytes::from(format!("racer {racer:02}"));
    let barrier = std::sync::Barrier::new(RACERS);
    let ended: Vec<Result<Option<bool>>> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let (mode, barrier) = (mode.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    connections[racer % 2].put_if(name, &bytes(racer), mode)
                })
            })
            .collect();
        let joined = racers.into_iter().map(|racer| racer.join());
        joined
            .map(|ended| ended.expect("a racer does not panic"))
            .collect()
    });
    let mut winners = Vec::new();
    let mut is_unsure = false;
    for (racer, ended) in ended.into_iter().enumerate() {
        match ended? {
            Some(true) => winners.push(racer),
            Some(false) => {}
            None => is_unsure = true,
        }
    }
    let left = ObjectStore::get(connections[1], name);
    Ok(match (&winners[..], left) {
        ([], Err(error)) if error.is_not_found() && is_unsure => RaceOutcome::Undecided,
        ([], Err(error)) if error.is_not_found() => RaceOutcome::Wrong("nobody won".into()),
        (_, Err(error)) if !error.is_not_found() => return Err(error),
        (_, Err(_)) => RaceOutcome::Wrong("what the winner wrote is gone".into()),
        ([], Ok(_)) if is_unsure => RaceOutcome::Undecided,
        ([], Ok(_)) => RaceOutcome::Wrong("nobody won".into()),
        ([winner], Ok(left)) if left == bytes(*winner) => RaceOutcome::One,
        ([_], Ok(_)) => RaceOutcome::Wrong("one won, and another's bytes are left".into()),
        (many, Ok(_)) => RaceOutcome::Wrong(format!("{} of {RACERS} won", many.len())),
    })
}
