//! A memory group of the system: processes in it share a limit that counts their page cache, too.
//!
//! A store that reads through the page cache then has no more RAM than one with a cache of its own. Groups of version 1
//! and 2; making one needs root.

use std::path::PathBuf;
use std::process::Command;

/// A group, removed when dropped.
pub struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Makes a new group with a limit.
    pub fn new(limit_bytes: u64) -> std::io::Result<MemoryGroup> {
        let (root, limit) = match PathBuf::from("/sys/fs/cgroup/memory") {
            version_1 if version_1.is_dir() => (within(version_1), "memory.limit_in_bytes"),
            _ => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let folder = root.join(format!("onefold-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let group = MemoryGroup { folder };
        std::fs::write(group.folder.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// A command that starts `command` in the group.
    pub fn start_in(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        inside.arg(self.folder.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        let set = command.get_envs();
        inside.envs(set.filter_map(|(name, value)| Some((name, value?))));
        inside
    }
}

/// The group of version 1 that this process is in, so that its limits stay in force.
fn within(root: PathBuf) -> PathBuf {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.split_once(":memory:"));
    let own = own.map(|(_, path)| root.join(path.trim_start_matches('/')));
    own.filter(|path| path.is_dir()).unwrap_or(root)
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // an empty group that stays does no harm
        std::fs::remove_dir(&self.folder).ok();
    }
}
