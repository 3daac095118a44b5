//! Catalogs that a sweep merges: small ones become few, so that a machine that is new to a repository reads few
//! objects.

use std::collections::HashSet;

use crate::Result;
use crate::index::catalog::{CATALOG_FOLDER, Catalog, decode, encode};
use crate::repository::RepositoryState;

/// A catalog of fewer bytes than this is small: 1 MiB.
const SMALL_BYTES: u64 = 1 << 20;
/// Number of small catalogs that are merged.
const SMALL_MAX: usize = 32;
/// Number of containers in a merged catalog, at most: some megabytes.
const MERGED_MAX: usize = 4096;

/// Puts one catalog in the place of many small ones, without containers that are gone. For a sweep, once it has
/// deleted.
///
/// # Errors
/// Failures of the store: all catalogs are still there, or some twice.
pub(super) fn merge(shared: &RepositoryState) -> Result<()> {
    let objects = &*shared.objects;
    let mut small = match objects.lengths_past(CATALOG_FOLDER, &mut Err) {
        Err(error) if error.is_not_found() => return Ok(()),
        listed => listed?,
    };
    small.retain(|(_, bytes)| *bytes < SMALL_BYTES);
    if small.len() < SMALL_MAX {
        return Ok(());
    }
    let (mut entries, mut merged) = (Vec::new(), Vec::new());
    for (object, _) in &small {
        match decode(&objects.get(object)?, &shared.keys, object) {
            // A later version's catalog is its own to merge.
            Err(error) if error.is_other_version() => continue,
            Err(error) if error.is_loss() => tracing::warn!("{error}"),
            // The entries of a sweep stay beside their sources.
            Ok(Catalog { sources, .. }) if !sources.is_empty() => continue,
            decoded => entries.extend(decoded?.entries),
        }
        merged.push(object.clone());
    }
    // Listed after the catalogs, which name only what was there before them.
    let live = shared.containers()?;
    entries.retain(|entry| live.binary_search(&entry.container).is_ok());
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.container));
    for some in entries.chunks(MERGED_MAX) {
        let object = format!(
            "{CATALOG_FOLDER}/{:016x}",
            shared.options.entropy.try_u64()?
        );
        let catalog = Catalog {
            sources: Vec::new(),
            entries: some.to_vec(),
        };
        let bytes = encode(&catalog, &shared.keys, &shared.options.entropy)?;
        objects.put_if_absent(&object, &[&bytes])?;
    }
    objects.delete_all(&merged)
}
