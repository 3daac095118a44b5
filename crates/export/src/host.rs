//! Programs and devices of the host: loop devices, mounts, and their users.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Error, Result};

/// Where programs are that not everybody's PATH has.
const MORE_PATH: &str = ":/usr/sbin:/sbin";

/// A free loop device over `file`, past the page cache.
///
/// # Errors
/// [`Error::Missing`] without loop devices or `losetup`; [`Error::Host`].
pub fn set_up_loop(file: &Path, is_writable: bool) -> Result<PathBuf> {
    if !Path::new("/dev/loop-control").exists() {
        return Err(Error::Missing {
            what: "the kernel has no loop devices here: /dev/loop-control is missing (`modprobe loop`; in a container, `--privileged` or the devices loop-control and loop0 …); `onefold volume serve --unix` needs none".into(),
        });
    }
    let mut command = program("losetup");
    command.args(["--find", "--show", "--direct-io=on"]);
    if !is_writable {
        command.arg("--read-only");
    }
    let said = run(command.arg(file), "losetup (package mount)")?;
    Ok(PathBuf::from(said.trim()))
}

/// Takes a loop device down.
///
/// # Errors
/// [`Error::Host`].
pub fn take_down_loop(device: &Path) -> Result<()> {
    run(
        program("losetup").arg("--detach").arg(device),
        "losetup (package mount)",
    )
    .map(drop)
}

/// Has a loop device take the size of its file.
///
/// # Errors
/// [`Error::Host`].
pub fn look_at_size(device: &Path) -> Result<()> {
    run(
        program("losetup").arg("--set-capacity").arg(device),
        "losetup (package mount)",
    )
    .map(drop)
}

/// Whether a loop device still stands on `file`.
pub fn is_loop_over(device: &Path, file: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    let path = std::fs::read_to_string(backing).unwrap_or_default();
    Path::new(path.trim_end_matches('\n')) == file
}

/// Fails while somebody has the block device mounted or otherwise for himself alone. What is no block device is free.
///
/// # Errors
/// [`Error::Busy`] says where it is mounted, and `then` what to do when it is not any more.
pub fn confirm_unused(device: &Path, then: &str) -> Result<()> {
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(OFlags::EXCL.bits() as i32)
        .open(device);
    match opened {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
            let places = mounted_at(device);
            let what = match places.is_empty() {
                true => format!(
                    "{} is in use: close what uses it, then {then}",
                    device.display()
                ),
                false => format!(
                    "{} is mounted on {}: unmount it, then {then}",
                    device.display(),
                    places.join(", ")
                ),
            };
            Err(Error::Busy { what })
        }
        _ => Ok(()),
    }
}

fn mounted_at(device: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_device = |line: &&str| line.split(' ').next().map(Path::new) == Some(device);
    let place = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    mounts.lines().filter(of_device).filter_map(place).collect()
}

/// Unmounts what a dead process left at `folder`, if anything is there.
pub fn unmount_leftover(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_there = |line: &str| line.split(' ').nth(1).map(Path::new) == Some(folder);
    if mounts.lines().any(is_there) {
        let _ = run(
            program("umount").arg("--lazy").arg(folder),
            "umount (package mount)",
        );
    }
}

/// Loads a module of the kernel where it is missing, if the system has it.
pub fn load_module(name: &str) {
    let _ = run(program("modprobe").args(["--quiet", name]), "modprobe");
}

/// A program, also where not everybody's PATH has it.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(MORE_PATH);
    command.env("PATH", path).env("LC_ALL", "C");
    command
}

/// Runs a program to its end, and returns what it has printed.
///
/// # Errors
/// [`Error::Missing`] where it is not installed; [`Error::Host`] where it failed.
pub fn run(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Missing {
            what: format!("{what} is not installed"),
        },
        _ => Error::Host {
            what: format!("cannot run {what}"),
            source,
        },
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::Host {
            what: format!("{what} failed"),
            source: io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }),
    }
}
