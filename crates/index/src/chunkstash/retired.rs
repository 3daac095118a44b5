//! The file of retired containers: one frame, written anew at each retirement (FORMAT.md §5).

use std::collections::HashSet;

use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::{Dir, ErrorKind};

use crate::flashlog::replace_file;
use crate::{ContainerId, Result};

const RETIRED: &str = "stash-retired";
const RETIRED_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTASHR",
    version: 1,
};

/// Those that are written, none where there is no file.
pub(super) fn read_retired(dir: &dyn Dir) -> Result<HashSet<ContainerId>> {
    let disk = match dir.open(RETIRED) {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(HashSet::new()),
        other => other?,
    };
    let mut bytes = vec![0; disk.len()? as usize];
    disk.read_at(&mut bytes, 0)?;
    let frame = decode_frame(RETIRED_FRAME, &bytes, RETIRED, 0)?;
    Ok(frame
        .payload
        .chunks_exact(8)
        .map(|eight| ContainerId(u64::from_le_bytes(eight.try_into().expect("eight bytes"))))
        .collect())
}

/// Writes them, durable when it returns.
pub(super) fn write_retired(dir: &dyn Dir, retired: &HashSet<ContainerId>) -> Result<()> {
    let mut containers: Vec<ContainerId> = retired.iter().copied().collect();
    containers.sort_unstable();
    let payload: Vec<u8> = containers
        .iter()
        .flat_map(|container| container.0.to_le_bytes())
        .collect();
    let bytes = encode_frame(RETIRED_FRAME, 0, &payload);
    replace_file(dir, RETIRED, &bytes)
}
