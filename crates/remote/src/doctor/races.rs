//! Whether conditions are kept, alone and where many write at once.

use bytes::Bytes;
use object_store::{PutMode, UpdateVersion};
use onefold_store::objects::ObjectStore;
use onefold_store::registry::registers::Registers;
use onefold_store::{Error, Result};

use super::{Trials, Verdict};
use crate::client::Client;

/// Races of each kind.
const ROUNDS: usize = 8;
/// Who takes part in a race.
const RACERS: usize = 16;

const SHARED: &str = "use another store. Known to let several win: SeaweedFS before its change 8801, versitygw before 1.8.0; \
     Garage has no conditional writes as far as is known";

/// That a condition that does not hold is refused, and one that holds is not.
pub(super) fn conditions(trials: &mut Trials<'_>) -> Result<()> {
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
        match other.put_if(&name, &first, swap(&found.version.0))? == Some(true) {
            true => Ok(Some(
                "an object that was removed was replaced by who named its version",
            )),
            false => Ok(None),
        }
    };
    match outcome() {
        Ok(None) => trials.tell(TRIAL, Verdict::Good, "kept"),
        Ok(Some(wrong)) => trials.tell_with(TRIAL, Verdict::Unshared, wrong, Some(SHARED)),
        Err(Error::Option(words)) => {
            trials.tell_with(TRIAL, Verdict::Unshared, words, Some(SHARED));
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

/// Many put one name at once.
pub(super) fn create(trials: &mut Trials<'_>) -> Result<()> {
    let mode = |_: &Client, _: &str| Ok(PutMode::Create);
    race(trials, "race for a free name", "create", &mode)
}

/// Many replace one version at once.
pub(super) fn replace(trials: &mut Trials<'_>) -> Result<()> {
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
    trials: &mut Trials<'_>,
    trial: &'static str,
    word: &str,
    mode: &dyn Fn(&Client, &str) -> Result<PutMode>,
) -> Result<()> {
    let mut undecided = 0;
    for round in 0..ROUNDS {
        let name = trials.name(&format!("{word}-{round}"));
        let mode = mode(trials.connections[0], &name)?;
        match run(trials.connections, &name, &mode) {
            Ok(Outcome::One) => {}
            Ok(Outcome::Undecided) => undecided += 1,
            Ok(Outcome::Wrong(what)) => {
                trials.tell_with(trial, Verdict::Unshared, what, Some(SHARED));
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
    trials.tell(trial, Verdict::Good, seen);
    Ok(())
}

enum Outcome {
    One,
    /// An answer did not come, so nobody knows how many won.
    Undecided,
    Wrong(String),
}

fn run(connections: [&Client; 2], name: &str, mode: &PutMode) -> Result<Outcome> {
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
        ([], Err(error)) if error.is_not_found() && is_unsure => Outcome::Undecided,
        ([], Err(error)) if error.is_not_found() => Outcome::Wrong("nobody won".into()),
        (_, Err(error)) if !error.is_not_found() => return Err(error),
        (_, Err(_)) => Outcome::Wrong("what the winner wrote is gone".into()),
        ([], Ok(_)) if is_unsure => Outcome::Undecided,
        ([], Ok(_)) => Outcome::Wrong("nobody won".into()),
        ([winner], Ok(left)) if left == bytes(*winner) => Outcome::One,
        ([_], Ok(_)) => Outcome::Wrong("one won, and another's bytes are left".into()),
        (many, Ok(_)) => Outcome::Wrong(format!("{} of {RACERS} won", many.len())),
    })
}
