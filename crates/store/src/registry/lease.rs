//! A registry over registers: what object storage, and whoever offers compare-and-swap, gives.
//!
//! ```text
//! active(beat) ── the session shows life ──▶ active(beat + 1)
//! active ── the session decides ──▶ committing(root) ─▶ snapshots/<root> put ─▶ active(beat + 1)
//! active ── anybody who must not wait longer ──▶ revoked ─▶ register removed a day later
//! committing ── anybody ──▶ helps: puts the same root, removes the register
//! ```
//!
//! Invariant: each step is one compare-and-swap on the version that its writer saw last. So a revoked session cannot
//! commit, and one that is committing cannot be revoked. Clocks only decide how long somebody waits: revoking is safe
//! at any time.

mod own;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use onefold_io::ErrorKind;
use onefold_keys::Entropy;
use parking_lot::Mutex;

use super::record::{NewRoot, Record, RecordState, RootChange, SessionEntry};
use super::registers::{Expect, Register, Registers, Version};
use super::{Held, ListNumber, Living, Lock, Pin, PinInfo, PinState, Registry, Revoked, RootPlan};
use crate::objects::ObjectStore;
use crate::{Error, Result, RootId, protocol, root, sweep::forgotten};
use own::Own;

/// The folder of sessions' registers.
const SESSIONS: &str = "sessions";
/// The folder of locks' registers.
const LOCKS: &str = "locks";
/// A session or a lock that has not changed for so long, by the clock of whoever looks, is stale: 15 minutes.
const STALE_MS: u64 = 15 * 60 * 1000;
/// Age by the store's clock at which a register is stale for everybody, in seconds: 6 hours.
const STALE_AGE_S: u64 = 6 * 60 * 60;
/// A revoked session's register is kept for so long, in seconds, to tell it why it cannot commit: a day.
const REVOKED_KEPT_S: u64 = 24 * 60 * 60;
/// Time that an ending process waits for its own threads: a second.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Largest number of times that a request is made whose answer was lost.
const TRIES: usize = 8;

/// Milliseconds of a clock that only goes forward; where it begins does not matter.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Sessions and locks as registers.
pub struct LeaseRegistry {
    core: Arc<LeaseCore>,
}

struct LeaseCore {
    registers: Arc<dyn Registers>,
    objects: Arc<dyn ObjectStore>,
    entropy: Entropy,
    clock: Clock,
    /// Time without a change after which a register's writer is stale, in milliseconds.
    stale_ms: u64,
    /// When each register was first seen in the version that it has.
    seen: Mutex<HashMap<String, (Version, u64)>>,
    /// The registers of this process: they show that it lives.
    own: Mutex<Vec<Weak<Mutex<Own>>>>,
    /// Those of which the first write failed. It may have come through, so they are taken back when the process ends.
    unsure: Mutex<Vec<Arc<Mutex<Own>>>>,
}

impl LeaseRegistry {
    /// The registry of the repository whose objects these are; `entropy` names sessions, `clock` tells how long others
    /// have not changed.
    pub fn new(
        registers: Arc<dyn Registers>,
        objects: Arc<dyn ObjectStore>,
        entropy: Entropy,
        clock: Clock,
    ) -> Self {
        let core = LeaseCore {
            registers,
            objects,
            entropy,
            clock,
            stale_ms: STALE_MS,
            seen: Mutex::default(),
            own: Mutex::default(),
            unsure: Mutex::default(),
        };
        Self {
            core: Arc::new(core),
        }
    }

    /// Sets another time after which a register without a change is stale, in milliseconds: for tests, in which
    /// processes die by the dozen.
    #[must_use]
    pub fn stale_after_ms(self, stale_ms: u64) -> Self {
        let core = Arc::into_inner(self.core).expect("nobody shares it yet");
        Self {
            core: Arc::new(LeaseCore { stale_ms, ..core }),
        }
    }

    /// Shows that the sessions and locks of this process live. For whoever keeps time: once a minute is often enough
    /// for others, who wait a quarter of an hour. One that was revoked or overtaken is told of that by its next step.
    pub fn beat(&self) {
        let own: Vec<_> = {
            let mut own = self.core.own.lock();
            own.retain(|own| own.strong_count() > 0);
            own.iter().filter_map(Weak::upgrade).collect()
        };
        for own in own {
            // Whoever has it writes it just now.
            let Some(mut own) = own.try_lock() else {
                continue;
            };
            if let Err(error) = own.beat(&self.core) {
                tracing::warn!("{error}: it could not be shown that this process lives");
            }
        }
    }

    /// Takes back all sessions and locks of this process, as for one that ends now: whatever it still does for them
    /// fails from then on. What is decided and not done is left to others, as is what another thread is just changing.
    /// `begin` is called before the first request.
    pub fn leave(&self, begin: impl FnOnce()) {
        let own: Vec<_> = self
            .core
            .own
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        if own.is_empty() {
            return;
        }
        begin();
        let until = Instant::now() + LEAVE_MAX;
        for own in own {
            if let Some(mut own) = own.try_lock_until(until) {
                own.leave(&self.core);
            }
        }
    }
}

impl Registry for LeaseRegistry {
    fn init(&self) -> Result<()> {
        Ok(())
    }

    fn begin(&self, info: &PinInfo, holds: &[RootId]) -> Result<Box<dyn Pin>> {
        let session = SessionEntry {
            seen: Vec::new(),
            info: info.clone(),
            holds: holds.to_vec(),
        };
        loop {
            let name = format!("{:016x}", self.core.entropy.try_u64()?);
            let object = format!("{SESSIONS}/{name}");
            let record = self.core.record(RecordState::Active(session.clone()))?;
            if let Some(own) = self.core.begin(object, Expect::Absent, record)? {
                return Ok(Box::new(LeasePin {
                    core: Arc::clone(&self.core),
                    name,
                    own,
                }));
            }
        }
    }

    fn living(&self) -> Result<Vec<Living>> {
        let mut living = Vec::new();
        for object in self.core.registers.list(SESSIONS)? {
            let Some(register) = self.core.read(&object)? else {
                continue;
            };
            let is_stale = self.core.is_stale(&object, &register);
            let (state, session) = match Record::decode(&register.bytes, &object) {
                Ok(record) => match record.state {
                    RecordState::Active(session) => (PinState::Active, session),
                    RecordState::Committing(root, session) => {
                        (PinState::Committing(root.id), session)
                    }
                    _ => {
                        self.core.clear_revoked(&object, &register)?;
                        continue;
                    }
                },
                // The register may be of a later version: a process that must not wait revokes the session.
                Err(error) => {
                    tracing::warn!("{error}");
                    let session = SessionEntry {
                        info: PinInfo::unknown(),
                        ..SessionEntry::default()
                    };
                    (PinState::Active, session)
                }
            };
            living.push(Living {
                name: object[SESSIONS.len() + 1..].to_owned(),
                info: session.info,
                state,
                seen: session.seen,
                holds: session.holds,
                is_stale,
            });
        }
        Ok(living)
    }

    fn revoke(&self, name: &str) -> Result<Revoked> {
        let object = format!("{SESSIONS}/{name}");
        loop {
            let Some(register) = self.core.read(&object)? else {
                return Ok(Revoked::Ended);
            };
            let state = Record::decode(&register.bytes, &object).map(|record| record.state);
            match state {
                Ok(RecordState::Revoked) => return Ok(Revoked::Ended),
                Ok(RecordState::Committing(root, _)) => {
                    root::put(&*self.core.objects, &root.id, &root.stored)?;
                    // The session may have gone on meanwhile, even to another root: only what was read is ended.
                    let ended = self.core.record(RecordState::Revoked)?;
                    let expect = Expect::Version(register.version);
                    if self.core.swap(&object, expect, &ended)?.is_some() {
                        self.core.registers.remove(&object)?;
                        return Ok(Revoked::Committed(root.id));
                    }
                }
                _ => {
                    let revoked = self.core.record(RecordState::Revoked)?;
                    let expect = Expect::Version(register.version);
                    if self.core.swap(&object, expect, &revoked)?.is_some() {
                        return Ok(Revoked::Revoked);
                    }
                }
            }
        }
    }

    fn lock(&self, lock: Lock) -> Result<Box<dyn Held>> {
        let object = format!("{LOCKS}/{}", lock.name());
        loop {
            let expect = match self.core.read(&object)? {
                None => Expect::Absent,
                Some(register) => {
                    let is_stale = self.core.is_stale(&object, &register);
                    match Record::decode(&register.bytes, &object)?.state {
                        RecordState::Free => {}
                        RecordState::Decided(change) if is_stale => self.core.carry_out(&change)?,
                        _ if is_stale => {}
                        _ => return Err(lock.held()),
                    }
                    Expect::Version(register.version)
                }
            };
            let record = self.core.record(RecordState::Held)?;
            if let Some(own) = self.core.begin(object.clone(), expect, record)? {
                return Ok(Box::new(LeaseHeld {
                    core: Arc::clone(&self.core),
                    own,
                }));
            }
        }
    }
}

impl LeaseCore {
    /// Begins a register of this process, which beats from then on. `None`: it was not as expected.
    ///
    /// The register is known before it is written: a process that ends meanwhile takes back what it finds there.
    fn begin(
        &self,
        object: String,
        expect: Expect,
        record: Record,
    ) -> Result<Option<Arc<Mutex<Own>>>> {
        let own = Arc::new(Mutex::new(Own::beginning(object, record)));
        let mut held = own.lock();
        self.own.lock().push(Arc::downgrade(&own));
        let begun = held.begin(self, expect);
        drop(held);
        if begun.is_err() {
            self.unsure.lock().push(Arc::clone(&own));
        }
        Ok(begun?.map(|()| own))
    }

    /// A new writer's first record.
    fn record(&self, state: RecordState) -> Result<Record> {
        Ok(Record {
            nonce: self.entropy.try_bytes()?,
            beat: 0,
            state,
        })
    }

    /// Reads the register; reads again where the answer is lost.
    fn read(&self, object: &str) -> Result<Option<Register>> {
        let mut read = self.registers.read(object);
        for _ in 1..TRIES {
            match &read {
                Err(error) if error.is_unavailable() => read = self.registers.read(object),
                _ => break,
            }
        }
        read
    }

    /// Writes `record` if the register is as expected; `None` where it is not, and another's write stands there. An
    /// answer that was lost is found out: what stands there then is this record or is not, for no other has its bytes.
    fn swap(&self, object: &str, expect: Expect, record: &Record) -> Result<Option<Version>> {
        let bytes = record.encode();
        let mut tries = 1;
        loop {
            let failed = match self.registers.write(object, &expect, &bytes) {
                Ok(version) => return Ok(Some(version)),
                Err(error) if is_exists(&error) || error.is_unavailable() => error,
                Err(error) => return Err(error),
            };
            let found = self.read(object)?;
            let is_as_expected = match (&found, &expect) {
                (Some(found), _) if found.bytes == bytes => return Ok(Some(found.version.clone())),
                (Some(found), Expect::Version(version)) => found.version == *version,
                (None, Expect::Absent) => true,
                _ => false,
            };
            if !is_as_expected {
                return Ok(None);
            }
            // Not written, or not yet. A second write of the same bytes under the same condition does no harm.
            if tries == TRIES {
                return Err(failed);
            }
            tries += 1;
        }
    }

    /// Whether nobody need wait for whoever wrote the register.
    fn is_stale(&self, object: &str, register: &Register) -> bool {
        let now = (self.clock)();
        let mut seen = self.seen.lock();
        let first = match seen.get(object) {
            Some((version, first)) if *version == register.version => *first,
            _ => {
                seen.insert(object.to_owned(), (register.version.clone(), now));
                now
            }
        };
        now.saturating_sub(first) >= self.stale_ms || register.age_s >= Some(STALE_AGE_S)
    }

    fn clear_revoked(&self, object: &str, register: &Register) -> Result<()> {
        if register.age_s >= Some(REVOKED_KEPT_S) {
            self.registers.remove(object)
        } else {
            Ok(())
        }
    }

    /// Does what was decided. Anybody may, several times.
    fn carry_out(&self, change: &RootChange) -> Result<()> {
        self.put_roots(change)?;
        self.remove_roots(change)
    }

    fn put_roots(&self, change: &RootChange) -> Result<()> {
        let mut roots = change.put.iter();
        roots.try_for_each(|root| root::put(&*self.objects, &root.id, &root.stored).map(drop))
    }

    fn remove_roots(&self, change: &RootChange) -> Result<()> {
        if change.remove.is_empty() {
            return Ok(());
        }
        // A request to put one of them may still be under way: from now on it counts for nothing.
        forgotten::put(&*self.objects, &change.remove)?;
        let removed = &mut change.remove.iter();
        removed.try_for_each(|root| root::forget(&*self.objects, root))
    }
}

fn is_exists(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind == ErrorKind::Exists)
}

struct LeasePin {
    core: Arc<LeaseCore>,
    name: String,
    own: Arc<Mutex<Own>>,
}

impl LeasePin {
    /// Writes the next beat.
    fn change(&self, own: &mut Own, state: Option<RecordState>) -> Result<()> {
        let lost = Error::PinLost {
            object: own.object().to_owned(),
        };
        own.swap(&self.core, state)?.ok_or(lost)
    }
}

impl Pin for LeasePin {
    fn name(&self) -> &str {
        &self.name
    }

    fn saw(&self, lists: &[ListNumber]) -> Result<()> {
        let own = &mut *self.own.lock();
        let mut session = own.session();
        session.seen.extend(lists);
        session.seen.sort_unstable();
        session.seen.dedup();
        self.change(own, Some(RecordState::Active(session)))
    }

    fn confirm(&self) -> Result<()> {
        self.change(&mut self.own.lock(), None)
    }

    fn publish(&self, root: &RootId, stored: &[u8]) -> Result<bool> {
        let own = &mut *self.own.lock();
        let session = own.session();
        let new = NewRoot {
            id: *root,
            stored: stored.to_vec(),
        };
        self.change(own, Some(RecordState::Committing(new, session.clone())))?;
        // From here on the root is there by decision. Where it cannot be put now, others do it.
        let is_new = root::put(&*self.core.objects, root, stored)?;
        match self.change(own, Some(RecordState::Active(session))) {
            // Others helped, and removed the register.
            Err(Error::PinLost { .. }) | Ok(()) => Ok(is_new),
            Err(error) if error.is_unavailable() => Ok(is_new),
            Err(error) => Err(error),
        }
    }
}

impl Drop for LeasePin {
    fn drop(&mut self) {
        self.own.lock().leave(&self.core);
    }
}

struct LeaseHeld {
    core: Arc<LeaseCore>,
    own: Arc<Mutex<Own>>,
}

impl LeaseHeld {
    fn change(&self, own: &mut Own, state: Option<RecordState>) -> Result<()> {
        let overtaken = Error::Overtaken {
            object: own.object().to_owned(),
        };
        own.swap(&self.core, state)?.ok_or(overtaken)
    }
}

impl Held for LeaseHeld {
    fn confirm(&self) -> Result<()> {
        self.change(&mut self.own.lock(), None)
    }

    fn decide(&self, plan: &RootPlan<'_>, steps: &mut protocol::ChangeMachine) -> Result<()> {
        let own = &mut *self.own.lock();
        let put = plan.put.iter().map(|(id, stored)| NewRoot {
            id: *id,
            stored: stored.clone(),
        });
        let change = RootChange {
            put: put.collect(),
            remove: plan.remove.clone(),
        };
        let decided = self.change(own, Some(RecordState::Decided(change.clone())));
        match &decided {
            Err(Error::Overtaken { .. }) => steps.decided(false),
            Err(_) => {}
            Ok(()) => steps.decided(true),
        }
        decided?;
        self.core.put_roots(&change)?;
        steps.roots_put();
        self.core.remove_roots(&change)?;
        steps.roots_removed();
        // Where that fails, another takes the lock over and does it once more.
        self.change(own, Some(RecordState::Held))
            .or_else(|error| match error {
                Error::Overtaken { .. } => Ok(()),
                error if error.is_unavailable() => Ok(()),
                error => Err(error),
            })
    }
}

impl Drop for LeaseHeld {
    fn drop(&mut self) {
        self.own.lock().leave(&self.core);
    }
}
