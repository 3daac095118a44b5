//! Signals. SIGUSR1 asks for the progress. SIGINT, SIGTERM and SIGHUP end the program; SIGHUP only where it was not
//! ignored at the start, as by `nohup`. A verb that can stop cleanly announces it and is asked to stop; everything else
//! ends at once ([`leaving`](crate::leaving)), which is safe at any byte: the next process recognises what a killed one
//! leaves behind. A second signal always ends the program at once; signals that come together count as one, since
//! `timeout` sends each to its child, and to the child's whole group. While a command runs that must not be left alone
//! (`with-lock`), all signals go to the command, and the program ends with it.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGUSR1};

static RAISED: AtomicBool = AtomicBool::new(false);
/// Whether a signal has asked for the progress.
static ASKED: AtomicBool = AtomicBool::new(false);
static LISTENERS: AtomicUsize = AtomicUsize::new(0);
/// Number of threads that keep requests to a store going although a signal has come.
static REQUESTERS: AtomicUsize = AtomicUsize::new(0);
/// Process that signals are passed on to; 0 for none. The lock is held while one is sent, so that it cannot reach
/// another process that has the number by then.
static PASSED_TO: Mutex<i32> = Mutex::new(0);
/// The first signal that came; 0 before.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// State of the terminal before a prompt turned its echo off.
static TERMINAL: Mutex<Option<Termios>> = Mutex::new(None);

/// Notes that a signal has come.
pub fn note(signal: i32) {
    if signal == SIGUSR1 {
        return ASKED.store(true, SeqCst);
    }
    let _ = FIRST.compare_exchange(0, signal, SeqCst, SeqCst);
    RAISED.store(true, SeqCst);
}

/// Whether a signal that ends the program has come since it began.
pub fn raised() -> bool {
    RAISED.load(SeqCst)
}

/// Whether a signal has asked for the progress since the last call.
pub fn asked() -> bool {
    ASKED.swap(false, SeqCst)
}

/// While this lives, the first signal only sets [`raised`], which its holder must look at.
pub struct Listening(());

/// Promises to look at [`raised`] several times a second.
pub fn listen() -> Listening {
    LISTENERS.fetch_add(1, SeqCst);
    Listening(())
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, SeqCst);
    }
}

/// Whether a verb has promised to look at [`raised`].
pub fn is_listened_to() -> bool {
    LISTENERS.load(SeqCst) > 0
}

/// Whether requests to a store are to end soon: a signal has come, and nobody [keeps them going](keep_requesting).
pub fn ends_requests() -> bool {
    raised() && REQUESTERS.load(SeqCst) == 0
}

/// While this lives, a signal does not end requests to a store.
pub struct Requesting(());

/// Keeps requests to a store going after a signal, for a verb whose work goes on until somebody else ends it.
pub fn keep_requesting() -> Requesting {
    REQUESTERS.fetch_add(1, SeqCst);
    Requesting(())
}

impl Drop for Requesting {
    fn drop(&mut self) {
        REQUESTERS.fetch_sub(1, SeqCst);
    }
}

/// While this lives, signals go to a process, and do not end the program.
pub struct PassingOn(());

/// Passes signals on to `child`, also one that came a moment ago. The returned value must be dropped before `child` is
/// waited for.
pub fn pass_on_to(child: Pid) -> PassingOn {
    *PASSED_TO.lock().unwrap_or_else(PoisonError::into_inner) = child.as_raw_nonzero().get();
    if raised() {
        pass_on(FIRST.load(SeqCst));
    }
    PassingOn(())
}

impl Drop for PassingOn {
    fn drop(&mut self) {
        *PASSED_TO.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    }
}

/// Whether there is a process that signals are passed on to.
pub fn is_passed_on() -> bool {
    *PASSED_TO.lock().unwrap_or_else(PoisonError::into_inner) != 0
}

/// Sends the signal to the process that signals are passed on to; returns false where there is none.
pub fn pass_on(signal: i32) -> bool {
    let to = PASSED_TO.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(to) = Pid::from_raw(*to) else {
        return false;
    };
    let signal = match signal {
        SIGINT => Signal::INT,
        SIGHUP => Signal::HUP,
        _ => Signal::TERM,
    };
    let _ = kill_process(to, signal);
    true
}

/// Runs a prompt that turns the echo off; a signal in between turns it on again.
pub fn guard_terminal<T>(prompt: impl FnOnce() -> T) -> T {
    let terminal = std::fs::File::open("/dev/tty")
        .ok()
        .and_then(|tty| tcgetattr(&tty).ok());
    *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = terminal;
    let answer = prompt();
    *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = None;
    answer
}

/// Turns the echo on again where a prompt has turned it off.
pub fn restore_terminal() {
    let saved = TERMINAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let (Some(saved), Ok(tty)) = (saved, std::fs::File::open("/dev/tty")) {
        let _ = tcsetattr(&tty, OptionalActions::Now, &saved);
        let _ = writeln!(std::io::stderr());
    }
}
