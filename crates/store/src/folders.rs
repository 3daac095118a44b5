//! Names of the folders of a repository, each beside what lies in it.

/// The folder of the fingerprint index.
pub const INDEX_FOLDER: &str = "index";
/// The folder of all roots.
pub const ROOT_FOLDER: &str = "snapshots";
/// The folder of all slots.
pub const SLOT_FOLDER: &str = "keys";
/// The folder of all containers: a folder of folders, one for each first byte.
pub const CONTAINER_FOLDER: &str = "containers";
/// The folder of all lists.
pub const CONDEMNED_FOLDER: &str = "condemned";
/// The folder of all pins.
pub const PIN_FOLDER: &str = "sessions";
/// The folder of all locks.
pub const LOCKS_FOLDER: &str = "locks";
