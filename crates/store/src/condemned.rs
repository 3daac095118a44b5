//! The sweep's list: containers that will be deleted. Specified in FORMAT.md, "Condemned".
//!
//! It is durable before the sweep looks for sessions, and a session reads it after it made itself visible: see
//! ARCHITECTURE.md.

use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;

use crate::Result;
use crate::objects::{ObjectStore, read_twice_at_most};

/// The frame of the list.
pub const CONDEMNED: FrameKind = FrameKind {
    magic: *b"1FCONDMN",
    version: 1,
};
/// The name of its object.
pub const CONDEMNED_OBJECT: &str = "condemned";

/// The condemned containers, sorted; empty where no sweep is under way.
///
/// # Errors
/// Those of [`ObjectStore::get`] but that there is none; those of [`decode`], when it was read twice.
pub fn read(objects: &dyn ObjectStore) -> Result<Vec<ContainerId>> {
    let read = || decode(&objects.get(CONDEMNED_OBJECT)?);
    match read_twice_at_most(objects, CONDEMNED_OBJECT, read) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        other => other,
    }
}

/// Makes `containers` the list, durably.
///
/// # Errors
/// Those of [`ObjectStore::put`].
pub fn write(objects: &dyn ObjectStore, containers: &[ContainerId]) -> Result<()> {
    let mut sorted = containers.to_vec();
    sorted.sort_unstable();
    let payload: Vec<u8> = sorted.iter().flat_map(|id| id.0.to_le_bytes()).collect();
    objects.put(
        CONDEMNED_OBJECT,
        &[&frame::encode_frame(CONDEMNED, &payload)],
    )
}

/// From stored bytes.
///
/// # Errors
/// Damage ([`Error::is_damage`](crate::Error::is_damage)): no whole frame, half a name, or names out of order. Another
/// version's list ([`Error::is_other_version`](crate::Error::is_other_version)).
pub fn decode(bytes: &[u8]) -> Result<Vec<ContainerId>> {
    let payload = frame::decode_whole(CONDEMNED, bytes, CONDEMNED_OBJECT, 0)?;
    let mut reader = ByteReader::new(payload, CONDEMNED_OBJECT, frame::HEADER_BYTES as u64);
    let mut containers = Vec::with_capacity(payload.len() / 8);
    while reader.remaining() > 0 {
        containers.push(ContainerId(reader.u64()?));
    }
    if !containers.is_sorted() {
        return Err(reader.damaged("containers out of order".into()).into());
    }
    Ok(containers)
}
