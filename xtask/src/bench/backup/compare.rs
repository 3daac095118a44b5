//! Is a restored tree the source? Names, kinds, sizes, permissions, link targets and every byte.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 17;

/// Where a tool that was told to restore `source` into `target` has put it: some keep the whole path, some its last name.
pub fn restored_root(source: &Path, target: &Path) -> PathBuf {
    let whole = target.join(source.strip_prefix("/").unwrap_or(source));
    let named = target.join(source.file_name().unwrap_or_default());
    [whole, named]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| target.to_path_buf())
}

/// Errs with the first difference.
pub fn same_trees(one: &Path, other: &Path) -> Result<(), String> {
    let mut folders = vec![PathBuf::new()];
    let mut buffers = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    while let Some(folder) = folders.pop() {
        let (here, there) = (names(&one.join(&folder))?, names(&other.join(&folder))?);
        if let Some(name) = here
            .iter()
            .find(|name| there.binary_search(name).is_err())
            .or(there.iter().find(|name| here.binary_search(name).is_err()))
        {
            return Err(format!("{}: only on one side", folder.join(name).display()));
        }
        for name in here {
            let path = folder.join(name);
            if same_entry(&one.join(&path), &other.join(&path), &mut buffers)
                .map_err(|error| format!("{}: {error}", path.display()))?
            {
                folders.push(path);
            }
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<OsString>, String> {
    let read = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()));
    let mut names: Vec<_> = read?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    Ok(names)
}

/// True for a folder.
fn same_entry(one: &Path, other: &Path, buffers: &mut (Vec<u8>, Vec<u8>)) -> Result<bool, String> {
    let stat = |path: &Path| std::fs::symlink_metadata(path).map_err(|error| error.to_string());
    let (here, there) = (stat(one)?, stat(other)?);
    let mode = |metadata: &Metadata| metadata.permissions().mode();
    if mode(&here) != mode(&there) {
        return Err(format!("mode {:o} and {:o}", mode(&here), mode(&there)));
    }
    if here.is_symlink() {
        let target = |path: &Path| std::fs::read_link(path).map_err(|error| error.to_string());
        return match target(one)? == target(other)? {
            true => Ok(false),
            false => Err("link targets differ".into()),
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
