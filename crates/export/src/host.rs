//! Programs and devices of the host: loop devices, mounts, and their users.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Error, Result};

/// Where programs are that not everybody's PATH has.
const MORE_PATH: &str = ":/usr/sbin:/sbin";

/// Longest time that the kernel, or a program that looks at a new device, takes to let go of it.
const CHANGE_MAX: Duration = Duration::from_secs(10);
/// Longest time of a program that sets up or takes down a device.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Looks for something that the kernel does after it has answered; `None` where it takes too long.
pub fn wait_for<T>(found: impl FnMut() -> Option<T>) -> Option<T> {
    wait_at_most(CHANGE_MAX, found)
}

/// The same within the time `longest`.
pub fn wait_at_most<T>(longest: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        match found() {
            None if started.elapsed() < longest => std::thread::sleep(Duration::from_millis(5)),
            found => return found,
        }
    }
}

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

/// Takes down the loop device over `file`, and waits until it has let go of it: the kernel keeps the file as long as
/// another program has the device open. To be called again after an error; a device that is down is no error.
///
/// # Errors
/// [`Error::Busy`] where a program keeps the device open; [`Error::Host`].
pub fn take_down_loop_over(device: &Path, file: &Path) -> Result<()> {
    if !is_loop_over(device, file) {
        return Ok(());
    }
    take_down_loop(device)?;
    wait_for(|| (!is_loop_over(device, file)).then_some(())).ok_or_else(|| Error::Busy {
        what: format!(
            "a program has {} open: close it, then detach",
            device.display()
        ),
    })
}

/// Unmounts the file system at `folder`, if one is there.
///
/// # Errors
/// [`Error::Busy`] where a program keeps it in use.
pub fn unmount(folder: &Path) -> Result<()> {
    let unmount = || {
        let done = run(program("umount").arg(folder), "umount (package mount)");
        done.is_ok().then_some(())
    };
    if !is_mounted(folder) {
        Ok(())
    } else {
        wait_for(unmount).ok_or_else(|| Error::Busy {
            what: format!("{} is in use: leave it, then detach", folder.display()),
        })
    }
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
            let what = if places.is_empty() {
                format!(
                    "{} is in use: close what uses it, then {then}",
                    device.display()
                )
            } else {
                format!(
                    "{} is mounted on {}: unmount it, then {then}",
                    device.display(),
                    places.join(", ")
                )
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
    if is_mounted(folder) {
        let _ = run(
            program("umount").arg("--lazy").arg(folder),
            "umount (package mount)",
        );
    }
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_there = |line: &str| line.split(' ').nth(1).map(Path::new) == Some(folder);
    mounts.lines().any(is_there)
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

/// Runs a program to its end, and returns what it has printed: some lines. One that takes too long is killed, or left
/// alone where the kernel does not let it end.
///
/// # Errors
/// [`Error::Missing`] where it is not installed; [`Error::Host`] where it failed or took too long.
pub fn run(command: &mut Command, what: &str) -> Result<String> {
    let cannot_run = |source| Error::Host {
        what: format!("cannot run {what}"),
        source,
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Missing {
                what: format!("{what} is not installed"),
            },
            _ => cannot_run(source),
        })?;
    let Some(ended) = wait_at_most(RUN_MAX, || child.try_wait().transpose()) else {
        let _ = child.kill();
        return Err(Error::Host {
            what: format!("{what} has not ended for {} s", RUN_MAX.as_secs()),
            source: io::ErrorKind::TimedOut.into(),
        });
    };
    if ended.map_err(cannot_run)?.success() {
        Ok(printed(child.stdout.take()))
    } else {
        Err(Error::Host {
            what: format!("{what} failed"),
            source: io::Error::other(printed(child.stderr.take()).trim().to_owned()),
        })
    }
}

/// The output of a program that has ended. A process that it left behind may hold the pipe, so nothing is waited for.
fn printed(pipe: Option<impl Read + AsFd>) -> String {
    let mut text = Vec::new();
    if let Some(mut pipe) = pipe
        && rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).is_ok()
    {
        // An error tells that the pipe is empty and still open: what came before is in `text`.
        let _ = pipe.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_child_keeps_the_pipe_is_not_waited_for() {
        let script = |script: &str| {
            let mut command = program("sh");
            command.args(["-c", script]);
            run(&mut command, "sh")
        };
        // The child lives on behind this test, and has none of its pipes.
        assert_eq!(
            script("echo /dev/loop7; (sleep 20; echo late) &").expect("it ends"),
            "/dev/loop7\n"
        );
        let error =
            script("echo why >&2; (sleep 20; echo late >&2) & exit 3").expect_err("it fails");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("why"));
        let missing = run(&mut program("no-such-program"), "no-such-program");
        assert!(matches!(missing, Err(Error::Missing { .. })));
    }
}
