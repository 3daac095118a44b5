//! Groups of snapshots for people and JSON, as `--group-by` asks: by host, by paths, by tags.

use onefold_backup::forget::{GroupBy, GroupKey};
use onefold_backup::snapshots::Brief;
use onefold_store::Repository;
use serde_json::{Value, json};

use crate::error::Result;
use crate::{lossless, out, paths};

/// Parses `--group-by`. Errors: a sentence for the user.
pub fn parse(text: &str) -> Result<GroupBy, String> {
    GroupBy::parse(text).map_err(|e| e.to_string())
}

/// Whether all snapshots are one group.
pub fn is_one(by: GroupBy) -> bool {
    !(by.host || by.paths || by.tags)
}

/// Returns the properties that the snapshots of a group share; `None` where all of them were forgotten meanwhile.
pub fn key(repository: &Repository, group: &[Brief], by: GroupBy) -> Result<Option<GroupKey>> {
    for brief in group {
        if let Some(named) = brief.whole(repository)? {
            return Ok(Some(GroupKey::of(&named.snapshot, by)));
        }
    }
    Ok(None)
}

/// Returns restic's `group_key`.
pub fn json(by: GroupBy, key: &GroupKey) -> Value {
    let paths = key
        .paths
        .iter()
        .map(|path| paths::json(path))
        .collect::<Vec<_>>();
    let mut group = json!({
        "hostname": key.host,
        "paths": by.paths.then_some(paths),
        "tags": by.tags.then_some(&key.tags),
    });
    if let Some(all) = lossless::base64_of_all(&key.paths) {
        group["paths_base64"] = json!(all);
    }
    group
}

/// Returns the key for people: `host a, paths /b, /c`.
pub fn shown(by: GroupBy, key: &GroupKey) -> String {
    let mut words = Vec::new();
    if by.host {
        words.push(format!("host {}", out::safe(&key.host)));
    }
    if by.paths {
        let shown: Vec<_> = key.paths.iter().map(|path| paths::shown(path)).collect();
        words.push(format!("paths {}", shown.join(", ")));
    }
    if by.tags {
        words.push(format!("tags [{}]", out::safe(&key.tags.join(", "))));
    }
    if words.is_empty() {
        "all".into()
    } else {
        words.join(", ")
    }
}
