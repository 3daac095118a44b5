//! A loop around the system's reads, which may return fewer bytes than requested.

use std::io;

use crate::unless_interrupted;

/// Fills `buf` from `offset` by several calls of `raw` where needed; `false` where the bytes end before. Interrupted
/// calls are repeated, up to a limit.
pub(crate) fn read_fully(
    buf: &mut [u8],
    offset: u64,
    mut raw: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<bool> {
    let mut done = 0;
    while done < buf.len() {
        let at = offset.saturating_add(done as u64);
        match unless_interrupted(|| raw(&mut buf[done..], at))? {
            0 => return Ok(false),
            count => done += count,
        }
    }
    Ok(true)
}
