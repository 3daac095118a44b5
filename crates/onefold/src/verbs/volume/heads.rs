//! Requests about volumes and snapshots, of a daemon or of a depot that is opened for it.

use onefold_volume::depot::Head;
use onefold_volume::{Depot, Error as VolumeError, Result};
use serde_json::{Value, json};

use super::changes;
use crate::when;

/// Carries one out; `None`: there is no such request.
pub fn handle(depot: &Depot, what: &str, request: &Value) -> Option<Result<Value>> {
    let text = |name: &str| request[name].as_str();
    let name = text("name").unwrap_or_default();
    Some(match what {
        "find" => named(depot, request).map(|head| shown(&head)),
        "changes" => changes::describe(depot, request),
        "volumes" => Ok(depot.heads().iter().map(shown).collect()),
        "snapshot" => depot
            .snapshot(text("volume"), text("snapshot").unwrap_or_default(), now())
            .map(|head| shown(&head)),
        "clone" => named(depot, request).and_then(|from| {
            let made = depot.clone_head(&from.name, name, now())?;
            Ok(shown(&made))
        }),
        "create" => depot
            .create_volume(name, request["bytes"].as_u64().unwrap_or(0), now())
            .map(|head| shown(&head)),
        "grow" => grow(depot, request),
        "delete" => named(depot, request).and_then(|head| {
            let deleted = depot.delete_head(&head.name)?;
            Ok(shown(&deleted))
        }),
        _ => return None,
    })
}

/// Room first: a larger volume may be filled at once.
fn grow(depot: &Depot, request: &Value) -> Result<Value> {
    let number = |name: &str| request[name].as_u64();
    let capacity = match number("capacity") {
        Some(bytes) => Some(depot.grow_capacity(bytes)?),
        None => None,
    };
    let volume = match number("bytes") {
        Some(bytes) => Some(shown(
            &depot.grow_volume(request["volume"].as_str(), bytes)?,
        )),
        None => None,
    };
    Ok(json!({"volume": volume, "capacity_bytes": capacity}))
}

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

/// Returns the time in seconds since 1970.
pub fn now() -> u64 {
    u64::try_from(when::now().secs).unwrap_or(0)
}
