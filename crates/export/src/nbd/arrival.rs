//! The patience with a payload that is on its way: its client is cut off where it sends nothing, or too little.

use std::io::{self, ErrorKind};
use std::time::Duration;

use super::client::{NbdClient, broken};
use super::stream::{BYTES_A_SECOND_MIN, Deadline};

/// Time without a byte after which a client is cut off whose payload holds memory that others wait for.
const STALL_MAX_WHERE_WAITED_FOR: Duration = Duration::from_secs(10);

/// A payload on its way. Time is counted in windows of the client's longest stall.
pub struct Arrival<'a> {
    client: &'a NbdClient,
    window_ends: Deadline,
    /// Bytes that came in this window.
    bytes: u64,
    /// Whether too little came in the window before: once is forgiven, since it may be this process that stood still.
    was_slow: bool,
}

impl<'a> Arrival<'a> {
    pub fn new(client: &'a NbdClient) -> Self {
        Self {
            client,
            window_ends: client.stream.deadline(0),
            bytes: 0,
            was_slow: false,
        }
    }

    /// Waits for some bytes of the payload: how many came.
    ///
    /// # Errors
    /// The connection is broken, or ended; `TimedOut`: the client stalls, or is too slow.
    pub fn receive(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let stall_ends = self.client.stream.deadline(0);
        loop {
            let look = stall_ends.or(Deadline::after(STALL_MAX_WHERE_WAITED_FOR));
            match self.client.stream.receive(buf, Some(look)) {
                Ok(0) => return Err(broken()),
                Ok(count) => {
                    self.came(count)?;
                    return Ok(count);
                }
                Err(error)
                    if error.kind() == ErrorKind::TimedOut
                        && !self.client.memory.is_waited_for() =>
                {
                    stall_ends.check()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn came(&mut self, count: usize) -> io::Result<()> {
        self.bytes += count as u64;
        let ended = self.window_ends.check();
        if ended.is_err() {
            let is_slow =
                self.bytes < BYTES_A_SECOND_MIN * self.client.stream.stall_max().as_secs();
            if is_slow && self.was_slow {
                return ended;
            }
            self.was_slow = is_slow;
            self.bytes = 0;
            self.window_ends = self.client.stream.deadline(0);
        }
        Ok(())
    }
}
