//! Block devices below a file: the one that holds its file system, the disk of which that is a partition, the device
//! that a loop device stands on; and where the first byte of each lies on the next one.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, makedev, minor};

/// Bytes of a sector as the kernel counts them.
const SECTOR_BYTES: u64 = 512;
/// No device stands on more others.
const DEPTH_MAX: usize = 16;

/// A device, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePlace {
    /// The device's number, as `st_rdev` gives it.
    pub number: u64,
    /// Offset on the device at which the file system's first byte lies.
    pub offset: u64,
}

/// The devices that a file lies on, the one of its file system first. None where that is on no block device.
pub fn below(file: &Metadata) -> Vec<DevicePlace> {
    let first = DevicePlace {
        number: file.dev(),
        offset: 0,
    };
    let devices = std::iter::successors(Some(first), next);
    let is_there = |place: &DevicePlace| folder(place.number).exists();
    devices.take_while(is_there).take(DEPTH_MAX).collect()
}

/// The number of the block device at `path`; `None` where there is none.
pub fn number(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    found.file_type().is_block_device().then(|| found.rdev())
}

/// The kernel's name of a device, for messages.
pub fn name(number: u64) -> String {
    let target = fs::canonicalize(folder(number)).unwrap_or_default();
    let name = target.file_name().unwrap_or_default();
    format!("/dev/{}", name.to_string_lossy())
}

/// The kernel's folder of a block device.
fn folder(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", major(number), minor(number)).into()
}

/// The device that a partition or a loop device is a part of.
fn next(place: &DevicePlace) -> Option<DevicePlace> {
    let folder = folder(place.number);
    let count = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    if folder.join("partition").exists() {
        let disk = fs::canonicalize(&folder).ok()?.parent()?.join("dev");
        let start = count(&folder.join("start"))?.checked_mul(SECTOR_BYTES)?;
        return Some(DevicePlace {
            number: parse_number(&fs::read_to_string(disk).ok()?)?,
            offset: place.offset.checked_add(start)?,
        });
    }
    let backing = fs::read_to_string(folder.join("loop/backing_file")).ok()?;
    let start = count(&folder.join("loop/offset"))?;
    Some(DevicePlace {
        number: number(Path::new(backing.trim_end_matches('\n')))?,
        offset: place.offset.checked_add(start)?,
    })
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_the_kernel_writes_them() {
        assert_eq!(parse_number("259:3\n"), Some(makedev(259, 3)));
        for wrong in ["", "7", "7:", ":7", "a:b", "-1:2"] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_of_a_file_system_without_a_device_lies_on_none() {
        let file = fs::metadata("/proc/self/status").expect("it is there");
        assert_eq!(below(&file), []);
        assert_eq!(number(Path::new("/dev/null")), None);
    }
}
