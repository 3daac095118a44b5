//! Creating folders so that a power cut does not take their names away.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::unless_interrupted;

/// Permissions of folders that are created.
pub(super) const DIR_MODE: Mode = Mode::RWXU;

/// Creates a folder and its missing parents, each name durable in the folder above.
pub(super) fn make_durably(path: &Path) -> io::Result<()> {
    let make = || {
        std::fs::DirBuilder::new()
            .mode(DIR_MODE.bits())
            .create(path)
    };
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return make(),
    };
    match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_durably(parent)?;
            make()?;
        }
        Err(_) if path.is_dir() => return Ok(()),
        made => made?,
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || rustix::fs::open(parent, flags, Mode::empty());
    let opened = unless_interrupted(open).map_err(io::Error::from);
    match opened.and_then(|parent| File::from(parent).sync_all()) {
        // The parent may be written to but not listed, or its file system needs no sync of folders.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}
