//! Block devices that the kernel knows.

use std::fs;
use std::path::Path;

/// The kernel's list of them.
const CLASS: &str = "/sys/class/block";

/// Paths of the block devices that hold something and that no other one is built on: the parts of a RAID or of a
/// multipath device have the same bytes as the whole, and are left out.
pub fn topmost_block_devices() -> Vec<String> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter(|entry| is_topmost(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        // The kernel writes a slash in a name as that.
        .map(|name| format!("/dev/{}", name.replace('!', "/")))
        .collect();
    found.sort();
    found
}

fn is_topmost(folder: &Path) -> bool {
    let is_empty = fs::read_to_string(folder.join("size")).is_ok_and(|size| size.trim() == "0");
    let has_holder = fs::read_dir(folder.join("holders")).is_ok_and(|mut it| it.next().is_some());
    !is_empty && !has_holder
}
