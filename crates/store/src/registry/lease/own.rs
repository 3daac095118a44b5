//! A register of this process, and what its writer knows of it.
//!
//! Invariant: each write has a beat of its own, so whoever reads the register knows which one it is, even one whose
//! answer never came.

use crate::Result;
use crate::registry::record::{Record, RecordState, SessionEntry};
use crate::registry::registers::{Expect, Version};

use super::LeaseCore;

/// A register and what its writer knows of it.
pub(super) struct Own {
    object: String,
    record: Record,
    /// The register's version; none once another wrote, and none yet while it begins.
    version: Option<Version>,
    /// Whether the first write has no answer yet: it may be there or not.
    is_beginning: bool,
    /// The beat of the last try to write.
    last_beat: u64,
}

impl Own {
    /// A register that is about to be written for the first time.
    pub fn beginning(object: String, record: Record) -> Self {
        Self {
            object,
            last_beat: record.beat,
            record,
            version: None,
            is_beginning: true,
        }
    }

    /// Writes the first record where the register is as expected. `None`: another was there. Where that fails, the
    /// record may be there all the same.
    pub fn begin(&mut self, core: &LeaseCore, expect: Expect) -> Result<Option<()>> {
        self.version = core.swap(&self.object, expect, &self.record)?;
        self.is_beginning = false;
        Ok(self.version.as_ref().map(|_| ()))
    }

    /// Writes the next beat, with a new state if one is given. `None`: another wrote, now or before.
    pub fn swap(&mut self, core: &LeaseCore, state: Option<RecordState>) -> Result<Option<()>> {
        let state = state.unwrap_or_else(|| self.record.state.clone());
        while let Some(version) = self.version.clone() {
            // Each try has a beat of its own, even one whose answer never comes.
            self.last_beat += 1;
            let record = Record {
                beat: self.last_beat,
                state: state.clone(),
                ..self.record
            };
            match core.swap(&self.object, Expect::Version(version), &record)? {
                Some(version) => {
                    (self.record, self.version) = (record, Some(version));
                    return Ok(Some(()));
                }
                // A write that was given up before may have come late.
                None => self.version = self.written_late(core)?,
            }
        }
        Ok(None)
    }

    /// The register's version where this writer wrote it.
    fn written_late(&self, core: &LeaseCore) -> Result<Option<Version>> {
        let Some(register) = core.read(&self.object)? else {
            return Ok(None);
        };
        let found = Record::decode(&register.bytes, &self.object);
        let is_own = found.is_ok_and(|found| found.nonce == self.record.nonce);
        Ok(is_own.then_some(register.version))
    }

    /// Returns the session's description of itself.
    pub fn session(&self) -> SessionEntry {
        match &self.record.state {
            RecordState::Active(session) | RecordState::Committing(_, session) => session.clone(),
            _ => SessionEntry::default(),
        }
    }

    /// Shows that its writer lives, unless it is its no more.
    pub fn beat(&mut self, core: &LeaseCore) -> Result<()> {
        self.swap(core, None).map(drop)
    }

    /// Takes the register back; its writer writes it no more. The register of a revoked session tells the reason for a
    /// day, and the root of a committed one is for others to put. Where the store does not answer, others find the
    /// register stale.
    pub fn leave(&mut self, core: &LeaseCore) {
        if std::mem::take(&mut self.is_beginning) {
            self.version = self.written_late(core).unwrap_or_default();
        }
        match self.record.state {
            RecordState::Active(_) if self.version.is_some() => {
                let _ = core.registers.remove(&self.object);
            }
            RecordState::Held => {
                let _ = self.swap(core, Some(RecordState::Free));
            }
            _ => {}
        }
        self.version = None;
    }

    /// The register's name.
    pub fn object(&self) -> &str {
        &self.object
    }
}
