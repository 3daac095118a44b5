//! System calls that are interrupted: made again, but not for ever. A signal interrupts a call now and then; a file
//! system that answers so each time has failed.

use std::io;

use rustix::io::Errno;

/// How often a call is made again. Whoever sends signals leaves more time between them than so many calls take.
const TIMES: usize = 1000;

/// An error that may say that a call was interrupted.
pub trait Interruptible {
    /// Whether it says so.
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

/// What `call` gives, once it is not interrupted.
///
/// # Errors
/// Those of `call`; that it was interrupted, where it was each time.
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

/// Interruptions of calls in a loop that cannot be written as one.
#[derive(Default)]
pub struct Interruptions(usize);

impl Interruptions {
    /// Counts one; whether the call is made again.
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
