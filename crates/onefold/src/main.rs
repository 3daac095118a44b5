//! The program: one file per verb in `verbs/`, and around them what all verbs share.
//!
//! ```text
//! cli ─▶ verbs/<verb> ─▶ repository (place, password) ─▶ engine
//!                    └─▶ out (results), progress (bar or JSON lines), error ─▶ exit code
//! ```
//!
//! Invariant: results go to standard output and everything else to standard error; an error is printed once, by
//! `main`; the clock, the host and the user are asked for here and passed down.
#![forbid(unsafe_code)]

mod advice;
mod aftermath;
#[cfg(feature = "remote")]
mod alone;
#[cfg(feature = "remote")]
mod bucket;
mod cli;
mod environment;
mod error;
mod exit;
mod from;
mod global;
mod group;
mod human;
mod hurt;
mod interrupted;
mod json;
mod leave_out;
mod leaving;
mod limits;
mod list_file;
mod lossless;
mod machine;
mod machine_cache;
mod named_file;
mod open_files;
mod out;
mod password;
mod paths;
mod patience;
mod patterns;
mod place;
mod progress;
mod remedy;
mod repository;
mod select;
mod short_id;
mod signal;
mod site;
mod spec;
mod sweeping;
mod traces;
mod verbs;
mod when;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::error::Error;
use crate::exit::Exit;
use crate::json::message::{self, ExitError};
use crate::out::Out;

/// Allocator that notes when the system has no memory, so that the program can report it.
#[global_allocator]
static HEAP: onefold_io::NotingHeap = onefold_io::NotingHeap;

fn main() -> ExitCode {
    let caught = leaving::catch();
    limits::install();
    open_files::allow_many();
    leaving::listen_to(caught);
    let arguments = cli::flags::as_typed(std::env::args_os());
    let mut cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let error = cli::advice::without_variables(error, &arguments);
            return misused(&cli::advice::without_guesses(error, &arguments), &arguments);
        }
    };
    if let verbs::Verb::Mount(_) = cli.verb {
        verbs::mount::limit_waiting(&mut cli.global);
    }
    interrupted::begin(aftermath::of(&cli.verb), cli.global.json);
    traces::listen(cli.global.json, cli.global.quiet, cli.global.verbosity());
    let out = Out::new(
        cli.global.json,
        cli.global.quiet,
        cli.global.verbosity(),
        cli.global.no_progress,
    );
    environment::warn_of_nonsense(&out);
    let done = cli::advice::confirm_meant(&arguments)
        .and_then(|()| verbs::run(&cli.verb, &cli.global, Cli::command, &out))
        .and_then(|exit| out.flush().map(|()| exit));
    leaving::let_end();
    let exit = match done {
        Ok(exit) => {
            tell(exit, &out);
            exit
        }
        Err(error) => {
            let _ = out.flush();
            fail(&machine_cache::blame_given_folder(error, &cli.global), &out)
        }
    };
    site::leave_all();
    ExitCode::from(exit.code())
}

/// Prints the error of the command line, or the help or version that it asks for.
fn misused(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let other = cli::advice::explain(error, arguments);
    let is_wrong = error.use_stderr() || other.is_some();
    let is_json = is_wrong && arguments.iter().any(|argument| argument == "--json");
    match &other {
        Some(text) if !is_json => {
            complain(&format!(
                "error: {text}\n\nFor more information, try '--help'."
            ));
            return ExitCode::from(Exit::Usage.code());
        }
        None if !is_json => error.exit(),
        _ => {}
    }
    let text = error.to_string();
    // The lines that follow are about usage in general.
    let what = text.split("\n\n").next().unwrap_or(&text).trim();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let what = other.as_deref().unwrap_or(what);
    complain(&message::line(&ExitError::new(Exit::Usage, what)));
    ExitCode::from(Exit::Usage.code())
}

/// Prints a line on standard error, if possible.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints the end of a verb that did not do everything, in JSON: the errors themselves were reported when they
/// occurred.
fn tell(exit: Exit, out: &Out) {
    let message = match exit {
        Exit::Incomplete => "some paths could not be read or written",
        Exit::NoSpace => "no space is left in the target",
        _ => return,
    };
    if out.json {
        out.note_json(&ExitError::new(exit, message));
    }
}

/// Prints the error; after an interruption only one thread prints it.
fn fail(error: &Error, out: &Out) -> Exit {
    let exit = error.exit();
    match error {
        Error::Closed => {}
        _ if exit == Exit::Interrupted => interrupted::once(|| explain(error, exit, out)),
        _ => explain(error, exit, out),
    }
    exit
}

/// Prints the error, its causes, and what to do next.
fn explain(error: &Error, exit: Exit, out: &Out) {
    if out.json {
        return out.note_json(&ExitError::new(exit, &chain(error)));
    }
    out.note(format_args!("onefold: {}", out::safe(&chain(error))));
    if let Some(advice) = error.advice() {
        for line in advice.lines() {
            out.note(format_args!("         {line}"));
        }
    }
}

/// Returns the error and its causes; for a verb that a signal ended, only that it was interrupted.
fn chain(error: &Error) -> String {
    match error.exit() {
        Exit::Interrupted => interrupted::headline(),
        _ => error.chain(),
    }
}
