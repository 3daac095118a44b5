//! The shape of a store: numbers that it keeps for life, in a small framed file, written before anything depends on
//! them.
//!
//! Invariant: an existing store that is opened with other options keeps its shape; options decide the shape of a new
//! store only.

use onefold_io::frame::{FrameKind, encode_frame, read_frame};
use onefold_io::{Dir, if_there};

use onefold_index::{Error, Result};

/// The numbers in the file `name`; where there is none, those of `make`, which are durable on return.
pub fn read_or_write_shape<const N: usize>(
    dir: &dyn Dir,
    name: &str,
    kind: FrameKind,
    make: impl FnOnce() -> Result<[u32; N]>,
) -> Result<[u32; N]> {
    match if_there(dir.open(name))? {
        Some(disk) => {
            let payload = read_frame(&*disk, kind, 0, 4 * N as u64, name)?;
            let (fields, _) = payload.as_chunks::<4>();
            let fields: Vec<u32> = fields
                .iter()
                .map(|four| u32::from_le_bytes(*four))
                .collect();
            <[u32; N]>::try_from(fields).map_err(|fields| {
                Error::damaged(name, 0, format!("{} numbers, expected {N}", fields.len()))
            })
        }
        None => {
            let fields = make()?;
            let payload: Vec<u8> = fields
                .iter()
                .flat_map(|field| field.to_le_bytes())
                .collect();
            replace_file(dir, name, &encode_frame(kind, &payload))?;
            Ok(fields)
        }
    }
}

/// Replaces the file `name` by one with the content `bytes`, through `<name>-tmp`; durable on return.
pub fn replace_file(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<()> {
    Ok(onefold_io::replace_file(
        dir,
        &format!("{name}-tmp"),
        name,
        bytes,
    )?)
}
