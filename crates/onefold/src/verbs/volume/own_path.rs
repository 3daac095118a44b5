//! Errors about a depot, with the path that the user gave.

use std::path::Path;

use onefold_volume::Error as VolumeError;

/// Returns the error with the folder's own path.
pub fn naming(error: VolumeError, folder: &Path) -> VolumeError {
    let place = folder.display().to_string();
    match error {
        VolumeError::NoDepot { .. } => VolumeError::NoDepot { place },
        VolumeError::NoPassword { .. } => VolumeError::NoPassword { place },
        VolumeError::WrongPassword { .. } => VolumeError::WrongPassword { place },
        VolumeError::Held { place: held } if held == "the depot" => VolumeError::Held { place },
        VolumeError::Exists { what, place: found } if found == "the folder" => {
            VolumeError::Exists { place, what }
        }
        error => error,
    }
}
