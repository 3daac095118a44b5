//! The file of retired containers: one frame, written anew at each retirement, and at a checkpoint where some have come
//! back (FORMAT.md §5).

use std::collections::HashSet;

use onefold_io::frame::{FrameKind, encode_frame, read_frame};
use onefold_io::{Dir, if_there};

use crate::flashlog::replace_file;
use onefold_index::{ContainerId, Error, Result};

const RETIRED: &str = "stash-retired";
const RETIRED_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTASHR",
    version: 1,
};
/// Largest payload in bytes, for sixteen million containers: more chunks than a table in RAM is for.
const PAYLOAD_BYTES_MAX: u64 = 128 << 20;

/// Reads the retired containers; none where there is no file.
pub(super) fn read_retired(dir: &dyn Dir) -> Result<HashSet<ContainerId>> {
    let Some(disk) = if_there(dir.open(RETIRED))? else {
        return Ok(HashSet::new());
    };
    let payload = read_frame(&*disk, RETIRED_FRAME, 0, PAYLOAD_BYTES_MAX, RETIRED)?;
    let (containers, rest) = payload.as_chunks::<8>();
    if !rest.is_empty() {
        let what = format!("{} bytes of containers", payload.len());
        return Err(Error::damaged(RETIRED, 0, what));
    }
    let containers = containers.iter().map(|eight| u64::from_le_bytes(*eight));
    Ok(containers.map(ContainerId).collect())
}

/// Writes the retired containers, durable on return.
pub(super) fn write_retired(dir: &dyn Dir, retired: &HashSet<ContainerId>) -> Result<()> {
    let mut containers: Vec<ContainerId> = retired.iter().copied().collect();
    containers.sort_unstable();
    let payload: Vec<u8> = containers
        .iter()
        .flat_map(|container| container.0.to_le_bytes())
        .collect();
    let bytes = encode_frame(RETIRED_FRAME, &payload);
    replace_file(dir, RETIRED, &bytes)
}
