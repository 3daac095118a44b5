//! The metadata device of a depot with `dtb` or `cbt`: a file or device given by path, apart from the data (report
//! §4.1). It begins with a head that names its depot (FORMAT.md, "Metadata device"); the pages lie behind that.
//!
//! Invariant: a data device is never taken for a metadata device, nor the other way round: their heads differ.

use std::sync::Arc;

use onefold_io::frame::{self, FrameKind};
use onefold_io::{Dir, Disk, Error as IoError, ErrorKind, ReadAt, WriteAt};

use super::config::{Backend, Config, EngineKind, HEAD_BYTES};
use super::data::{self, Access, BytesBefore, OpenDevice};
use super::openings;
use crate::dmdedup::HASH_KEY_BYTES;
use crate::dtb::Dtb;
use crate::dump::hex;
use crate::{Error, Result};

/// The frame of the head.
pub const METADATA_HEAD: FrameKind = FrameKind {
    magic: *b"1FVMETAD",
    version: 1,
};

/// Bytes of metadata that `cbt` may take for a chunk of the data device (hash and count), and of the volume (LBN), with
/// nodes half full.
const CBT_BLOCK_BYTES: u64 = 56;
const CBT_LBN_BYTES: u64 = 33;
/// Bytes besides, for pages that a transaction copies.
const CBT_BYTES: u64 = 1 << 20;

/// The part of the device that holds pages. Its length is fixed.
struct PagesDisk {
    disk: Arc<dyn Disk>,
    bytes: u64,
    path: String,
}

/// The head of a depot's metadata device.
pub fn encode_head(depot: [u8; 16]) -> Vec<u8> {
    frame::encode_frame(METADATA_HEAD, &depot)
}

/// The depot that a head names; `bytes` were read from `path`.
///
/// # Errors
/// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made it.
pub fn decode_head(bytes: &[u8], path: &str) -> Result<[u8; 16]> {
    let payload = frame::decode_frame(METADATA_HEAD, bytes, path, 0)?.payload;
    payload.try_into().map_err(|_| Error::Damaged {
        place: path.into(),
        what: format!("a depot's id of {} bytes, expected 16", payload.len()),
    })
}

/// The metadata device of a depot that is being created.
pub(super) struct NewMetadata {
    disk: Arc<dyn Disk>,
    before: BytesBefore,
}

/// Looks whether a device can be taken for a depot that is being created. Nothing is written.
///
/// # Errors
/// [`Error::Exists`] where it holds something, unless `overwrite` is given; [`Error::Held`]; [`Error::Invalid`] where it
/// is too small for all that may be needed; the device failed.
pub(super) fn confirm(
    devices: &OpenDevice,
    config: &Config,
    overwrite: bool,
) -> Result<NewMetadata> {
    let path = &config.metadata_path;
    let disk = devices(path, Access::Alone)?;
    let room = disk.len()?.saturating_sub(HEAD_BYTES);
    let needed = bytes_needed(config);
    if room < needed {
        return Err(Error::Invalid {
            what: format!(
                "{path} has room for {room} bytes of metadata, and a depot of this size may need {needed}: a larger \
                 metadata device or a smaller capacity is needed"
            ),
        });
    }
    if !overwrite {
        data::confirm_blank(&*disk, path)?;
    }
    let before = BytesBefore::read(&disk, HEAD_BYTES + CBT_BYTES.min(room))?;
    Ok(NewMetadata { disk, before })
}

fn bytes_needed(config: &Config) -> u64 {
    let (blocks, lbns) = (config.blocks(), config.lbns());
    match config.engine {
        EngineKind::Dmdedup(Backend::Cbt) => blocks
            .saturating_mul(CBT_BLOCK_BYTES)
            .saturating_add(lbns.saturating_mul(CBT_LBN_BYTES))
            .saturating_add(CBT_BYTES),
        _ => Dtb::bytes_of(blocks, lbns, HASH_KEY_BYTES, blocks),
    }
}

impl NewMetadata {
    /// Takes the device; returns what its pages lie on.
    ///
    /// # Errors
    /// The device failed.
    pub fn take(&self, config: &Config) -> Result<Arc<dyn Disk>> {
        // Superblocks of a depot that was there before must not count.
        let mut head = vec![0; self.before.len()];
        let encoded = encode_head(config.depot);
        head[..encoded.len()].copy_from_slice(&encoded);
        self.disk.write_at(&head, 0)?;
        self.disk.sync()?;
        pages(Arc::clone(&self.disk), &config.metadata_path)
    }

    /// Gives the device back after a creation that failed.
    pub fn put_back(&self) {
        self.before.put_back();
    }
}

/// Opens the device for its owner alone.
///
/// # Errors
/// [`Error::Unsupported`] where it is another depot's, or was written with another copy of the folder since;
/// [`Error::Damaged`] where it has no head of a metadata device; [`Error::Held`]; the device is not there, or failed.
pub(super) fn open(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
    opening_tag: [u8; 8],
) -> Result<Arc<dyn Disk>> {
    let path = &config.metadata_path;
    let disk = devices(path, Access::Alone)?;
    check_owner(&*disk, config)?;
    openings::METADATA.compare(folder, &*disk, path)?;
    openings::METADATA.count(folder, &*disk, opening_tag)?;
    pages(disk, path)
}

/// Opens the device for reading, whoever has the depot open.
///
/// # Errors
/// As of [`open`], but for the copies of the folder.
pub(super) fn look(devices: &OpenDevice, config: &Config) -> Result<Arc<dyn Disk>> {
    let disk = devices(&config.metadata_path, Access::Beside)?;
    check_owner(&*disk, config)?;
    pages(disk, &config.metadata_path)
}

/// Gives the device back: either end is blank again. One that is another depot's by now, or is gone, stays as it is.
///
/// # Errors
/// [`Error::Held`]; the device failed.
pub(super) fn give_back(devices: &OpenDevice, config: &Config) -> Result<()> {
    let disk = match devices(&config.metadata_path, Access::Alone) {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        disk => disk?,
    };
    match check_owner(&*disk, config) {
        Ok(()) => data::blank(&*disk, disk.len()?),
        Err(Error::Unsupported { .. } | Error::Damaged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn check_owner(disk: &dyn Disk, config: &Config) -> Result<()> {
    let path = &config.metadata_path;
    let mut head = vec![0; disk.len()?.min(HEAD_BYTES) as usize];
    disk.read_at(&mut head, 0)?;
    let owner = decode_head(&head, path)?;
    if owner == config.depot {
        Ok(())
    } else {
        Err(Error::Unsupported {
            what: format!(
                "{path} has metadata of depot {}, not of {}",
                hex(&owner),
                hex(&config.depot)
            ),
        })
    }
}

fn pages(disk: Arc<dyn Disk>, path: &str) -> Result<Arc<dyn Disk>> {
    Ok(Arc::new(PagesDisk {
        bytes: disk.len()?.saturating_sub(HEAD_BYTES),
        disk,
        path: path.into(),
    }))
}

impl Disk for PagesDisk {
    fn len(&self) -> onefold_io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> onefold_io::Result<()> {
        self.disk.read_at(buf, HEAD_BYTES.saturating_add(offset))
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> onefold_io::Result<()> {
        let mut shifted: Vec<ReadAt<'_>> = (reads.iter_mut())
            .map(|read| ReadAt {
                offset: HEAD_BYTES.saturating_add(read.offset),
                buf: &mut *read.buf,
            })
            .collect();
        self.disk.read_many_at(&mut shifted)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> onefold_io::Result<()> {
        self.disk.write_at(data, HEAD_BYTES.saturating_add(offset))
    }

    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> onefold_io::Result<()> {
        let shifted: Vec<WriteAt<'_>> = (writes.iter())
            .map(|write| WriteAt {
                offset: HEAD_BYTES.saturating_add(write.offset),
                data: write.data,
            })
            .collect();
        self.disk.write_many_at(&shifted)
    }

    fn sync(&self) -> onefold_io::Result<()> {
        self.disk.sync()
    }

    /// The device stays as long as it is: there is room, or there is none.
    fn set_len(&self, len: u64) -> onefold_io::Result<()> {
        if len <= self.bytes {
            Ok(())
        } else {
            let what = format!("room for {} bytes of metadata, not for {len}", self.bytes);
            Err(IoError::new("grow", &*self.path, ErrorKind::NoSpace, what))
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.disk.allocate(HEAD_BYTES.saturating_add(offset), len)
    }

    fn discard(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.disk.discard(HEAD_BYTES.saturating_add(offset), len)
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::{MemDisk, Random};

    use super::*;
    use crate::cbt::{Cbt, CbtOptions};
    use crate::{Key, MetadataBackend, Pbn};

    /// Trees of four entries a node: as many changes as `cbt` promises find room, however few pages are left.
    #[test]
    fn cbt_promises_no_more_changes_than_find_room() {
        const LBNS: u64 = 600;
        let options = CbtOptions {
            node_entries_max: 4,
            ..CbtOptions::new(64 << 10)
        };
        let (mut flushes, mut commits_for_room) = (0, 0);
        for seed in 0..20 {
            let mut random = Random(seed);
            let disk = MemDisk::new();
            let pages_of_disk = 400 + random.below(300);
            disk.set_len(HEAD_BYTES + pages_of_disk * 4096)
                .expect("RAM");
            let disk = pages(Arc::new(disk), "/dev/metadata").expect("RAM");
            Cbt::create_on(&*disk, LBNS).expect("RAM");
            let mut cbt = Cbt::open_on(Arc::clone(&disk), LBNS, options).expect("RAM");
            let lbns = cbt.create_linear(LBNS).expect("RAM");
            let mut twin = std::collections::BTreeMap::new();
            for _ in 0..4000 {
                if cbt.changes_left().expect("RAM") == 0 {
                    cbt.flush().expect("RAM");
                    commits_for_room += 1;
                    assert!(cbt.changes_left().expect("RAM") > 0, "seed {seed}");
                }
                let lbn = random.below(LBNS);
                match random.below(3) {
                    0 => {
                        cbt.delete(lbns, Key::Linear(lbn)).expect("room");
                        twin.remove(&lbn);
                    }
                    _ => {
                        let pbn = Pbn(random.below(LBNS));
                        cbt.insert(lbns, Key::Linear(lbn), pbn).expect("room");
                        twin.insert(lbn, pbn);
                    }
                }
                if random.one_in(300) {
                    cbt.flush().expect("RAM");
                    flushes += 1;
                }
            }
            Box::new(cbt).close().expect("RAM");
            let mut cbt = Cbt::open_on(disk, LBNS, options).expect("whole");
            let lbns = cbt.create_linear(LBNS).expect("it is there");
            assert_eq!(cbt.check().expect("RAM"), []);
            for lbn in 0..LBNS {
                let mut found = [None];
                cbt.lookup(lbns, &[Key::Linear(lbn)], &mut found)
                    .expect("whole");
                assert_eq!(found[0], twin.get(&lbn).copied(), "seed {seed}, {lbn}");
            }
        }
        assert!(flushes > 100, "{flushes} flushes");
        assert!(commits_for_room > 100, "{commits_for_room} for room");
    }
}
