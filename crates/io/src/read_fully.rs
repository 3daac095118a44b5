//! The loop above the system's reads, which may return fewer bytes than asked for.

use std::io;

use crate::unless_interrupted;

/// Fills `buf` from `offset` by as many calls of `raw` as it takes; `false` where the bytes end before. Interrupted
/// calls are made again, within reason.
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
