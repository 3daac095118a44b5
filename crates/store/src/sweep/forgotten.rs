//! Lists of the forgotten: roots that count no longer, whether their objects are there or not. Specified in FORMAT.md,
//! "Forgotten".
//!
//! On object storage a request may be carried out long after it was given up. A list, put before its roots are deleted,
//! keeps a late one from bringing a root back whose chunks may be gone. A local folder has none: there, what is removed
//! stays removed.

use std::collections::HashSet;

use onefold_io::ErrorKind;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;

use crate::error::tolerate;
use crate::objects::{ObjectStore, read_twice_at_most};
use crate::{Error, Result, RootId};

/// The frame of a list.
pub const FORGOTTEN: FrameKind = FrameKind {
    magic: *b"1FFORGOT",
    version: 1,
};
/// A list is kept for so long, in seconds: 30 days. No request is under way for that long.
pub const KEPT_S: u64 = 30 * 24 * 60 * 60;
/// The folder of all lists.
pub const FORGOTTEN_FOLDER: &str = "forgotten";

/// Puts a list of `roots`, durably. The same list can be put again: its name comes from what it says.
///
/// # Errors
/// Those of [`ObjectStore::put_if_absent`] but that it is there.
pub fn put(objects: &dyn ObjectStore, roots: &[RootId]) -> Result<()> {
    let mut sorted = roots.to_vec();
    sorted.sort_unstable();
    let payload: Vec<u8> = sorted.iter().flat_map(|root| root.0).collect();
    let hash = blake3::hash(&payload).to_hex();
    let object = format!("{FORGOTTEN_FOLDER}/{}", &hash[..16]);
    match objects.put_if_absent(&object, &[&frame::encode_frame(FORGOTTEN, &payload)]) {
        Err(Error::Io(error)) if error.kind == ErrorKind::Exists => objects.keep(&[object]),
        other => other,
    }
}

/// Removes the lists that are older than [`KEPT_S`] by the store's own clock: no request to put one of their roots is
/// under way any more. What such a request brought back until now goes first. For the holder of the sweep's lock.
///
/// # Errors
/// Failures of the device. What is damaged stays.
pub fn clear_old(objects: &dyn ObjectStore) -> Result<()> {
    let lists = match objects.ages(FORGOTTEN_FOLDER) {
        Err(error) if error.is_not_found() => return Ok(()),
        lists => lists?,
    };
    for (object, age_s) in lists {
        if age_s < Some(KEPT_S) {
            continue;
        }
        let roots = decode(&objects.get(&object)?, &object);
        let Some(roots) = tolerate(roots, |error| tracing::warn!("{error}"))? else {
            continue;
        };
        let roots: Vec<_> = roots.iter().map(RootId::object).collect();
        objects.delete_all(&roots)?;
        objects.delete(&object)?;
    }
    Ok(())
}

/// All roots on lists.
///
/// # Errors
/// Those of [`ObjectStore::list`] but that there is no list; damage of a list, when it was read twice.
pub fn read(objects: &dyn ObjectStore) -> Result<HashSet<RootId>> {
    let lists = match objects.list(FORGOTTEN_FOLDER) {
        Err(error) if error.is_not_found() => return Ok(HashSet::new()),
        listed => listed?,
    };
    let mut forgotten = HashSet::new();
    for object in lists {
        let list = read_twice_at_most(objects, &object, || decode(&objects.get(&object)?, &object));
        forgotten.extend(list?);
    }
    Ok(forgotten)
}

/// Decodes the stored bytes of the list `object`.
///
/// # Errors
/// Damage of `object` ([`Error::is_damage`]): no whole frame, or half a name. Another version's list
/// ([`Error::is_other_version`]).
pub fn decode(bytes: &[u8], object: &str) -> Result<Vec<RootId>> {
    let payload = frame::decode_whole(FORGOTTEN, bytes, object, 0)?;
    let mut reader = ByteReader::new(payload, object, frame::HEADER_BYTES as u64);
    let mut roots = Vec::with_capacity(payload.len() / 32);
    while reader.remaining() > 0 {
        roots.push(RootId(reader.array()?));
    }
    Ok(roots)
}
