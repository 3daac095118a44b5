//! Activity in a repository: sessions, which sweeps see and wait for, and locks, each of which has one holder at a
//! time.
//!
//! Invariant of every implementation: a session whose [`Pin`] was revoked puts no root any more, and a session that
//! put one was not revoked before. So no root ever stands there that a sweep, which revoked or waited, did not count.
//! ARCHITECTURE.md, "Sweep beside backups".

pub mod flock;
pub(crate) mod hold;
pub mod lease;
pub mod record;
pub mod registers;
pub(crate) mod still;

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use crate::{Error, Result, RootId, protocol};

/// Sessions and locks of one repository.
pub trait Registry: Send + Sync {
    /// Makes what sessions and locks need, where a repository is made. What is there already stays.
    ///
    /// # Errors
    /// Failures of the device.
    fn init(&self) -> Result<()>;

    /// Makes a session visible, before this returns. `holds` names roots that a reader wants to keep reading, forgotten
    /// or not: a session that writes holds none. A sweep does not wait for one that holds any: it keeps what these
    /// refer to. So the reader looks, after this, which of them are still there.
    ///
    /// # Errors
    /// [`Error::Io`]: it cannot be made visible, of kind `Denied` in a place that is only read, or `NoSpace`.
    fn begin(&self, info: &PinInfo, holds: &[RootId]) -> Result<Box<dyn Pin>>;

    /// All sessions that could still put a root, or are about to. What the dead left is cleared away as far as their
    /// death is known for certain.
    ///
    /// # Errors
    /// [`Error::Io`]: they cannot be listed, or what a dead one left not be removed.
    fn living(&self) -> Result<Vec<Living>>;

    /// Takes from the session `name` the means to put a root. Where it had committed already, its root is there when
    /// this returns.
    ///
    /// # Errors
    /// [`Error::Io`]: nobody knows then whether it was revoked.
    fn revoke(&self, name: &str) -> Result<Revoked>;

    /// Takes a lock. What its last holder had decided and not done is done then. Once a lock was taken, no earlier
    /// holder decides anything any more.
    ///
    /// # Errors
    /// [`Error::Locked`] while another has it.
    fn lock(&self, lock: Lock) -> Result<Box<dyn Held>>;

    /// Keeps out who would [take](Self::lock) the lock, together with others who do; alone, where the registry has no
    /// shared locks.
    ///
    /// # Errors
    /// [`Error::Locked`] while another has it.
    fn share(&self, lock: Lock) -> Result<Box<dyn Held>> {
        self.lock(lock)
    }
}

/// A session's place in the registry. Gone when dropped, and at some time after its process has died.
pub trait Pin: Send + Sync {
    /// The session's name: 16 hexadecimal digits.
    fn name(&self) -> &str;

    /// Tells sweeps which lists of the condemned this session has read, after all that it has told before. A sweep need
    /// not wait for a session that has seen its list.
    ///
    /// # Errors
    /// [`Error::PinLost`] where it was revoked; failures of the device.
    fn saw(&self, lists: &[ListNumber]) -> Result<()>;

    /// Makes sure that the session was not revoked, and shows that it lives.
    ///
    /// # Errors
    /// [`Error::PinLost`]: once it is lost, it always is.
    fn confirm(&self) -> Result<()>;

    /// Puts a root, durably, unless the session was revoked: one atomic decision. `stored` are the root's bytes as they
    /// are stored, of which `root` is the hash. Gives whether the root is new: the same bytes can be there already.
    ///
    /// # Errors
    /// [`Error::PinLost`]: the root is not there, unless somebody else put it. Failures of the device: the root may be
    /// there or not.
    fn publish(&self, root: &RootId, stored: &[u8]) -> Result<bool>;
}

/// A lock that is held until this is dropped.
pub trait Held: Send + Sync {
    /// Makes sure that nobody else took the lock meanwhile, as far as the registry can know that.
    ///
    /// # Errors
    /// [`Error::Overtaken`].
    fn confirm(&self) -> Result<()>;

    /// Decides, while the lock is held, that some roots come and others go, and does it: the new ones first. Whoever
    /// takes the lock next finishes it if this process dies. For [`Lock::Snapshots`]. `steps`, which has chosen, is
    /// told of each step.
    ///
    /// # Errors
    /// [`Error::Overtaken`], [`Error::PinLost`]: nothing is decided, and nothing has changed. Failures of the device:
    /// it may have been decided or not.
    fn decide(&self, plan: &RootPlan<'_>, steps: &mut protocol::ChangeMachine) -> Result<()>;
}

/// Roots that come and roots that go, by one decision.
pub struct RootPlan<'a> {
    /// The session that keeps what the new roots refer to; none is needed where only roots go.
    pub pin: Option<&'a dyn Pin>,
    /// New roots: names, and bytes as they are stored. What they refer to is referred to by roots that are there.
    pub put: Vec<(RootId, Vec<u8>)>,
    /// Roots that go. One that is not there is no error.
    pub remove: Vec<RootId>,
}

/// The name of a list of condemned containers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListNumber(pub u64);

impl std::fmt::Display for ListNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// State of a session, as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinState {
    /// The session works, and may put a root.
    Active,
    /// The session has decided that this root is there. Everybody who sees that may put the root, too.
    Committing(RootId),
}

/// A session that lives, as far as anybody knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Living {
    /// Its name: 16 hexadecimal digits.
    pub name: String,
    /// The session's description of itself.
    pub info: PinInfo,
    /// State of the session.
    pub state: PinState,
    /// Lists of the condemned that it has read.
    pub seen: Vec<ListNumber>,
    /// Roots that it reads and keeps, forgotten or not.
    pub holds: Vec<RootId>,
    /// Whether it has shown no life for so long that nobody need wait for it: it may be revoked.
    pub is_stale: bool,
}

/// Result of revoking a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoked {
    /// The session can put no root any more.
    Revoked,
    /// The session had committed: this root is there now.
    Committed(RootId),
    /// The session is not there: it has ended, with or without a root, or was revoked before.
    Ended,
}

/// A kind of work that only one process does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lock {
    /// To make a repository.
    Init,
    /// To remove a key, or write one anew.
    Keys,
    /// To choose snapshots to remove or to replace.
    Snapshots,
    /// To sweep or repair.
    Sweep,
}

impl Lock {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Init, Self::Keys, Self::Snapshots, Self::Sweep];

    /// The lock's name in the registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Keys => "keys",
            Self::Snapshots => "snapshots",
            Self::Sweep => "sweep",
        }
    }

    /// The error of whoever wants it while another holds it.
    pub fn held(self) -> Error {
        let what = match self {
            Self::Init => "another makes a repository here",
            Self::Keys => "another key is being removed",
            Self::Snapshots => "another forget, tag or repair of snapshots is running",
            Self::Sweep => {
                "another prune or repair is running, or a copy is being made (with-lock)"
            }
        };
        Error::Locked { what: what.into() }
    }
}

/// The frame of what a session says of itself, which tells people whose it is.
pub const PIN: FrameKind = FrameKind {
    magic: *b"1FSESSON",
    version: 1,
};

/// Description of a session for those who wait for it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PinInfo {
    /// The process.
    pub process: u32,
    /// Its machine.
    pub host: String,
    /// Work of the session, in a word.
    pub activity: String,
}

impl PinInfo {
    /// Encodes the description, with the roots that the session holds.
    pub fn encode(&self, holds: &[RootId]) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.process.into());
        put_bytes(&mut out, self.host.as_bytes());
        put_bytes(&mut out, self.activity.as_bytes());
        holds.iter().for_each(|root| out.extend_from_slice(&root.0));
        frame::encode_frame(PIN, &out)
    }

    /// Decodes a pin's bytes, with the roots that the session holds.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]), as of one that is being written; another version's pin
    /// ([`Error::is_other_version`]).
    pub fn decode(bytes: &[u8], object: &str) -> Result<(Self, Vec<RootId>)> {
        let payload = frame::decode_whole(PIN, bytes, object, 0)?;
        let mut reader = ByteReader::new(payload, object, frame::HEADER_BYTES as u64);
        let process = reader.varint()? as u32;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, activity) = (text(reader.bytes()?), text(reader.bytes()?));
        let mut holds = Vec::with_capacity(reader.remaining() / 32);
        while reader.remaining() > 0 {
            holds.push(RootId(reader.array()?));
        }
        let info = Self {
            process,
            host,
            activity,
        };
        Ok((info, holds))
    }

    /// Returns the description of a session that has not described itself yet, or not readably.
    pub(crate) fn unknown() -> Self {
        Self {
            activity: "a session".into(),
            host: "this machine".into(),
            process: 0,
        }
    }
}

impl std::fmt::Display for PinInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} by process {} on {}",
            self.activity, self.process, self.host
        )
    }
}
