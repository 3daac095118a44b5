//! The state that each verb leaves behind when a signal ends it, and what to do next.
//!
//! Invariant: the words are true wherever the signal came, since that place is not known.

use crate::verbs::Verb;

/// Returns the verb's name, and the state that is left behind with what to do next.
pub fn of(verb: &Verb) -> (&'static str, &'static str) {
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
const RESTORE: &str = "the repository is as it was, the target has a part of the files; run it again to have all of them (in a folder, `--overwrite never` keeps what is whole)";
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
