//! The names that a folder accepts, the same in every [`Dir`](crate::Dir).

use crate::{Error, ErrorKind, Result};

/// The longest name in bytes, as on Linux file systems.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Refuses names that could leave the folder (`/`, `.`, `..`) or that file systems refuse.
pub(crate) fn check_name(op: &'static str, folder: &str, name: &str) -> Result<()> {
    let bad = name.is_empty()
        || name == "."
        || name == ".."
        || name.len() > NAME_BYTES_MAX
        || name.contains(['/', '\0']);
    if bad {
        return Err(Error::new(
            op,
            folder,
            ErrorKind::Denied,
            format!("{name:?} is not a name within a folder"),
        ));
    }
    Ok(())
}

/// `folder/name`, as shown in errors.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}
