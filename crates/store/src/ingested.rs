//! Which containers the index was told of. Specified in FORMAT.md, "Ingested".
//!
//! A container that is listed here is in the index durably. One that is not may be: telling the index twice does no harm, so a torn or
//! lost end of this file costs time only.

use std::sync::Arc;
use std::time::Duration;

use onefold_index::{ContainerId, Error, Result};
use onefold_io::frame::{self, FrameKind};
use onefold_io::{Dir, ErrorKind, LockGuard, LockKind};

use crate::objects::OBJECT_BYTES_MAX;

/// The frame of one addition.
pub const INGESTED: FrameKind = FrameKind {
    magic: *b"1FINGEST",
    version: 1,
};
/// Its name in the index's folder.
pub const FILE: &str = "ingested";
const LOCK: &str = "ingested.lock";
/// Between two tries for the lock.
const LOCK_PAUSE_MS: u64 = 2;
/// Who waits says so once a minute.
const TOLD_EACH_MS: u64 = 60_000;

/// The list, in the index's folder.
pub struct Ingested {
    dir: Arc<dyn Dir>,
}

impl Ingested {
    /// The list in `dir`; it need not exist yet.
    pub fn new(dir: Arc<dyn Dir>) -> Self {
        Self { dir }
    }

    /// All containers listed, sorted.
    pub fn read(&self) -> Result<Vec<ContainerId>> {
        let (mut containers, _) = self.read_whole()?;
        containers.sort_unstable();
        containers.dedup();
        Ok(containers)
    }

    /// Adds `containers`, whose entries the index has made durable.
    pub fn add(&self, containers: &[ContainerId]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        let _lock = self.lock(None)?;
        let (_, whole_bytes) = self.read_whole()?;
        let disk = match self.dir.open_write(FILE) {
            Ok(disk) => disk,
            Err(error) if error.kind == ErrorKind::NotFound => {
                let disk = self.dir.create(FILE)?;
                self.dir.sync()?;
                disk
            }
            Err(error) => return Err(error.into()),
        };
        disk.set_len(whole_bytes)?;
        disk.write_at(&encode(containers), whole_bytes)?;
        Ok(disk.sync()?)
    }

    /// Takes `containers`, which were deleted, off the list.
    pub fn remove(&self, containers: &[ContainerId]) -> Result<()> {
        let _lock = self.lock(None)?;
        let mut gone = containers.to_vec();
        gone.sort_unstable();
        let (mut left, _) = self.read_whole()?;
        left.retain(|id| gone.binary_search(id).is_err());
        let temporary = "ingested.new";
        match self.dir.remove(temporary) {
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let disk = self.dir.create(temporary)?;
        disk.write_at(&encode(&left), 0)?;
        disk.sync()?;
        self.dir.rename(temporary, FILE)?;
        Ok(self.dir.sync()?)
    }

    /// Removes the list, durably: the index knows nothing any more. Waits at most `wait_ms_max` for whoever changes it.
    pub fn clear(&self, wait_ms_max: Option<u64>) -> Result<()> {
        let _lock = match self.lock(wait_ms_max) {
            // There is no room for the lock: then nobody changes the list, either.
            Err(Error::Io(error)) if error.kind == ErrorKind::NoSpace => None,
            other => Some(other?),
        };
        match self.dir.remove(FILE) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(self.dir.sync()?),
        }
    }

    /// What the whole frames list, and where they end.
    fn read_whole(&self) -> Result<(Vec<ContainerId>, u64)> {
        let disk = match self.dir.open(FILE) {
            Ok(disk) => disk,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(error.into()),
        };
        // What stands behind so many is no list: it is cut off as a torn end is.
        let mut bytes = vec![0; disk.len()?.min(OBJECT_BYTES_MAX) as usize];
        match disk.read_at(&mut bytes, 0) {
            // Nothing is listed then: the index is told of all containers once more.
            Err(error) if error.kind == ErrorKind::Medium => return Ok((Vec::new(), 0)),
            other => other?,
        }
        Ok(decode(&bytes))
    }

    /// Held for the time of one small write, so it is waited for; `wait_ms_max` is for who can do without.
    fn lock(&self, wait_ms_max: Option<u64>) -> Result<Box<dyn LockGuard>> {
        let mut waited_ms = 0;
        loop {
            if let Some(guard) = self.dir.lock(LOCK, LockKind::Exclusive)? {
                return Ok(guard);
            }
            if wait_ms_max.is_some_and(|max| waited_ms >= max) {
                return Err(Error::Held { lock: LOCK.into() });
            }
            std::thread::sleep(Duration::from_millis(LOCK_PAUSE_MS));
            waited_ms += LOCK_PAUSE_MS;
            if waited_ms % TOLD_EACH_MS == 0 {
                let minutes = waited_ms / TOLD_EACH_MS;
                tracing::warn!("another process has held index/{LOCK} for {minutes} min");
            }
        }
    }
}

fn encode(containers: &[ContainerId]) -> Vec<u8> {
    let payload: Vec<u8> = containers
        .iter()
        .flat_map(|id| id.0.to_le_bytes())
        .collect();
    frame::encode_frame(INGESTED, &payload)
}

/// The containers of all whole frames at the front of `bytes`, and how many bytes those take.
pub fn decode(bytes: &[u8]) -> (Vec<ContainerId>, u64) {
    let (mut containers, mut at) = (Vec::new(), 0);
    while let Ok(frame) = frame::decode_frame(INGESTED, &bytes[at..], FILE, at as u64) {
        let (ids, _) = frame.payload.as_chunks::<8>();
        containers.extend(ids.iter().map(|id| ContainerId(u64::from_le_bytes(*id))));
        at += frame.frame_bytes;
    }
    (containers, at as u64)
}
