//! Folders for what tests fetch once and keep: outside of the workspace, so that a clean build keeps them.

use std::path::PathBuf;

/// The folder with this name; `None` where the user has no cache folder.
pub fn folder(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = cache.filter(|it| it.is_absolute()).or_else(home)?;
    Some(cache.join("onefold-tests").join(name))
}
