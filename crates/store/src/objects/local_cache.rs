//! Copies of roots, catalogs, descriptors and blocks of metadata in this machine's own folder, for places where a
//! request costs much. Specified in FORMAT.md, "Local cache".
//!
//! Invariant: a copy has the bytes that the store has, so it is sealed as they are; none is used whose checksum or
//! name is wrong; and no failure of the folder is an error: what cannot be copied, or is gone, is read from the store. Any
//! number of processes use one folder, and anybody may delete any of it at any time.
//!
//! One copy is one file, written under a name of its own and then renamed, because that needs no lock and no list that
//! could be lost. The price is a look at every file where room is made: 30,000 of them take some 100 ms.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;
use onefold_io::{Dir, RemadeDir, remove_if_there};
use onefold_keys::Entropy;
use parking_lot::Mutex;

use crate::objects::{OBJECT_BYTES_MAX, TEMPORARY_PREFIX};
use crate::{Error, Result};

/// The frame of a copy.
pub const CACHED: FrameKind = FrameKind {
    magic: *b"1FCACHED",
    version: 1,
};
/// The folder of all copies, in a machine's own folder of a repository.
pub const LOCAL_CACHE_FOLDER: &str = "cache";
/// Bytes of all copies together, unless it is said: 2 GiB, enough for the metadata of some ten million files.
pub const LOCAL_CACHE_BYTES: u64 = 2 << 30;

/// This part of the bound is freed where room is made, so that it is not made for each copy.
const FREED_PART: u64 = 8;
/// The folder is looked at again after so large a part of the bound was added: others add to it, too.
const ADDED_PART: u64 = 16;
/// A file of more bytes is no copy: an object, its frame and its name.
const COPY_BYTES_MAX: u64 = OBJECT_BYTES_MAX + (4 << 10);
/// A copy of more than this part of the bound would drive out most others.
const COPY_PART: u64 = 4;

/// A copy as it is kept in the file `file`, whose name has at most 255 bytes.
pub fn encode(file: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut payload = vec![file.len() as u8];
    payload.extend_from_slice(file.as_bytes());
    parts
        .iter()
        .for_each(|part| payload.extend_from_slice(part));
    frame::encode_frame(CACHED, &payload)
}

/// The bytes that were copied into the file `file`.
///
/// # Errors
/// Damage, and the copy of something else.
pub fn decode(framed: &[u8], file: &str) -> Result<Vec<u8>> {
    let payload = frame::decode_whole(CACHED, framed, file, 0)?;
    let mut reader = ByteReader::new(payload, file, 0);
    let name_bytes = reader.u8()? as usize;
    if reader.take(name_bytes)? == file.as_bytes() {
        Ok(payload[1 + name_bytes..].to_vec())
    } else {
        Err(reader.damaged("the copy of another object".into()).into())
    }
}

/// The original of a copy. Objects never change, so a copy never does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copied<'a> {
    /// A whole object.
    Object(&'a str),
    /// A container's table and footer, behind the container's length in bytes.
    Table(ContainerId),
    /// The block of a container at this offset.
    Block(ContainerId, u64),
}

impl Copied<'_> {
    /// The file of the copy.
    fn file(&self) -> String {
        match self {
            Self::Object(name) => name.replace('/', "-"),
            Self::Table(id) => format!("{:016x}-table", id.0),
            Self::Block(id, offset) => format!("{:016x}-{offset:x}", id.0),
        }
    }
}

/// The copies of one repository's objects.
pub(crate) struct LocalCache {
    dir: Arc<dyn Dir>,
    bytes_max: u64,
    /// Names of unfinished copies.
    entropy: Entropy,
    /// Whether nothing is looked up any more: the store itself is to be read.
    is_passed_by: AtomicBool,
    room: Mutex<FolderRoom>,
}

/// Knowledge of the folder's size.
#[derive(Default)]
struct FolderRoom {
    /// Bytes of all copies when the folder was looked at, and those that were added since. `None`: nobody has looked.
    bytes: Option<u64>,
    /// Bytes that were added since that look.
    added: u64,
    /// Whether copies cannot be written, which was told.
    is_shut: bool,
}

impl LocalCache {
    /// Copies in a folder of `own`, of `bytes_max` bytes in all; `None` where there is to be none.
    pub fn new(own: &Arc<dyn Dir>, bytes_max: u64, entropy: &Entropy) -> Option<Self> {
        (bytes_max > 0).then(|| Self {
            dir: Arc::new(RemadeDir::new(Arc::clone(own), LOCAL_CACHE_FOLDER)),
            bytes_max,
            entropy: entropy.clone(),
            is_passed_by: AtomicBool::new(false),
            room: Mutex::default(),
        })
    }

    /// From now on all is read from the store: for whoever looks whether it has what it should have.
    pub fn pass_by(&self) {
        self.is_passed_by.store(true, Relaxed);
    }

    /// The copy's bytes, where there is one. One that is damaged is removed.
    pub fn get(&self, of: Copied<'_>) -> Option<Vec<u8>> {
        if self.is_passed_by.load(Relaxed) {
            return None;
        }
        let file = of.file();
        match self.read(&file) {
            Ok(bytes) => {
                self.dir.mark_used(&file);
                Some(bytes)
            }
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                tracing::info!("{error}: the store is read instead");
                self.remove(&file);
                None
            }
        }
    }

    fn read(&self, file: &str) -> Result<Vec<u8>> {
        let disk = self.dir.open(file)?;
        let bytes = disk.len()?;
        if bytes > COPY_BYTES_MAX {
            return Err(Error::damaged(file, None, format!("{bytes} bytes")));
        }
        let mut framed = vec![0; bytes as usize];
        disk.read_at(&mut framed, 0)?;
        decode(&framed, file)
    }

    /// Keeps a copy, in the place of what was unused longest.
    pub fn put(&self, of: Copied<'_>, parts: &[&[u8]]) {
        let file = of.file();
        let framed = encode(&file, parts);
        let bytes = framed.len() as u64;
        if bytes > self.bytes_max / COPY_PART || !self.takes(bytes) {
            return;
        }
        if let Err(error) = self.write(&file, &framed) {
            self.room.lock().is_shut = true;
            tracing::info!("{error}: no more copies of objects are kept");
        }
    }

    /// Not synced: what a power failure leaves of a copy has a wrong checksum.
    fn write(&self, file: &str, framed: &[u8]) -> Result<()> {
        let temporary = format!("{TEMPORARY_PREFIX}{:016x}", self.entropy.try_u64()?);
        let disk = self.dir.create(&temporary)?;
        let written = disk.write_at(framed, 0);
        let renamed = written.and_then(|()| self.dir.rename(&temporary, file));
        Ok(renamed.inspect_err(|_| self.remove(&temporary))?)
    }

    /// Whether there is room for this many bytes more, which is made if need be.
    fn takes(&self, bytes: u64) -> bool {
        let mut room = self.room.lock();
        if room.is_shut {
            return false;
        }
        let is_known = room.added + bytes <= self.bytes_max / ADDED_PART;
        let known = room
            .bytes
            .filter(|known| is_known && known + bytes <= self.bytes_max);
        let there = match known {
            Some(there) => there,
            None => {
                room.added = 0;
                self.make_room(bytes)
            }
        };
        room.bytes = Some(there + bytes);
        room.added += bytes;
        true
    }

    /// Removes what was unused longest where `bytes` more would be too many. Gives the bytes of what stays.
    fn make_room(&self, bytes: u64) -> u64 {
        let listed = self.dir.list().unwrap_or_default().into_iter();
        let row = |name: String| {
            let used_ns = self.dir.used_ns(&name).ok()?;
            Some((used_ns, self.dir.len_of(&name).ok()?, name))
        };
        let files = listed.filter(|entry| !entry.is_dir);
        let mut files: Vec<_> = files.filter_map(|entry| row(entry.name)).collect();
        let mut there: u64 = files.iter().map(|(_, len, _)| len).sum();
        if there + bytes <= self.bytes_max {
            return there;
        }
        files.sort_unstable();
        let bytes_left = (self.bytes_max - self.bytes_max / FREED_PART).saturating_sub(bytes);
        for (_, len, name) in files {
            if there <= bytes_left {
                break;
            }
            self.remove(&name);
            there -= len;
        }
        there
    }

    /// Forgets a copy that did not have what it should have, or of what is gone.
    pub fn forget(&self, of: Copied<'_>) {
        self.remove(&of.file());
    }

    /// Forgets all copies of objects of `folder` that do not have one of the `names` there.
    pub fn forget_all_but(&self, folder: &str, names: &HashSet<String>) {
        let listed = self.dir.list().unwrap_or_default();
        for file in listed {
            let name = file.name.strip_prefix(folder);
            let name = name.and_then(|name| name.strip_prefix('-'));
            if name.is_some_and(|name| !names.contains(name)) {
                self.remove(&file.name);
            }
        }
    }

    fn remove(&self, file: &str) {
        if let Err(error) = remove_if_there(&*self.dir, file) {
            tracing::info!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::MemDir;

    use super::*;

    fn cache(own: &Arc<dyn Dir>, bytes_max: u64, seed: u64) -> LocalCache {
        LocalCache::new(own, bytes_max, &Entropy::seeded(seed)).expect("it is wanted")
    }

    fn folder(own: &Arc<dyn Dir>) -> Arc<dyn Dir> {
        own.open_subdir(LOCAL_CACHE_FOLDER).expect("it was made")
    }

    fn bytes_in(own: &Arc<dyn Dir>) -> u64 {
        let dir = folder(own);
        let files = dir.list().unwrap();
        files
            .iter()
            .map(|file| dir.len_of(&file.name).unwrap())
            .sum()
    }

    #[test]
    fn what_was_kept_is_there_for_another_process_under_its_own_name_alone() {
        let own: Arc<dyn Dir> = Arc::new(MemDir::new());
        let (one, other) = (cache(&own, 1 << 20, 1), cache(&own, 1 << 20, 2));
        let block = Copied::Block(ContainerId(7), 64);
        one.put(block, &[b"some ", b"bytes"]);
        assert_eq!(other.get(block).unwrap(), b"some bytes");
        assert_eq!(other.get(Copied::Block(ContainerId(7), 65)), None);
        assert_eq!(other.get(Copied::Table(ContainerId(7))), None);
        folder(&own).rename(&block.file(), "snapshots-1").unwrap();
        assert_eq!(other.get(Copied::Object("snapshots/1")), None);
        assert_eq!(bytes_in(&own), 0, "a copy of another object goes");
    }

    #[test]
    fn a_flipped_bit_or_a_cut_end_counts_as_no_copy() {
        let own: Arc<dyn Dir> = Arc::new(MemDir::new());
        let cache = cache(&own, 1 << 20, 1);
        let root = Copied::Object("snapshots/1");
        cache.put(root, &[&[9; 100]]);
        let len = bytes_in(&own);
        for at in 0..len {
            cache.put(root, &[&[9; 100]]);
            let disk = folder(&own).open_write(&root.file()).unwrap();
            let mut byte = [0];
            disk.read_at(&mut byte, at).unwrap();
            disk.write_at(&[byte[0] ^ 4], at).unwrap();
            assert_eq!(cache.get(root), None, "byte {at}");
            cache.put(root, &[&[9; 100]]);
            let disk = folder(&own).open_write(&root.file()).unwrap();
            disk.set_len(at).unwrap();
            assert_eq!(cache.get(root), None, "cut at {at}");
        }
    }

    #[test]
    fn what_was_unused_longest_makes_room_whoever_kept_it() {
        let own: Arc<dyn Dir> = Arc::new(MemDir::new());
        let bytes_max = 64 << 10;
        let (one, other) = (cache(&own, bytes_max, 1), cache(&own, bytes_max, 2));
        let block = |at| Copied::Block(ContainerId(1), at);
        one.put(block(0), &[&[1; 1000]]);
        for at in 1..200 {
            let cache = if at % 2 == 0 { &one } else { &other };
            cache.put(block(at), &[&[2; 1000]]);
            assert!(one.get(block(0)).is_some(), "in use at {at}");
            // The other process may have added a sixteenth since this one has looked.
            let bytes = bytes_in(&own);
            assert!(bytes <= bytes_max + bytes_max / ADDED_PART, "{bytes}");
        }
        assert!(one.get(block(199)).is_some());
        assert!(one.get(block(1)).is_none());
        one.put(block(200), &[&vec![3; 20 << 10]]);
        assert!(one.get(block(200)).is_none(), "more than a quarter of all");
    }

    #[test]
    fn a_folder_that_is_deleted_or_cannot_be_had_costs_time_alone() {
        let own: Arc<dyn Dir> = Arc::new(MemDir::new());
        let cache = cache(&own, 1 << 20, 1);
        let table = Copied::Table(ContainerId(1));
        cache.put(table, &[b"table"]);
        folder(&own).remove(&table.file()).unwrap();
        own.remove_subdir(LOCAL_CACHE_FOLDER).unwrap();
        assert_eq!(cache.get(table), None);
        cache.put(table, &[b"table"]);
        assert!(cache.get(table).is_some());
        cache.pass_by();
        assert_eq!(cache.get(table), None);
        let in_the_way: Arc<dyn Dir> = Arc::new(MemDir::new());
        in_the_way.create(LOCAL_CACHE_FOLDER).unwrap();
        let cache = self::cache(&in_the_way, 1 << 20, 3);
        cache.put(table, &[b"table"]);
        assert_eq!(cache.get(table), None);
    }
}
