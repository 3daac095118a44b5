//! Chunks that are known to be damaged: no hit names them any more, so that the next equal write stores a good copy.
//!
//! Damage is a page's: what shares a packed page is damaged together. The list is kept in the file `damaged`:
//!
//! ```text
//! damaged := frame 1FVDAMGD (count:varint (zone:u64 page:varint)*)
//! ```
//!
//! The file is advice. A read or a check that finds damage again makes it again, so a lost or damaged file is an empty
//! list; and no id of a zone is given twice, so an old list does no harm.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_varint};
use onefold_io::{Dir, if_there, rename_over};
use parking_lot::RwLock;

use super::layout::{Address, WHOLE, ZoneId, ZonePlace};
use super::manifest::read_file;
use super::seals::Seals;
use crate::Result;

const KIND: FrameKind = FrameKind {
    magic: *b"1FVDAMGD",
    version: 1,
};

/// The list's name in the depot's folder.
const NAME: &str = "damaged";
const TEMPORARY: &str = "damaged.new";

/// More damaged chunks than this are not kept in mind: a device with as many has to be replaced.
const CHUNKS_MAX: usize = 1 << 16;

/// Addresses of damaged chunks.
pub struct DamagedChunks {
    seals: Seals,
    all: RwLock<HashSet<Address>>,
    /// Whether the file does not say so yet.
    is_changed: AtomicBool,
}

impl DamagedChunks {
    /// The list that was kept in `dir`, of chunks whose zones are there.
    ///
    /// # Errors
    /// The folder failed. A file that is not what was written is an empty list.
    pub fn kept(dir: &dyn Dir, seals: Seals, is_there: impl Fn(ZoneId) -> bool) -> Result<Self> {
        let mut all = HashSet::new();
        if if_there(dir.open(NAME))?.is_some() {
            let opened = seals.open_file(NAME, read_file(dir, NAME)?);
            all = opened.and_then(|bytes| decode(&bytes)).unwrap_or_default();
        }
        all.retain(|address| is_there(address.zone));
        Ok(Self {
            seals,
            all: RwLock::new(all),
            is_changed: AtomicBool::new(false),
        })
    }

    /// Writes the list where it changed. Without room for it, or after a failure, it is tried again at the next
    /// occasion: nothing is lost but advice.
    pub fn keep(&self, dir: &dyn Dir) {
        if !self.is_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let bytes = encode(&self.all.read());
        let put = (self.seals.seal_file(NAME, bytes)).and_then(|bytes| {
            rename_over::<onefold_io::Error>(dir, TEMPORARY, NAME, |disk| {
                disk.write_at(&bytes, 0)
            })?;
            Ok(dir.sync()?)
        });
        if put.is_err() {
            self.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes a chunk whose bytes or checks are not what was written.
    pub fn note(&self, address: Address) {
        let mut all = self.all.write();
        if all.len() < CHUNKS_MAX && all.insert(address.of_page()) {
            self.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the chunk is known to be damaged.
    pub fn has(&self, address: Address) -> bool {
        self.all.read().contains(&address.of_page())
    }

    /// Forgets chunks of zones that were freed.
    pub fn forget(&self, freed: &HashSet<ZoneId>) {
        let mut all = self.all.write();
        let before = all.len();
        all.retain(|address| !freed.contains(&address.zone));
        if all.len() < before {
            self.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Number of known damaged chunks; those of a packed page count once.
    pub fn len(&self) -> usize {
        self.all.read().len()
    }
}

fn encode(all: &HashSet<Address>) -> Vec<u8> {
    let mut sorted: Vec<&Address> = all.iter().collect();
    sorted.sort_unstable();
    let mut out = Vec::new();
    put_varint(&mut out, sorted.len() as u64);
    for address in sorted {
        out.extend_from_slice(&address.zone.0.to_le_bytes());
        put_varint(&mut out, u64::from(address.place().0));
    }
    encode_frame(KIND, &out)
}

/// The addresses that `bytes` of the file list.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): they are not what was written.
pub fn decode(bytes: &[u8]) -> Result<HashSet<Address>> {
    let mut reader = ByteReader::new(decode_whole(KIND, bytes, NAME, 0)?, NAME, 0);
    let mut all = HashSet::new();
    for _ in 0..reader.count(9)? {
        let zone = ZoneId::take(&mut reader)?;
        let place = ZonePlace(reader.varint_max(ZonePlace::MAX)? as u16);
        if place.slot() != WHOLE {
            return Err(reader.damaged(format!("{place:?}, expected a page")).into());
        }
        all.insert(place.in_zone(zone));
    }
    reader.end()?;
    Ok(all)
}

/// A list of two chunks.
pub fn some_list() -> Vec<u8> {
    let at = |page, zone| ZonePlace::new(page, WHOLE).in_zone(ZoneId(zone));
    encode(&HashSet::from([at(7, 3), at(300, 1000)]))
}

#[cfg(test)]
mod tests {
    use onefold_io::MemDir;

    use super::*;

    fn at(zone: u64, page: u32) -> Address {
        ZonePlace::new(page, WHOLE).in_zone(ZoneId(zone))
    }

    fn kept(dir: &MemDir, is_there: impl Fn(ZoneId) -> bool) -> DamagedChunks {
        DamagedChunks::kept(dir, Seals::none(), is_there).expect("RAM")
    }

    #[test]
    fn the_list_comes_back_without_zones_that_are_gone() {
        let dir = MemDir::new();
        let damaged = kept(&dir, |_| true);
        damaged.keep(&dir);
        assert!(dir.open(NAME).is_err(), "nothing is damaged");
        for address in [at(1, 5), at(1, 6), at(2, 7), at(3, 8)] {
            damaged.note(address);
        }
        damaged.keep(&dir);
        damaged.forget(&HashSet::from([ZoneId(3)]));
        damaged.keep(&dir);
        let kept = kept(&dir, |zone| zone != ZoneId(2));
        let slot = Address {
            slot: 4,
            ..at(1, 6)
        };
        assert!(kept.has(at(1, 5)) && kept.has(slot));
        assert!(!kept.has(at(2, 7)) && !kept.has(at(3, 8)) && !kept.has(at(1, 7)));
    }

    #[test]
    fn a_list_that_is_not_what_was_written_is_empty() {
        let bytes = some_list();
        assert_eq!(decode(&bytes).expect("our own").len(), 2);
        for flipped in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[flipped] ^= 1;
            assert!(decode(&bytes).is_err(), "byte {flipped}");
        }
        let dir = MemDir::new();
        let disk = dir.create(NAME).expect("RAM");
        disk.write_at(&bytes[..20], 0).expect("RAM");
        assert_eq!(kept(&dir, |_| true).len(), 0);
    }
}
