//! The workspace's folder, and the source files in it.

use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Rust files of the workspace, and of `rivals` beside it.
pub fn sources(root: &Path) -> Vec<PathBuf> {
    let folders = ["bench", "crates", "fuzz", "rivals/src", "xtask"];
    let mut found: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| files_below(&root.join(folder), "rs"))
        .collect();
    found.sort();
    found
}

/// Files below a folder whose names end with `extension`, without builds, test data and folders that begin with a dot.
pub fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                let is_ours = !name.starts_with('.') && name != "target" && name != "testdata";
                folders.extend(is_ours.then_some(path));
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
