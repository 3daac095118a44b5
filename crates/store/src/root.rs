//! A root as an object: how it is stored, read and forgotten.

use onefold_io::ErrorKind;
use onefold_io::frame::{self, FrameKind};
use onefold_keys::Keys;

use crate::folders::ROOT_FOLDER;
use crate::objects::{ObjectStore, read_twice_at_most};
use crate::root_id::{FORGOTTEN_SUFFIX, RootId};
use crate::{Error, Result};

/// The frame of a root.
pub const ROOT: FrameKind = FrameKind {
    magic: *b"1FROOT\0\0",
    version: 1,
};

/// Stores a root's bytes, durably, and returns whether they are new. The very same bytes may be there already: put by
/// another process that carries out the same decision, or, without encryption, by an equal snapshot. So may what damage
/// left of them.
pub(crate) fn put(objects: &dyn ObjectStore, id: &RootId, stored: &[u8]) -> Result<bool> {
    let object = id.object();
    match objects.put_if_absent(&object, &[stored]) {
        Err(Error::Io(error)) if error.kind == ErrorKind::Exists => {
            let is_whole = || Ok(objects.get(&object)? == stored);
            match read_twice_at_most(objects, &object, is_whole) {
                Ok(true) => objects.keep(&[object])?,
                _ => objects.put(&object, &[stored])?,
            }
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Forgets a root: it is none any more, and its bytes stay until a sweep sees that no reader holds it. One that is not
/// there is no error. Where there is no room to rename it, it goes at once.
pub(crate) fn forget(objects: &dyn ObjectStore, id: &RootId) -> Result<()> {
    match objects.rename_new(&id.object(), &id.forgotten_object()) {
        Err(error) if error.is_not_found() => Ok(()),
        // The root was forgotten before, and came again; or there is room only for deleting it.
        Err(Error::Io(error)) if matches!(error.kind, ErrorKind::Exists | ErrorKind::NoSpace) => {
            objects.delete(&id.object())
        }
        renamed => renamed,
    }
}

/// The names of forgotten roots among those of objects.
pub(crate) fn forgotten_ids(listed: &[String]) -> Vec<RootId> {
    let names = listed.iter();
    let names = names.filter_map(|name| name.strip_suffix(FORGOTTEN_SUFFIX).map(str::to_owned));
    ids(&names.collect::<Vec<_>>())
}

/// The names of roots among those of objects.
pub(crate) fn ids(listed: &[String]) -> Vec<RootId> {
    let id = |name: &String| RootId::parse(name.strip_prefix(ROOT_FOLDER)?.strip_prefix('/')?);
    listed.iter().filter_map(id).collect()
}

/// A root's bytes, as they were before they were sealed.
pub(crate) fn read(objects: &dyn ObjectStore, keys: &Keys, id: &RootId) -> Result<Vec<u8>> {
    Ok(read_as(objects, keys, id, id.object())?.0)
}

/// Reads a root that was forgotten, as [`read`] does.
pub(crate) fn read_forgotten(
    objects: &dyn ObjectStore,
    keys: &Keys,
    id: &RootId,
) -> Result<Vec<u8>> {
    Ok(read_as(objects, keys, id, id.forgotten_object())?.0)
}

/// Reads the root `id` under the name `object`. Gives it, and its stored bytes.
pub(crate) fn read_as(
    objects: &dyn ObjectStore,
    keys: &Keys,
    id: &RootId,
    object: String,
) -> Result<(Vec<u8>, Vec<u8>)> {
    read_twice_at_most(objects, &object, || {
        let stored = objects.get(&object)?;
        Ok((open(keys, id, object.clone(), &stored)?, stored))
    })
}

/// Opens the stored bytes of the root `id`.
pub(crate) fn open(keys: &Keys, id: &RootId, object: String, stored: &[u8]) -> Result<Vec<u8>> {
    let found = RootId(*blake3::hash(stored).as_bytes());
    if found != *id {
        return Err(Error::damaged(
            object,
            Some(0),
            format!("its bytes hash to {found}"),
        ));
    }
    // Its name is that of its bytes, and it must be that of one root: nothing may stand in them that neither seal
    // nor format fixes.
    let payload = frame::decode_whole(ROOT, stored, &object, 0)?;
    Ok(keys.open_object(&ROOT.magic, payload, &object)?)
}
