//! Lists of the condemned: containers that are only ever deleted. Specified in FORMAT.md, "Condemned".
//!
//! Each sweep puts a list of its own, once. A list is durable before its sweep looks for sessions, and a session reads
//! all lists after it made itself visible: see ARCHITECTURE.md. A list goes once all that it names is gone.
//!
//! Versions before this had one list, a file where the lists' folder is now. It is read as a list, and the next sweep
//! takes it over. Such a version finds a folder where it looks for its file, and calls that damage: it writes nothing.

use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;
use onefold_io::{ErrorKind, hex_number};

use crate::objects::{ObjectStore, read_twice_at_most};
use crate::{Error, Result, registry};

pub use crate::folders::CONDEMNED_FOLDER;

/// The frame of a list.
pub const CONDEMNED: FrameKind = FrameKind {
    magic: *b"1FCONDMN",
    version: 2,
};
/// The frame of the one list that there was before.
pub const CONDEMNED_BEFORE: FrameKind = FrameKind {
    version: 1,
    ..CONDEMNED
};

/// A list's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ListId {
    /// The one list of versions before this.
    Before,
    /// A sweep's.
    Sweep(u64),
}

impl ListId {
    /// The name of its object.
    pub fn object(self) -> String {
        match self {
            Self::Before => CONDEMNED_FOLDER.into(),
            Self::Sweep(number) => format!("{CONDEMNED_FOLDER}/{number:016x}"),
        }
    }

    /// Its name in the registry, by which sessions tell that they have read it.
    pub fn registered(self) -> Option<registry::ListNumber> {
        match self {
            Self::Before => None,
            Self::Sweep(number) => Some(registry::ListNumber(number)),
        }
    }

    /// Returns the id of a list's object; `None` for a file of somebody else.
    fn of_object(name: &str) -> Option<Self> {
        let number = name.strip_prefix(CONDEMNED_FOLDER)?.strip_prefix('/')?;
        hex_number(number, 16).map(Self::Sweep)
    }
}

/// A list: its name, and the containers on it, sorted.
pub type List = (ListId, Vec<ContainerId>);

/// All lists, in order of name.
///
/// # Errors
/// Failures of the device; those of [`decode`] for any of them, when it was read twice.
pub fn lists(objects: &dyn ObjectStore) -> Result<Vec<List>> {
    let mut ids = self::ids(objects)?;
    loop {
        let read = read_all(objects, &ids);
        if ids != [ListId::Before] {
            return read;
        }
        // Its file may have been taken over meanwhile.
        let now = self::ids(objects)?;
        if now == ids {
            return read;
        }
        ids = now;
    }
}

fn read_all(objects: &dyn ObjectStore, ids: &[ListId]) -> Result<Vec<List>> {
    let mut lists = Vec::with_capacity(ids.len());
    for id in ids {
        match read(objects, *id) {
            // All that it named is gone.
            Err(error) if error.is_not_found() => {}
            other => lists.push((*id, other?)),
        }
    }
    Ok(lists)
}

/// The names of all lists, whatever stands in them.
///
/// # Errors
/// Failures of the device.
pub fn ids(objects: &dyn ObjectStore) -> Result<Vec<ListId>> {
    let listed = || match objects.list(CONDEMNED_FOLDER) {
        Err(Error::Io(error)) if is_no_folder(&error) => Ok(Err(error)),
        listed => listed.map(|names| {
            let ids = names.iter().map(|name| ListId::of_object(name));
            Ok(ids.flatten().collect())
        }),
    };
    let error = match listed()? {
        Ok(ids) => return Ok(ids),
        Err(error) => error,
    };
    match objects.len(CONDEMNED_FOLDER) {
        // Nothing at all.
        Err(missing) if missing.is_not_found() => Ok(Vec::new()),
        Err(Error::Io(other)) => Err(match error.kind {
            ErrorKind::NotFound => other.into(),
            _ => error.into(),
        }),
        // A folder that was made meanwhile; or a file, or what stands in its place: whoever reads it hears of that.
        _ => Ok(listed()?.unwrap_or_else(|_| vec![ListId::Before])),
    }
}

/// Whether there may be no folder, or a file in its place.
fn is_no_folder(error: &onefold_io::Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Device)
}

/// Reads a list.
///
/// # Errors
/// Those of [`ObjectStore::get`]; those of [`decode`], when it was read twice.
pub fn read(objects: &dyn ObjectStore, id: ListId) -> Result<Vec<ContainerId>> {
    let object = id.object();
    read_twice_at_most(objects, &object, || decode(&objects.get(&object)?, id))
}

/// All containers on these lists, sorted.
pub fn containers(lists: &[List]) -> Vec<ContainerId> {
    let mut all: Vec<_> = lists.iter().flat_map(|(_, ids)| ids).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Puts a list of `containers`, durably.
///
/// # Errors
/// Those of [`ObjectStore::put_if_absent`].
pub fn put(objects: &dyn ObjectStore, number: u64, containers: &[ContainerId]) -> Result<()> {
    let mut sorted = containers.to_vec();
    sorted.sort_unstable();
    let payload: Vec<u8> = sorted.iter().flat_map(|id| id.0.to_le_bytes()).collect();
    let list = frame::encode_frame(CONDEMNED, &payload);
    objects.put_if_absent(&ListId::Sweep(number).object(), &[&list])
}

/// Makes a list like others of the one that a version before this left, if it did. For the holder of the sweep's lock.
/// A session that begins while neither is there may count on what stood on it; the sweep that takes it over waits for
/// that session as for any other, and the one that left it deletes nothing once its file is gone.
///
/// # Errors
/// Those of [`lists`]; failures of the device.
pub fn take_over(objects: &dyn ObjectStore, number: u64) -> Result<()> {
    if ids(objects)? != [ListId::Before] {
        return Ok(());
    }
    let containers = read(objects, ListId::Before)?;
    objects.delete(&ListId::Before.object())?;
    if containers.is_empty() {
        Ok(())
    } else {
        put(objects, number, &containers)
    }
}

/// Decodes a list's stored bytes.
///
/// # Errors
/// Damage ([`Error::is_damage`](crate::Error::is_damage)): no whole frame, half a name, or names out of order. Another
/// version's list ([`Error::is_other_version`](crate::Error::is_other_version)).
pub fn decode(bytes: &[u8], id: ListId) -> Result<Vec<ContainerId>> {
    let object = id.object();
    let kind = match id {
        ListId::Before => CONDEMNED_BEFORE,
        ListId::Sweep(_) => CONDEMNED,
    };
    let payload = frame::decode_whole(kind, bytes, &object, 0)?;
    let mut reader = ByteReader::new(payload, &object, frame::HEADER_BYTES as u64);
    let mut containers = Vec::with_capacity(payload.len() / 8);
    while reader.remaining() > 0 {
        containers.push(ContainerId(reader.u64()?));
    }
    if !containers.is_sorted() {
        return Err(reader.damaged("containers out of order".into()).into());
    }
    Ok(containers)
}
