//! The end of the program by a signal: the thread that takes signals, which asks a verb to stop or ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::exit::Exit;
use crate::{interrupted, signal, site};

/// Longest time from the first signal on that a verb may take to stop cleanly.
const LISTENING_MAX: Duration = Duration::from_secs(30);

/// Time within which signals count as one.
const TOGETHER: Duration = Duration::from_millis(200);

/// Whether a signal is ending the program now.
static LEAVING: AtomicBool = AtomicBool::new(false);

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
            signal::note(signal);
            if signal == SIGUSR1 || signal::pass_on(signal) {
                continue;
            }
            let is_second = first.is_some();
            let first = *first.get_or_insert_with(Instant::now);
            if is_second && first.elapsed() <= TOGETHER {
                continue;
            }
            if is_second || !signal::is_listened_to() {
                leave();
            }
            // A verb that listens may wait for a lock that a stopped process holds, or for a device that is gone.
            std::thread::spawn(|| {
                std::thread::sleep(LISTENING_MAX);
                if !signal::is_passed_on() {
                    leave();
                }
            });
        }
    });
}

/// Ends the program now.
pub fn leave() -> ! {
    LEAVING.store(true, SeqCst);
    signal::restore_terminal();
    interrupted::tell();
    site::leave_all();
    std::process::exit(Exit::Interrupted.code().into())
}

/// Never returns where a signal is ending the program: what fails from then on fails because of that.
pub fn let_end() {
    while LEAVING.load(SeqCst) {
        std::thread::park();
    }
}

fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.unwrap_or_default().trim(), 16);
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
