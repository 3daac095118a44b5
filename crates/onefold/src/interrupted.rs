//! The message after a signal ended a verb: the verb, the state that is left behind, and what to do next.
//!
//! Invariant: the message is true wherever the signal came, since that place is not known.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use crate::exit::Exit;
use crate::json::message;
use crate::progress::line;

/// The verb that runs: set once, before anything that a signal could interrupt.
static RUNNING: OnceLock<RunningVerb> = OnceLock::new();

/// Whether the message was printed; locked while a thread prints it.
static IS_TOLD: Mutex<bool> = Mutex::new(false);

/// Longest wait for another thread's output: a terminal may take none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the user is being asked about a new repository, and nothing of it exists.
static IS_UNMADE: AtomicBool = AtomicBool::new(false);

struct RunningVerb {
    verb: &'static str,
    aftermath: &'static str,
    json: bool,
}

/// Notes that a signal interrupts `verb` from here on, which leaves `aftermath` behind.
pub fn begin((verb, aftermath): (&'static str, &'static str), json: bool) {
    let _ = RUNNING.set(RunningVerb {
        verb,
        aftermath,
        json,
    });
}

/// Returns the state that is left behind, and what to do next.
pub fn aftermath() -> Option<&'static str> {
    RUNNING.get().map(RunningVerb::aftermath)
}

/// Asks about a repository that does not exist yet. After an error, such as a signal during the question, it still does
/// not exist.
pub fn before_making<T, E>(ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    IS_UNMADE.store(true, SeqCst);
    ask().inspect(|_| IS_UNMADE.store(false, SeqCst))
}

impl RunningVerb {
    fn aftermath(&self) -> &'static str {
        if IS_UNMADE.load(SeqCst) {
            "no repository was made, and nothing is stored; run it again"
        } else {
            self.aftermath
        }
    }
}

/// Returns the headline for a verb that was interrupted.
pub fn headline() -> String {
    let verb = RUNNING.get().map_or("it", |running| running.verb);
    format!("{verb} was interrupted")
}

/// Prints the message with `words` if no thread has, and waits for a thread that is printing it: the program may end
/// after this.
pub fn once(words: impl FnOnce()) {
    if let Some(mut is_told) = IS_TOLD.try_lock_for(PATIENCE)
        && !std::mem::replace(&mut *is_told, true)
    {
        words();
    }
}

/// Prints the message on standard error if no thread has, even if another thread is printing other things.
pub fn tell() {
    if let Some(running) = RUNNING.get() {
        once(|| say(running));
    }
}

fn say(running: &RunningVerb) {
    line::abandon();
    let said = if running.json {
        message::line(&message::ExitError::new(Exit::Interrupted, &headline()))
    } else {
        format!("onefold: {}\n         {}", headline(), running.aftermath())
    };
    // This takes no lock, which the interrupted thread may hold for ever. Errors do not matter: the terminal may be
    // gone.
    if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
        let _ = File::from(stderr).write_all(format!("{said}\n").as_bytes());
    }
}
