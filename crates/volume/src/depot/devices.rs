//! Opening the devices of a depot: by their paths, and else by what their heads say. The system gives a disk another
//! name when it finds its disks in another order.

use std::path::Path;
use std::sync::Arc;

use onefold_io::{DirectDisk, Disk, ErrorKind, FileDisk, topmost_block_devices};

use crate::{Error, Result};

/// How a device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For reading and writing, and for this opener alone for as long as the disk is there.
    Alone,
    /// For reading, beside its owner.
    Beside,
}

/// Opens a device or file by its path: what a simulation replaces.
pub type OpenDevice = Arc<dyn Fn(&str, Access) -> onefold_io::Result<Arc<dyn Disk>> + Send + Sync>;

/// Devices of the system, read and written past the page cache where that can be.
pub fn system_devices() -> OpenDevice {
    Arc::new(|path, access| {
        let disk = match access {
            Access::Alone => FileDisk::open_alone(Path::new(path)),
            Access::Beside => FileDisk::open(Path::new(path)),
        }?;
        Ok(match DirectDisk::over(disk) {
            Ok(direct) => Arc::new(direct) as Arc<dyn Disk>,
            Err(cached) => Arc::new(cached),
        })
    })
}

/// Where a depot's device is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LookedFor {
    /// At its path, and nowhere else.
    AtItsPath,
    /// Where there is none at its path, or another one: among all block devices of this host.
    Everywhere,
}

/// Opens the device of a depot at `path`, or wherever it is by now: that which `check` takes for the depot's own.
///
/// # Errors
/// Those of `open` and `check` for `path`; [`Error::Unsupported`] where several others are the depot's.
pub(super) fn open_own(
    open: &OpenDevice,
    (path, place): (&str, LookedFor),
    access: Access,
    check: impl Fn(&dyn Disk, &str) -> Result<()>,
) -> Result<Arc<dyn Disk>> {
    let open_at = |path: &str, access| {
        let disk = open(path, access)?;
        check(&*disk, path)?;
        Ok(disk)
    };
    let error = match open_at(path, access) {
        Err(error) if place == LookedFor::Everywhere && is_elsewhere(&error) => error,
        opened => return opened,
    };
    let others = topmost_block_devices().into_iter();
    let own: Vec<String> = others
        .filter(|other| other != path && open_at(other, Access::Beside).is_ok())
        .collect();
    match &own[..] {
        [] => Err(error),
        [one] => open_at(one, access),
        several => Err(Error::Unsupported {
            what: format!(
                "{path} is not the depot's device any more, and {} are: take away those that are copies",
                several.join(" and ")
            ),
        }),
    }
}

/// Whether the error of an opening says that the depot's device is not at that path.
fn is_elsewhere(error: &Error) -> bool {
    match error {
        Error::Unsupported { .. } | Error::Damaged { .. } => true,
        Error::Io(error) => error.kind == ErrorKind::NotFound,
        _ => false,
    }
}
