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

use crate::cli::Verb;
use crate::exit::Exit;
use crate::{json, progress};

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

/// Notes that a signal interrupts `verb` from here on.
pub fn begin(verb: &Verb, json: bool) {
    let (verb, aftermath) = describe(verb);
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
        match IS_UNMADE.load(SeqCst) {
            true => "no repository was made, and nothing is stored; run it again",
            false => self.aftermath,
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
    progress::line::abandon();
    let said = if running.json {
        json::line(&json::ExitError::new(Exit::Interrupted, &headline()))
    } else {
        format!("onefold: {}\n         {}", headline(), running.aftermath())
    };
    // This takes no lock, which the interrupted thread may hold for ever. Errors do not matter: the terminal may be
    // gone.
    if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
        let _ = File::from(stderr).write_all(format!("{said}\n").as_bytes());
    }
}

fn describe(verb: &Verb) -> (&'static str, &'static str) {
    match verb {
        Verb::Backup(args) if args.dry_run => ("backup --dry-run", NOTHING),
        Verb::Backup(_) => ("backup", BACKUP),
        Verb::Restore(args) if args.dry_run => ("restore --dry-run", NOTHING),
        Verb::Restore(_) => ("restore", RESTORE),
        Verb::Prune(args) if args.dry_run => ("prune --dry-run", NOTHING),
        Verb::Prune(_) => ("prune", PRUNE),
        Verb::Forget(args) if args.dry_run => ("forget --dry-run", NOTHING),
        Verb::Forget(_) => ("forget", FORGET),
        Verb::Check(_) => ("check", CHECK),
        Verb::Repair(_) => ("repair", REPAIR),
        Verb::Init(_) => ("init", INIT),
        Verb::Tag(_) => ("tag", TAG),
        Verb::Key(_) => ("key", KEY),
        Verb::Dump(_) => ("dump", DUMP),
        Verb::Snapshots(_) => ("snapshots", NOTHING),
        Verb::Ls(_) => ("ls", NOTHING),
        Verb::Find(_) => ("find", NOTHING),
        Verb::Diff(_) => ("diff", NOTHING),
        Verb::Stats(_) => ("stats", NOTHING),
        Verb::Estimate(_) => ("estimate", NOTHING),
        Verb::List(_) => ("list", NOTHING),
        Verb::Mount(_) => ("mount", NOTHING),
        Verb::Copy(_) => ("copy", COPY),
        Verb::Sync(_) => ("sync", SYNC),
        Verb::Cache(_) => ("cache", CACHE),
        Verb::Cat(_) => ("cat", NOTHING),
        Verb::Unlock(_) => ("unlock", NOTHING),
        Verb::WithLock(_) => ("with-lock", WITH_LOCK),
        Verb::Volume(args) if args.what.changes_nothing() => ("volume", NOTHING),
        Verb::Volume(_) => ("volume", VOLUME),
        Verb::Version(_) => ("version", NOTHING),
        Verb::Completions(_) => ("completions", NOTHING),
        Verb::Doctor(_) => ("doctor", NOTHING),
        Verb::Man(_) => ("man", NOTHING),
    }
}

const NOTHING: &str = "it changes nothing; run it again";
const BACKUP: &str = "older snapshots are as they were, and `onefold snapshots` shows whether this one was just saved; if not, run it again: what was stored so far is not stored a second time";
const RESTORE: &str = "the repository is as it was, the target has a part of the files; run it again to have all of them (with `--overwrite never` what is whole stays)";
const PRUNE: &str = "every snapshot is whole: nothing is deleted before what is needed of it was stored elsewhere; run it again to finish what it began";
const FORGET: &str = "a part of the snapshots may be gone, the others are whole; `onefold snapshots` lists them, and running it again drops the rest";
const CHECK: &str = "it changes nothing, and what it did not come to is unchecked; run it again to check everything";
const REPAIR: &str = "nothing is deleted before what can be saved of it was stored elsewhere; run it again, and `onefold check` afterwards";
const INIT: &str = "whether there is a repository is for `onefold snapshots` to say; if there is none, run it again";
const TAG: &str = "each snapshot has either its old tags or its new ones; `onefold snapshots` shows which, and running it again does the rest";
const KEY: &str =
    "no key is lost but one that was to be removed; `onefold key list` shows which there are";
const DUMP: &str = "what was written ends in the middle; the repository is as it was";
const COPY: &str = "the snapshots that were copied are whole; run it again to copy the others: what is stored of them is not stored a second time";
const SYNC: &str =
    "the replica has the snapshots that it had; run it again, and it goes on where it was";
const CACHE: &str = "what was to be removed is removed or still there: both are fine";
const WITH_LOCK: &str = "the command was not run, and nothing is locked; run it again";
const VOLUME: &str =
    "what was flushed is on the disk; what was written since the last flush may be lost";
