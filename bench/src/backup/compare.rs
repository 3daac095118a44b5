//! Comparing a restored tree with its source: names, kinds, sizes, permissions, link targets and every byte.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

const BUFFER_BYTES: usize = 1 << 17;
const THREADS: usize = 8;

/// The folder to which a tool has restored `source` when told to restore into `target`: some keep the whole path, some
/// its last name.
pub fn restored_root(source: &Path, target: &Path) -> PathBuf {
    let whole = target.join(source.strip_prefix("/").unwrap_or(source));
    let named = target.join(source.file_name().unwrap_or_default());
    [whole, named]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| target.to_path_buf())
}

/// Fails with one of the differences. Several folders are read at once: a cold tree of small files is read as fast as
/// the disk can.
pub fn same_trees(one: &Path, other: &Path) -> Result<(), String> {
    let shared = Mutex::new(TreeComparison {
        folders: vec![PathBuf::new()],
        busy: 0,
        found: Ok(()),
    });
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| work(one, other, &shared));
        }
    });
    shared.into_inner().expect("no thread panics").found
}

struct TreeComparison {
    folders: Vec<PathBuf>,
    /// Number of threads that may still find folders.
    busy: usize,
    found: Result<(), String>,
}

fn work(one: &Path, other: &Path, shared: &Mutex<TreeComparison>) {
    let mut buffers = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let mut held = shared.lock().expect("no thread panics");
        if held.found.is_err() || (held.folders.is_empty() && held.busy == 0) {
            return;
        }
        let Some(folder) = held.folders.pop() else {
            drop(held);
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        held.busy += 1;
        drop(held);
        let compared = same_folder(one, other, &folder, &mut buffers);
        let mut held = shared.lock().expect("no thread panics");
        held.busy -= 1;
        match compared {
            Ok(mut folders) => held.folders.append(&mut folders),
            Err(error) => held.found = Err(error),
        }
    }
}

/// Compares two folders; returns the folders within, which are still to be compared.
fn same_folder(
    one: &Path,
    other: &Path,
    folder: &Path,
    buffers: &mut (Vec<u8>, Vec<u8>),
) -> Result<Vec<PathBuf>, String> {
    let (here, there) = (names(&one.join(folder))?, names(&other.join(folder))?);
    let lacks = |names: &[OsString], name: &OsString| names.binary_search(name).is_err();
    let alone = here.iter().find(|name| lacks(&there, name));
    if let Some(name) = alone.or(there.iter().find(|name| lacks(&here, name))) {
        let path = folder.join(name);
        return Err(format!("{}: only on one side", path.display()));
    }
    let mut folders = Vec::new();
    for name in here {
        let path = folder.join(name);
        if same_entry(&one.join(&path), &other.join(&path), buffers)
            .map_err(|error| format!("{}: {error}", path.display()))?
        {
            folders.push(path);
        }
    }
    Ok(folders)
}

fn names(folder: &Path) -> Result<Vec<OsString>, String> {
    let read = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()));
    let mut names: Vec<_> = read?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    Ok(names)
}

/// Compares two entries; returns whether they are folders.
fn same_entry(one: &Path, other: &Path, buffers: &mut (Vec<u8>, Vec<u8>)) -> Result<bool, String> {
    let stat = |path: &Path| std::fs::symlink_metadata(path).map_err(|error| error.to_string());
    let (here, there) = (stat(one)?, stat(other)?);
    let mode = |metadata: &Metadata| metadata.permissions().mode();
    if mode(&here) != mode(&there) {
        return Err(format!("mode {:o} and {:o}", mode(&here), mode(&there)));
    }
    if here.is_symlink() {
        let target = |path: &Path| std::fs::read_link(path).map_err(|error| error.to_string());
        return if target(one)? == target(other)? {
            Ok(false)
        } else {
            Err("link targets differ".into())
        };
    }
    if here.is_file() {
        if here.len() != there.len() {
            return Err(format!("{} and {} bytes", here.len(), there.len()));
        }
        same_bytes(one, other, buffers).map_err(|error| error.to_string())?;
    }
    Ok(here.is_dir())
}

fn same_bytes(one: &Path, other: &Path, buffers: &mut (Vec<u8>, Vec<u8>)) -> std::io::Result<()> {
    let (mut here, mut there) = (File::open(one)?, File::open(other)?);
    let mut at = 0;
    loop {
        let len = here.read(&mut buffers.0)?;
        if len == 0 {
            return Ok(());
        }
        there.read_exact(&mut buffers.1[..len])?;
        if buffers.0[..len] != buffers.1[..len] {
            return Err(std::io::Error::other(format!(
                "bytes from {at} on differ within {len}"
            )));
        }
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_by_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for root in [&one, &other] {
            std::fs::create_dir_all(root.join("sub")).expect("a folder");
            std::fs::write(root.join("sub/file"), b"same").expect("a file");
        }
        assert_eq!(same_trees(&one, &other), Ok(()));
        std::fs::write(other.join("sub/file"), b"sbme").expect("a file");
        let error = same_trees(&one, &other).expect_err("they differ");
        assert!(error.starts_with("sub/file: bytes"), "{error}");
        std::fs::write(one.join("more"), b"").expect("a file");
        let error = same_trees(&one, &other).expect_err("they differ");
        assert_eq!(error, "more: only on one side");
    }
}
