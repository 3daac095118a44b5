//! Which containers the index was told of. Specified in FORMAT.md, "Ingested".
//!
//! There are two lists: of containers whose chunks are all in the index (`ingested`), and of those of which it has the
//! hooks that a catalog names (`hooked`). A container that is listed is in the index durably. One that is not may be:
//! telling the index twice does no harm, so a torn or lost end of this file costs time only.

use std::sync::Arc;

use onefold_index::{ContainerId, Error, Result, lock_waiting};
use onefold_io::frame::{self, FrameKind};
use onefold_io::{Dir, Disk, ErrorKind, LockGuard, if_there, remove_if_there, replace_file};

use crate::objects::OBJECT_BYTES_MAX;

/// The frame of one addition.
pub const INGESTED: FrameKind = FrameKind {
    magic: *b"1FINGEST",
    version: 1,
};
/// The list's name in the index's folder.
pub const FILE: &str = "ingested";
/// The name of the list of containers of which the index has the hooks.
pub const HOOKED_FILE: &str = "hooked";
/// The lock of both lists.
const LOCK: &str = "ingested.lock";

/// A list, in the index's folder.
pub struct Ingested {
    dir: Arc<dyn Dir>,
    file: &'static str,
}

impl Ingested {
    /// The list in `dir` of containers whose chunks are all in the index; it need not exist yet.
    pub fn new(dir: Arc<dyn Dir>) -> Self {
        Self { dir, file: FILE }
    }

    /// The list in `dir` of containers of which the index has the hooks; it need not exist yet.
    pub fn hooked(dir: Arc<dyn Dir>) -> Self {
        let file = HOOKED_FILE;
        Self { dir, file }
    }

    /// All containers listed, in the order in which they were added.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_in_order(&self) -> Result<Vec<ContainerId>> {
        Ok(self.read_whole()?.0)
    }

    /// All containers listed, sorted.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened or read. What is damaged or on a bad sector counts as not listed,
    /// and is no error.
    pub fn read(&self) -> Result<Vec<ContainerId>> {
        let (mut containers, _) = self.read_whole()?;
        containers.sort_unstable();
        containers.dedup();
        Ok(containers)
    }

    /// Adds `containers`, whose entries the index has made durable.
    ///
    /// # Errors
    /// [`Error::Io`], no room among it: they may be listed then or not.
    pub fn add(&self, containers: &[ContainerId]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        let _lock = self.lock(None)?;
        let (_, whole_bytes) = self.read_whole()?;
        let disk = match self.dir.open_write(self.file) {
            Ok(disk) => disk,
            Err(error) if !is_no_list(&error) => return Err(error.into()),
            Err(_) => {
                remove_if_there(&*self.dir, self.file)?;
                let disk = self.dir.create(self.file)?;
                self.dir.sync()?;
                disk
            }
        };
        disk.set_len(whole_bytes)?;
        disk.write_at(&encode(containers), whole_bytes)?;
        Ok(disk.sync()?)
    }

    /// Takes `containers`, which were deleted, off the list.
    ///
    /// # Errors
    /// [`Error::Io`], no room among it: they may be listed still.
    pub fn remove(&self, containers: &[ContainerId]) -> Result<()> {
        let _lock = self.lock(None)?;
        let mut gone = containers.to_vec();
        gone.sort_unstable();
        let (mut left, _) = self.read_whole()?;
        left.retain(|id| gone.binary_search(id).is_err());
        let bytes = encode(&left);
        let new = format!("{}.new", self.file);
        Ok(replace_file(&*self.dir, &new, self.file, &bytes)?)
    }

    /// Removes the list, durably: the index knows nothing any more. Waits at most `wait_ms_max` for whoever changes it.
    ///
    /// # Errors
    /// [`Error::Held`] where another changes it for longer than `wait_ms_max`; [`Error::Io`].
    pub fn clear(&self, wait_ms_max: Option<u64>) -> Result<()> {
        let _lock = match self.lock(wait_ms_max) {
            // There is no room for the lock: then nobody changes the list, either.
            Err(Error::Io(error)) if error.kind == ErrorKind::NoSpace => None,
            other => Some(other?),
        };
        match if_there(self.dir.remove(self.file)) {
            Ok(None) => return Ok(()),
            Err(error) if error.kind == ErrorKind::NotAFile => {
                remove_if_there(&*self.dir, self.file)?
            }
            other => drop(other?),
        }
        Ok(self.dir.sync()?)
    }

    /// Returns the containers in the whole frames, and the end of these in the file, in bytes.
    fn read_whole(&self) -> Result<(Vec<ContainerId>, u64)> {
        let disk = match self.dir.open(self.file) {
            Err(error) if is_no_list(&error) => return Ok((Vec::new(), 0)),
            other => other?,
        };
        // A list that is longer than this is damaged: the rest is cut off as a torn end is.
        read_list(&*disk, OBJECT_BYTES_MAX)
    }

    /// Held for the time of one small write, so it is waited for; `wait_ms_max` is for who can do without.
    fn lock(&self, wait_ms_max: Option<u64>) -> Result<Box<dyn LockGuard>> {
        let is_late = |ms| wait_ms_max.is_some_and(|max| ms >= max);
        lock_waiting(&*self.dir, LOCK, &format!("index/{LOCK}"), &is_late)
    }
}

/// Whether there is none, or something else in its place: nothing is listed then.
fn is_no_list(error: &onefold_io::Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotAFile)
}

/// Largest number of times that a list that became shorter while it was read is read anew.
const READS_MAX: u32 = 4;

/// Returns the containers in the whole frames of at most `bytes_max` bytes, and the end of these.
fn read_list(disk: &dyn Disk, bytes_max: u64) -> Result<(Vec<ContainerId>, u64)> {
    for _ in 0..READS_MAX {
        let mut bytes = vec![0; disk.len()?.min(bytes_max) as usize];
        match disk.read_at(&mut bytes, 0) {
            Ok(()) => return Ok(decode(&bytes)),
            // Whoever adds has just cut off a torn end, and waits for nobody who only reads.
            Err(error) if error.kind == ErrorKind::Short => {}
            Err(error) if error.kind == ErrorKind::Medium => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Nothing is listed then: the index is told of all containers once more.
    Ok((Vec::new(), 0))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use onefold_io::{MemDisk, Result};

    use super::*;

    /// A list whose torn end is cut off as soon as its length was asked for.
    struct Cut(MemDisk, AtomicU64);

    impl Disk for Cut {
        fn len(&self) -> Result<u64> {
            Ok(self.0.len()? + self.1.swap(0, Relaxed))
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_at(buf, offset)
        }
        fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
            self.0.write_at(data, offset)
        }
        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
        fn set_len(&self, len: u64) -> Result<()> {
            self.0.set_len(len)
        }
        fn discard(&self, offset: u64, len: u64) -> Result<()> {
            self.0.discard(offset, len)
        }
    }

    #[test]
    fn a_list_that_becomes_shorter_meanwhile_is_read_anew() {
        let containers = [ContainerId(7), ContainerId(9)];
        let list = encode(&containers);
        let disk = Cut(MemDisk::new(), AtomicU64::new(5));
        disk.write_at(&list, 0).unwrap();
        let read = read_list(&disk, OBJECT_BYTES_MAX).unwrap();
        assert_eq!(read, (containers.to_vec(), list.len() as u64));
    }
}
