//! A snapshot of a volume as the source of a backup: `volume:DEPOT[:VOLUME]@SNAPSHOT`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use onefold_backup::backup::Input;
use serde_json::json;

use super::ask::ask;
pub use super::changes::BackgroundReading;
use super::changes::ChangedVolume;
use super::head_name::HeadName;
use crate::error::{Error, Result};

const PREFIX: &[u8] = b"volume:";

/// Returns the snapshot that a source names; `None`: the source is a path.
///
/// # Errors
/// There is no such depot or snapshot.
pub fn input(source: &OsStr) -> Result<Option<(Input, BackgroundReading)>> {
    let Some(name) = source.as_bytes().strip_prefix(PREFIX) else {
        return Ok(None);
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let Ok(name) = name.parse::<HeadName>();
    if name.snapshot.is_none() {
        return Err(Error::Usage(format!(
            "{} names no snapshot, and a volume changes meanwhile: run `onefold volume snapshot {}@NAME`, and give that",
            name.shown(),
            name.shown()
        )));
    }
    let request = json!({"volume": name.volume, "snapshot": name.snapshot});
    let found = ask(&name.depot, "find", request.clone())?;
    let full = found["name"].as_str().unwrap_or_default();
    let volume = full.split('@').next().unwrap_or_default();
    let depot = name
        .depot
        .canonicalize()
        .map_err(|error| Error::io(format!("open {}", name.depot.display()), error))?;
    let path = depot.join(volume).as_os_str().as_bytes().to_vec();
    let reading = BackgroundReading::default();
    let device = ChangedVolume {
        depot,
        request,
        outcome: reading.clone(),
    };
    Ok(Some((Input::Device(Box::new(device), path), reading)))
}
