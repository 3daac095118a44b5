//! The loop above the system's reads, which may return fewer bytes than asked for.

use std::io;

/// Fills `buf` from `offset` by as many calls of `raw` as it takes; `false` where the bytes end before. Interrupted
/// calls are made again.
pub(crate) fn read_fully(
    buf: &mut [u8],
    offset: u64,
    mut raw: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<bool> {
    let mut done = 0;
    while done < buf.len() {
        match raw(&mut buf[done..], offset.saturating_add(done as u64)) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
