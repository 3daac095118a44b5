//! The command line: one definition, from which help, man pages and completions come. Verbs and flags are spelled as
//! restic spells them wherever they mean the same. The flags of a verb stand in the verb's file.

pub mod advice;
pub mod cache;
pub mod flags;
pub mod names;
pub mod typed;

use clap::Parser;

use crate::global::Global;
use crate::verbs::Verb;

/// Deduplicating backup: every byte once
///
/// Onefold keeps snapshots of folders in a repository that stores every byte once, compressed and encrypted.
#[derive(Parser, Debug)]
#[command(
    name = "onefold",
    version,
    propagate_version = true,
    after_help = EXIT_CODES,
    max_term_width = 100,
    mut_args(typed::as_meant),
    mut_subcommands(typed::verb_as_meant)
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 some paths could not be read, 10 no repository \
or depot, 11 locked or in use, 12 wrong password, 13 damaged, 14 no space, 15 no answer, 16 the host lacks something, 130 interrupted

Environment: ONEFOLD_REPOSITORY, ONEFOLD_REPOSITORY_FILE, ONEFOLD_PASSWORD, ONEFOLD_PASSWORD_FILE, \
ONEFOLD_PASSWORD_COMMAND, ONEFOLD_FROM_REPOSITORY, ONEFOLD_FROM_REPOSITORY_FILE, ONEFOLD_FROM_PASSWORD, \
ONEFOLD_FROM_PASSWORD_FILE, ONEFOLD_FROM_PASSWORD_COMMAND, ONEFOLD_ENCRYPTION, ONEFOLD_COMPRESSION, ONEFOLD_HOST, ONEFOLD_READ_CONCURRENCY, \
ONEFOLD_IGNORE_CTIME, ONEFOLD_IGNORE_INODE, ONEFOLD_PROGRESS_FPS, ONEFOLD_LOG, TMPDIR, TZ

SIGUSR1 prints how far a backup or restore is";

#[cfg(test)]
mod pages;
#[cfg(test)]
mod restic;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
