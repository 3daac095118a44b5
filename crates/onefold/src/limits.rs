//! Limits on threads and address space that the system sets (`ulimit`, a container's pids limit, `TasksMax`): what they
//! end is an error, no panic.

use std::io::Write;
use std::panic::PanicHookInfo;

use crate::exit::Exit;
use crate::{json, progress};

/// From here on a thread that cannot be started ends the program with an error. That is safe at any byte.
pub fn install() {
    // before the command line is understood: what it is asked for may need a thread already
    let json =
        std::env::args_os().any(|argument| argument == "--json" || argument == "--json=true");
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match is_of_a_limit(info) {
        true => leave(json),
        false => others(info),
    }));
}

/// The words of the standard library, and of the pool that key derivation asks for.
fn is_of_a_limit(info: &PanicHookInfo<'_>) -> bool {
    let said = info.payload_as_str().unwrap_or_default();
    said.contains("failed to spawn thread") || said.contains("ThreadPoolBuildError")
}

fn leave(json: bool) -> ! {
    let what = "no thread can be started: this process or its user may have no more (ulimit -u, a container's pids limit, TasksMax), or no more memory (ulimit -v)";
    progress::line::abandon();
    let said = match json {
        true => json::line(&json::ExitError::new(Exit::Failed, what)),
        false => format!("onefold: {what}"),
    };
    let _ = writeln!(std::io::stderr(), "{said}");
    std::process::exit(Exit::Failed.code().into())
}
