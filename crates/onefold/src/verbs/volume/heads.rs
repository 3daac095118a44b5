//! Requests about volumes and snapshots, of a daemon or of a depot that is opened for it.

use onefold_volume::{Depot, Result};
use serde_json::{Value, json};

use super::changes;
use super::requested_head::{named, shown};
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

/// Returns the time in seconds since 1970.
pub fn now() -> u64 {
    u64::try_from(when::now().secs).unwrap_or(0)
}
