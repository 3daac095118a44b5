//! Names of block devices that stay: `/dev/sdb` is another disk where the system finds its disks in another order.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Links that are named by what a device says of itself.
const LINKS: &str = "/dev/disk/by-id";
/// Beginnings of links' names, the best first: of an identity that no other device has.
const BEST_FIRST: [&str; 4] = ["wwn-", "nvme-eui.", "md-uuid-", "dm-uuid-"];

/// The path under which the device at `path` is found later, too: its own, from the root, unless the kernel gave that
/// and there is a better one.
pub fn of(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // A link was made by somebody who wants the device to be found by it.
    let is_kernels = path.parent() == Some(Path::new("/dev"))
        && (path.symlink_metadata()).is_ok_and(|found| found.file_type().is_block_device());
    let link = is_kernels.then(|| best_link(Path::new(LINKS), &path));
    link.flatten().unwrap_or(path)
}

/// The best of the links in a folder that lead to `device`.
fn best_link(folder: &Path, device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let links = entries.map(|entry| entry.path());
    links
        .filter(|link| link.canonicalize().is_ok_and(|found| found == device))
        .min_by_key(|link| {
            let name = link.file_name().unwrap_or_default().to_string_lossy();
            let rank = BEST_FIRST.iter().position(|begin| name.starts_with(begin));
            (rank.unwrap_or(BEST_FIRST.len()), name.into_owned())
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_best_link_to_a_device_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let links = path("links");
        std::fs::create_dir(&links).expect("made");
        for (device, link) in [
            ("sda", "wwn-0x5000"),
            ("sda", "ata-DISK_1"),
            ("sdb", "ata-DISK_2"),
            ("sdb", "ata-COPY_2"),
        ] {
            std::fs::write(path(device), b"").expect("written");
            symlink(path(device), links.join(link)).expect("a link");
        }
        std::fs::write(path("sdc"), b"").expect("written");
        symlink(path("gone"), links.join("ata-GONE")).expect("a link");
        for (device, link) in [
            ("sda", Some("wwn-0x5000")),
            ("sdb", Some("ata-COPY_2")),
            ("sdc", None),
            ("gone", None),
        ] {
            let best = best_link(&links, &path(device));
            assert_eq!(best, link.map(|link| links.join(link)), "{device}");
        }
        assert_eq!(best_link(&path("none"), &path("sda")), None);
    }

    #[test]
    fn a_file_is_found_where_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk.img");
        assert_eq!(of(&file), file);
        assert_eq!(of(Path::new("/dev/null")), Path::new("/dev/null"));
    }
}
