//! Pins: the file by which a session is visible to the sweep, locked as long as its process lives.

use std::sync::Arc;

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};
use onefold_io::{
    Dir, DirEntry, ErrorKind, LockGuard, LockKind, hex_number, if_there, remove_if_there,
};
use onefold_keys::Entropy;

use crate::{Error, Result};

/// The frame inside a pin, which tells people whose it is.
pub const PIN: FrameKind = FrameKind {
    magic: *b"1FSESSON",
    version: 1,
};
/// The folder of all pins.
pub const PIN_FOLDER: &str = "sessions";

/// What a session says of itself to whoever waits for it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PinInfo {
    /// The process.
    pub process: u32,
    /// Its machine.
    pub host: String,
    /// What it does, in a word.
    pub activity: String,
}

impl PinInfo {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.process.into());
        put_bytes(&mut out, self.host.as_bytes());
        put_bytes(&mut out, self.activity.as_bytes());
        frame::encode_frame(PIN, &out)
    }

    /// From a pin's bytes.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]), as of one that is being written; another version's pin
    /// ([`Error::is_other_version`]).
    pub fn decode(bytes: &[u8], object: &str) -> Result<Self> {
        let payload = frame::decode_whole(PIN, bytes, object, 0)?;
        let mut reader = ByteReader::new(payload, object, frame::HEADER_BYTES as u64);
        let process = reader.varint()? as u32;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, activity) = (text(reader.bytes()?), text(reader.bytes()?));
        reader.end()?;
        Ok(Self {
            process,
            host,
            activity,
        })
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

/// A visible session. Gone when dropped, and when the process dies, however it dies.
pub struct Pin {
    dir: Arc<dyn Dir>,
    name: String,
    guard: Option<Box<dyn LockGuard>>,
}

impl Pin {
    /// Makes a session visible: its file is there and locked when this returns.
    ///
    /// # Errors
    /// [`Error::Io`] where no file can be made there: of kind [`ErrorKind::Denied`], or [`ErrorKind::NoSpace`] where
    /// there is no room even for an empty one.
    pub fn set(root: &dyn Dir, info: &PinInfo, entropy: &Entropy) -> Result<Self> {
        let dir = root.subdir(PIN_FOLDER)?;
        loop {
            let name = format!("{:016x}", entropy.u64());
            let Some(guard) = dir.lock(&name, LockKind::Exclusive)? else {
                continue;
            };
            // Whoever clears stale pins may have taken it for one between its creation and its lock, and removed it.
            let Some(disk) = if_there(dir.open_write(&name))? else {
                continue;
            };
            let pin = Self {
                dir: Arc::clone(&dir),
                name,
                guard: Some(guard),
            };
            match disk.write_at(&info.encode(), 0) {
                // The lock is the pin; what it says of itself is for people. A full disk can still be read, checked and
                // swept.
                Err(error) if error.kind != ErrorKind::NoSpace => return Err(error.into()),
                _ => return Ok(pin),
            }
        }
    }

    /// The pin's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// That it is still there. Once it is not, it never is again: whoever removed it held its lock, as when the machine
    /// slept and a network file system freed the lock meanwhile. It is opened, since such a file system answers that
    /// anew, and a question for the name from what it remembers.
    ///
    /// # Errors
    /// [`Error::PinLost`].
    pub fn confirm(&self) -> Result<()> {
        let lost = || Error::PinLost {
            object: format!("{PIN_FOLDER}/{}", self.name),
        };
        match if_there(self.dir.open(&self.name)) {
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind != ErrorKind::NotAFile => Err(error.into()),
            _ => Err(lost()),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Removed while still locked; if that fails, the next who looks finds it stale.
        let _ = self.dir.remove(&self.name);
        self.guard = None;
    }
}

/// The names of all sessions that live, with what they say of themselves. Pins of dead processes are removed.
///
/// # Errors
/// [`Error::Io`]: the folder cannot be listed, a lock not be asked for, or a dead one's pin not be removed. One that
/// does not read is listed all the same.
pub fn living(root: &dyn Dir) -> Result<Vec<(String, PinInfo)>> {
    let Some(dir) = if_there(root.open_subdir(PIN_FOLDER))? else {
        return Ok(Vec::new());
    };
    let mut living = Vec::new();
    let is_pin = |entry: &DirEntry| !entry.is_dir && hex_number(&entry.name, 16).is_some();
    for entry in dir.list()?.into_iter().filter(is_pin) {
        match dir.lock(&entry.name, LockKind::Exclusive) {
            // A socket, a link: nobody's.
            Err(error) if error.kind == ErrorKind::NotAFile => {}
            Err(error) => return Err(error.into()),
            // Held by nobody: dead. Removed while we hold it, so that no one mistakes it for alive.
            Ok(Some(_guard)) => remove_if_there(&*dir, &entry.name)?,
            Ok(None) => living.push((entry.name.clone(), info_of(&*dir, &entry.name))),
        }
    }
    Ok(living)
}

/// What a living session says of itself, as far as it has written that yet.
fn info_of(dir: &dyn Dir, name: &str) -> PinInfo {
    let read = || -> Result<PinInfo> {
        let disk = dir.open(name)?;
        let mut bytes = vec![0; disk.len()?.min(4096) as usize];
        disk.read_at(&mut bytes, 0)?;
        PinInfo::decode(&bytes, name)
    };
    read().unwrap_or_else(|_: Error| PinInfo {
        activity: "a session".into(),
        host: "this machine".into(),
        process: 0,
    })
}
