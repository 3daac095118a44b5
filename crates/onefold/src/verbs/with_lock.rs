//! `onefold with-lock`: runs a command while nothing is deleted from the repository, so that its files can be copied.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::out::{self, Out};
use crate::patience::Patience;
use crate::{repository, signal};

/// Exit codes of shells, `env` and `timeout` where a command is not there, or cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Run a command while no prune and no repair deletes anything, to copy the repository
///
/// Backups may run meanwhile, so copy the folder snapshots first, then all the rest. No password is needed. Several may
/// copy at once. It ends with the command's exit code (128 and the signal's number, where a signal ended it, 126 or 127
/// where it cannot be run), or with 11 where a prune or repair is running already; and with 1 where the lock was lost
/// meanwhile and the command was content. Signals are passed on to the command.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The command and its arguments; options of onefold stand in front of it
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let place = repository::place(global)?;
    // From here on no signal leaves the command alone without the lock.
    let _listening = signal::listen();
    let _requesting = signal::keep_requesting();
    let still = Patience::new(global, out).keep(|| repository::hold_still(&place, global))?;
    let ended = run_command(&args.command, out);
    let let_go = still.finish();
    match (ended?, let_go) {
        (exit, Ok(())) => Ok(exit),
        (Exit::OfCommand(0), Err(lost)) => Err(lost.into()),
        (exit, Err(lost)) => {
            out.warn(out::safe(&lost.to_string()));
            Ok(exit)
        }
    }
}

fn run_command(command: &[OsString], out: &Out) -> Result<Exit> {
    let [program, args @ ..] = command else {
        return Err(Error::Usage("with-lock needs a command".into()));
    };
    if signal::raised() {
        return Ok(Exit::Interrupted);
    }
    let child = match Command::new(program).args(args).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = program.to_string_lossy();
            let program = out::safe(&program);
            out.warn(format_args!("{program} cannot be started: {error}"));
            return Ok(Exit::OfCommand(match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_RUN,
            }));
        }
    };
    let status = wait(child).map_err(|e| Error::io("wait for the command".to_owned(), e))?;
    Ok(Exit::OfCommand(code_of(status)))
}

/// Waits for the command, and passes signals on to it as long as it has its process number.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    let passing = signal::pass_on_to(Pid::from_child(&child));
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&child)), ended))?;
    drop(passing);
    child.wait()
}

/// Returns the exit code as shells give it.
fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(i32::from(NOT_RUN));
    u8::try_from(code).unwrap_or(u8::MAX)
}
