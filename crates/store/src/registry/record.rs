//! Contents of the registers of sessions and locks. Specified in FORMAT.md, "Register".
//!
//! Invariant: no two writes of a register have the same bytes, since each has its writer's random nonce and a beat that
//! only grows. So a process that finds its own bytes there knows that it wrote them.

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use super::{ListNumber, PinInfo};
use crate::{Result, RootId};

/// The frame of a register.
pub const REGISTER: FrameKind = FrameKind {
    magic: *b"1FREGSTR",
    version: 1,
};

/// A register's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Random, of the writer.
    pub nonce: [u8; 16],
    /// Grows with each write of that writer.
    pub beat: u64,
    /// State of the session or the lock.
    pub state: RecordState,
}

/// State of a session or a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordState {
    /// A session that works.
    Active(SessionEntry),
    /// A session whose root is there by decision. Whoever sees this may put the object, too.
    Committing(NewRoot, SessionEntry),
    /// A session that puts no root any more.
    Revoked,
    /// A lock that nobody holds.
    Free,
    /// A lock that the writer holds.
    Held,
    /// A lock whose holder has decided a change of roots. Whoever takes the lock does it first.
    Decided(RootChange),
}

/// A session's description of itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SessionEntry {
    /// Lists of the condemned that it has read.
    pub seen: Vec<ListNumber>,
    /// Process, machine and work of the session.
    pub info: PinInfo,
    /// Roots that it reads.
    pub holds: Vec<RootId>,
}

/// A root that is put by decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRoot {
    /// Its name.
    pub id: RootId,
    /// Its bytes, as they are stored.
    pub stored: Vec<u8>,
}

/// Roots that come and roots that go.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RootChange {
    /// Roots that come.
    pub put: Vec<NewRoot>,
    /// Roots that go.
    pub remove: Vec<RootId>,
}

impl Record {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.nonce.to_vec();
        out.extend_from_slice(&self.beat.to_le_bytes());
        match &self.state {
            RecordState::Active(session) => {
                out.push(0);
                put_session(&mut out, session);
            }
            RecordState::Committing(root, session) => {
                out.push(1);
                put_new_root(&mut out, root);
                put_session(&mut out, session);
            }
            RecordState::Revoked => out.push(2),
            RecordState::Free => out.push(3),
            RecordState::Held => out.push(4),
            RecordState::Decided(change) => {
                out.push(5);
                put_varint(&mut out, change.put.len() as u64);
                change
                    .put
                    .iter()
                    .for_each(|root| put_new_root(&mut out, root));
                put_roots(&mut out, &change.remove);
            }
        }
        frame::encode_frame(REGISTER, &out)
    }

    /// Decodes the stored bytes of the register `name`.
    ///
    /// # Errors
    /// Damage of `name` ([`Error::is_damage`](crate::Error::is_damage)); another version's register or state
    /// ([`Error::is_other_version`](crate::Error::is_other_version)).
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let payload = frame::decode_whole(REGISTER, bytes, name, 0)?;
        let mut reader = ByteReader::new(payload, name, frame::HEADER_BYTES as u64);
        let (nonce, beat) = (reader.array()?, reader.u64()?);
        let at = reader.offset();
        let state = match reader.u8()? {
            0 => RecordState::Active(session(&mut reader)?),
            1 => RecordState::Committing(new_root(&mut reader)?, session(&mut reader)?),
            2 => RecordState::Revoked,
            3 => RecordState::Free,
            4 => RecordState::Held,
            5 => {
                let count = reader.varint()?;
                let put = (0..count).map(|_| new_root(&mut reader));
                RecordState::Decided(RootChange {
                    put: put.collect::<Result<_>>()?,
                    remove: roots(&mut reader)?,
                })
            }
            other => {
                let found = format!("a register's state {other}");
                return Err(frame::later_version(name, at, &found).into());
            }
        };
        reader.end()?;
        Ok(Self { nonce, beat, state })
    }
}

fn put_session(out: &mut Vec<u8>, session: &SessionEntry) {
    put_varint(out, session.seen.len() as u64);
    for list in &session.seen {
        out.extend_from_slice(&list.0.to_le_bytes());
    }
    put_varint(out, session.info.process.into());
    put_bytes(out, session.info.host.as_bytes());
    put_bytes(out, session.info.activity.as_bytes());
    put_roots(out, &session.holds);
}

fn session(reader: &mut ByteReader<'_>) -> Result<SessionEntry> {
    let count = reader.varint()?;
    let seen = (0..count).map(|_| Ok(ListNumber(reader.u64()?)));
    let seen = seen.collect::<Result<_>>()?;
    let process = reader.varint()? as u32;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (host, activity) = (text(reader.bytes()?), text(reader.bytes()?));
    Ok(SessionEntry {
        seen,
        info: PinInfo {
            process,
            host,
            activity,
        },
        holds: roots(reader)?,
    })
}

fn put_new_root(out: &mut Vec<u8>, root: &NewRoot) {
    out.extend_from_slice(&root.id.0);
    put_bytes(out, &root.stored);
}

fn new_root(reader: &mut ByteReader<'_>) -> Result<NewRoot> {
    let id = RootId(reader.array()?);
    let at = reader.offset();
    let stored = reader.bytes()?.to_vec();
    let found = RootId(*blake3::hash(&stored).as_bytes());
    if found != id {
        let what = format!("a root whose bytes hash to {found}, not to {id}");
        return Err(reader.damaged(what).at(at).into());
    }
    Ok(NewRoot { id, stored })
}

fn put_roots(out: &mut Vec<u8>, roots: &[RootId]) {
    put_varint(out, roots.len() as u64);
    roots.iter().for_each(|root| out.extend_from_slice(&root.0));
}

fn roots(reader: &mut ByteReader<'_>) -> Result<Vec<RootId>> {
    let count = reader.varint()?;
    (0..count).map(|_| Ok(RootId(reader.array()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_reads_as_it_was_written_and_no_cut_or_flip_passes() {
        let stored = b"a root".to_vec();
        let id = RootId(*blake3::hash(&stored).as_bytes());
        let root = NewRoot { id, stored };
        let session = SessionEntry {
            seen: vec![ListNumber(7), ListNumber(u64::MAX)],
            info: PinInfo {
                process: 300,
                host: "there".into(),
                activity: "a backup".into(),
            },
            holds: vec![id],
        };
        let change = RootChange {
            put: vec![root.clone()],
            remove: vec![id, id],
        };
        for state in [
            RecordState::Active(session.clone()),
            RecordState::Committing(root, session),
            RecordState::Revoked,
            RecordState::Free,
            RecordState::Held,
            RecordState::Decided(change),
        ] {
            let record = Record {
                nonce: [9; 16],
                beat: 3,
                state,
            };
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes, "x").unwrap(), record);
            for at in 0..bytes.len() {
                assert!(Record::decode(&bytes[..at], "x").is_err());
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                assert!(Record::decode(&flipped, "x").is_err(), "{at}");
            }
        }
    }
}
