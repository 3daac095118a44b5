//! Advice against damage. A check advises a repair only for what a repair mends; damage that a repair has left, and a
//! check finds again, comes with advice on how to restore or drop the damaged thing. So users are not sent back and
//! forth between the two.

use onefold_store::slots::SLOT_FOLDER;
use onefold_store::{CheckReport, Error as StoreError};

use crate::hurt::Hurts;

/// Advice for damage that a repair mends.
pub const REPAIR: &str =
    "`onefold repair` reads everything, rebuilds what can be rebuilt, and lists what cannot";

/// Advice for a missing folder of the repository.
pub const MISSING_FOLDER: &str = "put the folder back from where it was moved to, or from a copy of the repository. Do not make an empty one: a prune would then delete what is still there \
     (only where nothing was ever stored does `onefold repair` make it)";

/// Advice for a snapshot's own object.
pub const SNAPSHOT: &str = "neither a repair nor a backup brings back a snapshot whose own file in `snapshots` is damaged: put that file back from a copy of the repository, or drop the snapshot \
     (`onefold forget ID`)";

/// Advice for all keys.
pub const KEYS: &str = "a key is what nothing can make again: put the folder `keys` back from a copy of the repository";

/// Advice for one key.
pub const KEY: &str = "a key is what nothing can make again: put the file back from a copy of the repository, or, if there is another key, give its password";

/// Advice for the configuration.
pub const CONFIGURATION: &str = "with encryption, each key slot has a copy: `onefold repair` writes the file anew where `config` and `config.copy` cannot be read or are not this repository's. Without, put it back from a copy of the \
     repository, or from a new one that was made with the same choices (`onefold init --encryption none`, --chunker, --chunk-size, --index)";

/// Advice for a key of a repository that another key opens.
const OTHER_KEY: &str = "a key that cannot be read is dropped by `onefold key remove ID`; `onefold key add` makes a new one";

/// Advice for chunks that are nowhere.
const LOST: &str = "back up the same files again while they are there: that heals whatever has not changed since. `onefold repair snapshots --forget` puts what is left of the snapshots that stay hurt in their place";

/// Advice for bytes that a device does not give.
const UNREADABLE: &str = "what the device does not give now may come at the next try, or over another cable: give nothing up before";

/// Returns advice for damage that no repair mends, a line for each kind.
pub fn of_what_is_left(report: &CheckReport, hurts: Hurts) -> Option<String> {
    let any = |is: fn(&StoreError) -> bool| report.damage.iter().any(is);
    let is_folder = |error: &StoreError| matches!(error, StoreError::MissingFolder { .. });
    let is_key = |error: &StoreError| {
        let object = error.damaged_object().and_then(|it| it.split_once('/'));
        object.is_some_and(|(folder, _)| folder == SLOT_FOLDER)
    };
    let kinds = [
        (any(StoreError::is_unreadable), UNREADABLE),
        (any(is_folder), MISSING_FOLDER),
        (hurts.unread > 0, SNAPSHOT),
        (hurts.count() > hurts.unread, LOST),
        (any(is_key), OTHER_KEY),
    ];
    let found: Vec<&str> = kinds
        .into_iter()
        .filter_map(|(is_found, helps)| is_found.then_some(helps))
        .collect();
    (!found.is_empty()).then(|| found.join("\n"))
}
