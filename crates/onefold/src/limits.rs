//! Limits on threads and address space that the system sets (`ulimit`, a container's pids limit, `TasksMax`): reaching
//! one is an error, not a panic.

use std::io::Write;
use std::panic::PanicHookInfo;

use onefold_store::NO_RANDOMNESS;

use crate::exit::Exit;
use crate::json::message;
use crate::progress::line;

/// Makes a thread that cannot be started, and a random number that the system does not give, end the program with an
/// error from here on. That is safe at any byte.
pub fn install() {
    // this comes before the command line is parsed, which may need a thread already
    let json =
        std::env::args_os().any(|argument| argument == "--json" || argument == "--json=true");
    onefold_io::tell_out_of_memory(format!("{}\n", said(NO_MEMORY, json)));
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match what_is_missing(info) {
        Some(what) => leave(what, json),
        None => others(info),
    }));
}

/// Returns the resource that the system does not give, known by the words of the standard library, of the thread pool
/// of key derivation, and of `onefold_store::Entropy`.
fn what_is_missing(info: &PanicHookInfo<'_>) -> Option<&'static str> {
    let said = info.payload_as_str().unwrap_or_default();
    let is_any = |words: &[&str]| words.iter().any(|words| said.contains(words));
    if is_any(&["failed to spawn thread", "ThreadPoolBuildError"]) {
        return Some(NO_THREAD);
    }
    // Panics of the standard library, which seeds its hash tables, and of our own code where it cannot return errors.
    is_any(&["failed to generate random data", NO_RANDOMNESS]).then_some(NO_RANDOMNESS)
}

const NO_MEMORY: &str = "there is no more memory: this process may have no more (ulimit -v, a container's limit), or the machine has none; what was acknowledged is intact. Less is needed with --threads 1 and a smaller --ram";

const NO_THREAD: &str = "no thread can be started: this process or its user may have no more (ulimit -u, a container's pids limit, TasksMax), or no more memory (ulimit -v)";

fn said(what: &str, json: bool) -> String {
    if json {
        message::line(&message::ExitError::new(Exit::Failed, what))
    } else {
        format!("onefold: {what}")
    }
}

fn leave(what: &str, json: bool) -> ! {
    line::abandon();
    let _ = writeln!(std::io::stderr(), "{}", said(what, json));
    std::process::exit(Exit::Failed.code().into())
}
