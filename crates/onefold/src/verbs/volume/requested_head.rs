//! The volume or snapshot that a request names, and how an answer describes it.

use onefold_volume::depot::Head;
use onefold_volume::{Depot, Error as VolumeError, Result};
use serde_json::{Value, json};

/// The volume or snapshot that a request names.
pub fn named(depot: &Depot, request: &Value) -> Result<Head> {
    let volume = request["volume"].as_str();
    let Some(snapshot) = request["snapshot"].as_str() else {
        return depot.head(volume);
    };
    let volume = match volume {
        Some(volume) => volume.to_owned(),
        None => first_volume_of(depot, snapshot)?,
    };
    depot.head(Some(&format!("{volume}@{snapshot}")))
}

/// Name of the volume whose snapshot is meant where none is named: the first one that is there, or else any that has a
/// snapshot of this name.
fn first_volume_of(depot: &Depot, snapshot: &str) -> Result<String> {
    let heads = depot.heads();
    let volume = heads.iter().find(|head| head.is_writable);
    let has = |volume: &str| {
        let name = format!("{volume}@{snapshot}");
        heads.iter().any(|head| head.name == name)
    };
    if let Some(volume) = volume.filter(|volume| has(&volume.name)) {
        return Ok(volume.name.clone());
    }
    let end = format!("@{snapshot}");
    let found = heads.iter().find_map(|head| head.name.strip_suffix(&end));
    found
        .map(str::to_owned)
        .ok_or_else(|| VolumeError::Invalid {
            what: format!(
                "the depot has no snapshot {snapshot}: `onefold volume list DEPOT` lists them"
            ),
        })
}

/// A head as JSON.
pub fn shown(head: &Head) -> Value {
    json!({
        "name": head.name,
        "bytes": head.bytes,
        "writable": head.is_writable,
        "created": head.created,
    })
}
