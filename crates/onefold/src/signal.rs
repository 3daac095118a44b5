//! Signals. SIGUSR1 asks for the progress. SIGINT, SIGTERM and SIGHUP end the program; SIGHUP only where it was not
//! ignored at the start, as by `nohup`. A verb that can stop cleanly announces it and is asked to stop; everything else
//! ends at once, which is safe at any byte: the next process recognises what a killed one leaves behind. A second
//! signal always ends the program at once; signals that come together count as one, since `timeout` sends each to its
//! child, and to the child's whole group. While a command runs that must not be left alone (`with-lock`), all signals
//! go to the command, and the program ends with it.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// Longest time from the first signal on that a verb may take to stop cleanly.
const LISTENING_MAX: Duration = Duration::from_secs(30);

/// Time within which signals count as one.
const TOGETHER: Duration = Duration::from_millis(200);

static RAISED: AtomicBool = AtomicBool::new(false);
/// Whether a signal is ending the program now.
static LEAVING: AtomicBool = AtomicBool::new(false);
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

/// Catches signals: from here on none ends the program before [`listen_to`] is called. Must be called once, before
/// anything else.
pub fn catch() -> Option<Signals> {
    let caught = Signals::new([SIGTERM, SIGINT, SIGUSR1]).ok()?;
    if !ignores(SIGHUP) {
        let _ = caught.handle().add_signal(SIGHUP);
    }
    // A size limit is an error of the write that reaches it (EFBIG), not the end of the program.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    Some(caught)
}

/// Starts listening, also to signals that have come already. Must be called once, before any other thread is started.
pub fn listen_to(caught: Option<Signals>) {
    let Some(mut signals) = caught else {
        return;
    };
    std::thread::spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                ASKED.store(true, SeqCst);
                continue;
            }
            let _ = FIRST.compare_exchange(0, signal, SeqCst, SeqCst);
            RAISED.store(true, SeqCst);
            if pass_on(signal) {
                continue;
            }
            let is_second = first.is_some();
            let first = *first.get_or_insert_with(Instant::now);
            if is_second && first.elapsed() <= TOGETHER {
                continue;
            }
            if is_second || LISTENERS.load(SeqCst) == 0 {
                leave();
            }
            // A verb that listens may wait for a lock that a stopped process holds, or for a device that is gone.
            std::thread::spawn(|| {
                std::thread::sleep(LISTENING_MAX);
                if *PASSED_TO.lock().unwrap_or_else(PoisonError::into_inner) == 0 {
                    leave();
                }
            });
        }
    });
}

fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.unwrap_or_default().trim(), 16);
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Ends the program now.
pub fn leave() -> ! {
    LEAVING.store(true, SeqCst);
    restore_terminal();
    crate::interrupted::tell();
    crate::site::leave_all();
    std::process::exit(Exit::Interrupted.code().into())
}

/// Never returns where a signal is ending the program: what fails from then on fails because of that.
pub fn let_end() {
    while LEAVING.load(SeqCst) {
        std::thread::park();
    }
}

/// Whether a signal has come since the program began.
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

/// Sends the signal to the process that signals are passed on to; returns false where there is none.
fn pass_on(signal: i32) -> bool {
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

fn restore_terminal() {
    let saved = TERMINAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let (Some(saved), Ok(tty)) = (saved, std::fs::File::open("/dev/tty")) {
        let _ = tcsetattr(&tty, OptionalActions::Now, &saved);
        let _ = writeln!(std::io::stderr());
    }
}
