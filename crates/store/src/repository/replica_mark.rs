//! The mark of a replica: an object that keeps programs from writing into it.

use crate::objects::ObjectStore;
use crate::{Error, Result};

/// The object whose being there makes a place a replica. Its content is for people.
pub const REPLICA_OBJECT: &str = "replica";
pub(super) const REPLICA_TEXT: &[u8] =
    b"This is a replica of a repository, made by `onefold sync`. No other program writes here.\n\
To make it a repository of its own, which no sync changes any more, delete this file.\n";

/// Refuses whoever would write into a replica.
pub(crate) fn refuse(objects: &dyn ObjectStore) -> Result<()> {
    match objects.len(REPLICA_OBJECT) {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Option(
            "this is a replica, into which only `onefold sync` writes: use the repository that it is of, or delete its file `replica` to make it one of its own".into(),
        )),
    }
}
