//! State of a simulated object store, and the fate of each request.

use std::collections::{BTreeMap, BTreeSet};

use onefold_io::{ErrorKind, Random};

use super::RequestFaults;
use crate::registry::registers::{Expect, Version};
use crate::{Error, Result};

/// Largest number of requests after which a late one comes.
const LATE_MAX: u64 = 40;

/// A change that was asked for.
#[derive(Clone)]
pub(super) enum RequestedChange {
    Put {
        name: String,
        bytes: Vec<u8>,
        if_absent: bool,
    },
    Delete(String),
    Write {
        name: String,
        expect: Expect,
        bytes: Vec<u8>,
    },
    Remove(String),
    MakeFolder(String),
}

/// Outcome of a change.
pub(super) enum ChangeOutcome {
    Done,
    /// A register's new version.
    Written(u64),
    /// The name was not free, or the register not as expected.
    Refused,
}

pub(super) struct World {
    pub objects: BTreeMap<String, Vec<u8>>,
    /// When each object was put, by the store's clock.
    pub put_ms: BTreeMap<String, u64>,
    /// The store's clock.
    pub now_ms: u64,
    pub folders: BTreeSet<String>,
    /// Bytes and version of each.
    pub registers: BTreeMap<String, (Vec<u8>, u64)>,
    versions: u64,
    pub faults: RequestFaults,
    pub requests: u64,
    random: Random,
    processes: u64,
    dead: BTreeSet<u64>,
    /// Late changes, each with the number of requests after which it comes.
    late: Vec<(u64, RequestedChange)>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            put_ms: BTreeMap::new(),
            now_ms: 0,
            folders: BTreeSet::new(),
            registers: BTreeMap::new(),
            versions: 0,
            faults: RequestFaults::default(),
            requests: 0,
            random: Random(seed),
            processes: 0,
            dead: BTreeSet::new(),
            late: Vec::new(),
        }
    }

    pub fn image(&self, seed: u64) -> Self {
        Self {
            objects: self.objects.clone(),
            put_ms: self.put_ms.clone(),
            now_ms: self.now_ms,
            folders: self.folders.clone(),
            registers: self.registers.clone(),
            versions: self.versions,
            late: self.late.clone(),
            ..Self::new(seed)
        }
    }

    pub fn new_process(&mut self) -> u64 {
        self.processes += 1;
        self.processes
    }

    pub fn kill(&mut self, process: u64) {
        self.dead.insert(process);
    }

    pub fn settle(&mut self) {
        for (_, change) in std::mem::take(&mut self.late) {
            self.apply(&change);
        }
    }

    /// Counts a request that reads; an error where no answer comes to it.
    pub fn read(&mut self, process: u64, name: &str) -> Result<()> {
        let dies = self.request(process, name)?;
        if dies {
            self.kill(process);
            return Err(dead(name));
        }
        if self.strikes(self.faults.refused + self.faults.answer_lost) {
            Err(unavailable("read", name))
        } else {
            Ok(())
        }
    }

    /// Does a change, or not, or later.
    pub fn change(
        &mut self,
        process: u64,
        name: &str,
        change: RequestedChange,
    ) -> Result<ChangeOutcome> {
        let dies = self.request(process, name)?;
        if dies {
            if self.requests % 2 == 1 {
                self.apply(&change);
            }
            self.kill(process);
            return Err(dead(name));
        }
        let faults = self.faults;
        if self.strikes(faults.refused) {
            return Err(unavailable("write", name));
        }
        if self.strikes(faults.late) {
            self.come_later(change);
            return Err(unavailable("write", name));
        }
        if self.strikes(faults.doubled) {
            self.come_later(change.clone());
        }
        let done = self.apply(&change);
        if self.strikes(faults.answer_lost) {
            Err(unavailable("write", name))
        } else {
            Ok(done)
        }
    }

    /// Counts a request, and lets come what is late. Whether the process dies at it.
    fn request(&mut self, process: u64, name: &str) -> Result<bool> {
        if self.dead.contains(&process) {
            return Err(dead(name));
        }
        self.requests += 1;
        let now = self.requests;
        let (due, later) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.late = later;
        let due: Vec<(u64, RequestedChange)> = due;
        for (_, change) in &due {
            self.apply(change);
        }
        Ok(self.faults.dies_at == Some(now))
    }

    fn come_later(&mut self, change: RequestedChange) {
        let at = self.requests + 1 + self.random.below(LATE_MAX);
        self.late.push((at, change));
    }

    /// Whether a fault of this frequency strikes, in 10,000 requests.
    pub fn strikes(&mut self, in_10_000: u32) -> bool {
        in_10_000 > 0 && self.random.below(10_000) < u64::from(in_10_000)
    }

    fn apply(&mut self, change: &RequestedChange) -> ChangeOutcome {
        match change {
            RequestedChange::Put {
                name,
                bytes,
                if_absent,
            } => {
                if *if_absent && self.objects.contains_key(name) {
                    return ChangeOutcome::Refused;
                }
                self.objects.insert(name.clone(), bytes.clone());
                self.put_ms.insert(name.clone(), self.now_ms);
            }
            RequestedChange::Delete(name) => drop(self.objects.remove(name)),
            RequestedChange::Write {
                name,
                expect,
                bytes,
            } => {
                let is = match self.registers.get(name) {
                    Some((_, version)) => Expect::Version(Version(version.to_string())),
                    None => Expect::Absent,
                };
                if is != *expect {
                    return ChangeOutcome::Refused;
                }
                self.versions += 1;
                let register = (bytes.clone(), self.versions);
                self.registers.insert(name.clone(), register);
                return ChangeOutcome::Written(self.versions);
            }
            RequestedChange::Remove(name) => drop(self.registers.remove(name)),
            RequestedChange::MakeFolder(folder) => drop(self.folders.insert(folder.clone())),
        }
        ChangeOutcome::Done
    }
}

pub(super) fn error(op: &'static str, name: &str, kind: ErrorKind, what: &str) -> Error {
    onefold_io::Error::new(op, name, kind, what).into()
}

fn unavailable(op: &'static str, name: &str) -> Error {
    error(op, name, ErrorKind::Unavailable, "no answer")
}

fn dead(name: &str) -> Error {
    error("reach", name, ErrorKind::Device, "this process is dead")
}
