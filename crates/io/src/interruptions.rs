//! Interrupted system calls: they are repeated, but not for ever. A signal interrupts a call now and then; a file
//! system that returns this each time has failed.

use std::io;

use rustix::io::Errno;

/// How often a call is repeated. Senders of signals leave more time between two than this many calls take.
const TIMES: usize = 1000;

/// An error that may mean an interrupted call.
pub trait Interruptible {
    /// Whether the error means that the call was interrupted.
    fn is_interruption(&self) -> bool;
}

impl Interruptible for Errno {
    fn is_interruption(&self) -> bool {
        *self == Errno::INTR
    }
}

impl Interruptible for io::Error {
    fn is_interruption(&self) -> bool {
        self.kind() == io::ErrorKind::Interrupted
    }
}

/// Calls `call` until it is not interrupted, and returns its result.
///
/// # Errors
/// Errors of `call`; the interruption itself where all calls were interrupted.
pub fn unless_interrupted<T, E: Interruptible>(
    mut call: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 0..TIMES {
        match call() {
            Err(error) if error.is_interruption() => {}
            done => return done,
        }
    }
    call()
}

/// A counter of interruptions, for loops that cannot use [`unless_interrupted`].
#[derive(Default)]
pub struct Interruptions(usize);

impl Interruptions {
    /// Counts an interruption; returns whether to repeat the call.
    pub fn allow(&mut self) -> bool {
        self.0 += 1;
        self.0 <= TIMES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_again_until_it_is_clear_that_it_never_comes_through() {
        let mut left = 5;
        let mut some = || {
            left -= 1;
            if left > 0 { Err(Errno::INTR) } else { Ok(7) }
        };
        assert_eq!(unless_interrupted(&mut some), Ok(7));
        assert_eq!(
            unless_interrupted(|| Err::<(), _>(Errno::INTR)),
            Err(Errno::INTR)
        );
        let mut calls = 0;
        let failed = unless_interrupted(|| {
            calls += 1;
            Err::<(), _>(Errno::IO)
        });
        assert_eq!((failed, calls), (Err(Errno::IO), 1));
    }
}
