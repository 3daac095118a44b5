//! Whether a store can be shared: what it must do is tried, over two connections.
//!
//! A trial can refute and not prove: a store that lets two writers win once in a million races passes. Objects of the
//! trial lie below `doctor/` and are removed at its end.

mod clocks;
mod races;
mod readings;

use bytes::Bytes;
use object_store::PutMode;
use onefold_store::objects::ObjectStore;
use onefold_store::{Error, Result};

use crate::answer::{self, Failure};
use crate::client::Client;
use crate::{BucketLocation, Options, service};

/// The folder of a trial's objects.
pub(crate) const DOCTOR_FOLDER: &str = "doctor";

/// Outcome of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialOutcome {
    /// As it must be.
    Good,
    /// No stored data is at risk, but the user should know of it.
    Note,
    /// Several machines, or a prune beside a backup, would lose data.
    Unshared,
    /// A repository cannot work there.
    Bad,
}

/// A trial, and what it came to.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// Name of the trial, in a few words.
    pub trial: &'static str,
    /// Outcome of the trial.
    pub verdict: TrialOutcome,
    /// Observation that led to the verdict, in words.
    pub seen: String,
    /// Advice to the user, if there is any.
    pub remedy: Option<String>,
}

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialExtent {
    /// Only trials that must succeed before a repository is made: races and readings.
    Quick,
    /// All of it: a list of more than one page and how fast the store is, too.
    Full,
}

/// Tries a store; `each` hears of each trial when it is done.
///
/// # Errors
/// Failures of the store that leave nothing to be tried: it cannot be reached, or may not be written.
pub fn examine(
    location: &BucketLocation,
    options: &Options,
    extent: TrialExtent,
    each: &mut dyn FnMut(&TrialResult),
) -> Result<Vec<TrialResult>> {
    let one = service::client(location, options)?;
    let other = service::client(location, options)?;
    let folder = format!("{DOCTOR_FOLDER}/{:016x}", options.entropy.u64());
    let mut trials = RunningTrials {
        connections: [&one, &other],
        folder,
        found: Vec::new(),
        each,
    };
    let done = trials.run(extent);
    let cleared = trials.clear();
    done.and(cleared)?;
    Ok(trials.found)
}

/// The verdict on a store as a whole: the worst of all.
pub fn verdict(findings: &[TrialResult]) -> TrialOutcome {
    let worst = |one: TrialOutcome, finding: &TrialResult| match (one, finding.verdict) {
        (TrialOutcome::Bad, _) | (_, TrialOutcome::Bad) => TrialOutcome::Bad,
        (TrialOutcome::Unshared, _) | (_, TrialOutcome::Unshared) => TrialOutcome::Unshared,
        (TrialOutcome::Note, _) | (_, TrialOutcome::Note) => TrialOutcome::Note,
        _ => TrialOutcome::Good,
    };
    findings.iter().fold(TrialOutcome::Good, worst)
}

/// Trials under way.
struct RunningTrials<'a> {
    connections: [&'a Client; 2],
    folder: String,
    found: Vec<TrialResult>,
    each: &'a mut dyn FnMut(&TrialResult),
}

impl RunningTrials<'_> {
    fn run(&mut self, extent: TrialExtent) -> Result<()> {
        self.reach()?;
        readings::objects(self)?;
        readings::ranges(self)?;
        readings::lists(self)?;
        races::conditions(self)?;
        races::create(self)?;
        races::replace(self)?;
        races::versions(self)?;
        if extent == TrialExtent::Full {
            readings::pages(self)?;
            clocks::speed(self)?;
        }
        clocks::clock(self);
        Ok(())
    }

    /// The name of a trial's object.
    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn tell(&mut self, trial: &'static str, verdict: TrialOutcome, seen: impl Into<String>) {
        self.tell_with(trial, verdict, seen, None);
    }

    fn tell_with(
        &mut self,
        trial: &'static str,
        verdict: TrialOutcome,
        seen: impl Into<String>,
        remedy: Option<&str>,
    ) {
        let finding = TrialResult {
            trial,
            verdict,
            seen: seen.into(),
            remedy: remedy.map(str::to_owned),
        };
        (self.each)(&finding);
        self.found.push(finding);
    }

    /// Tries that something can be written and read at all. Its errors are the user's to read: they name what is wrong.
    fn reach(&mut self) -> Result<()> {
        let name = self.name("reach");
        self.connections[0].put_anyhow(&name, b"onefold")?;
        let found = ObjectStore::get(self.connections[1], &name)?;
        if found == b"onefold" {
            self.tell(
                "write and read",
                TrialOutcome::Good,
                "an object reads as it was written",
            )
        } else {
            self.tell(
                "write and read",
                TrialOutcome::Bad,
                format!("{} other bytes came", found.len()),
            )
        }
        Ok(())
    }

    /// Removes all that the trials left.
    fn clear(&self) -> Result<()> {
        let client = self.connections[0];
        let left = Client::list(client, &self.folder)?;
        let names: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
        Client::delete_all(client, &names)
    }
}

impl Client {
    fn put_anyhow(&self, name: &str, bytes: &[u8]) -> Result<()> {
        ObjectStore::put(self, name, &[bytes])
    }

    /// Puts an object under a condition, once. Whether it was done; `None` where nobody knows.
    fn put_if(&self, name: &str, bytes: &Bytes, mode: PutMode) -> Result<Option<bool>> {
        match self.put(name, bytes.clone(), mode) {
            Ok(_) => Ok(Some(true)),
            Err((Failure::Taken | Failure::Missing, _)) => Ok(Some(false)),
            Err((Failure::NoAnswer(_) | Failure::Conflict, _)) => Ok(None),
            Err((Failure::Refused, words)) => Err(unconditional(words)),
            Err((failure, words)) => Err(answer::error("write", name, failure, words)),
        }
    }
}

fn unconditional(words: String) -> Error {
    Error::Option(format!("the store takes no conditional writes: {words}"))
}
