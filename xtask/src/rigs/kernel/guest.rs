//! A guest with a kernel of its own: an initramfs of busybox, modules, the program under test and scripts, which QEMU
//! boots without hardware support. A guest that has booted can be saved, and restored with other disks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::cache;
use xtask::program::step;

use super::running::{RunningGuest, Said};
use crate::ci::install;
use crate::tidy;

/// Packages of the host, each with a program that shows that it is installed.
const PACKAGES: &[(&str, &str)] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("busybox-static", "busybox"),
    ("cpio", "cpio"),
    ("kmod", "depmod"),
    ("nbd-client", "nbd-client"),
    ("nbdkit", "nbdkit"),
    ("e2fsprogs", "mkfs.ext4"),
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
    ("dmsetup", "dmsetup"),
];

/// Modules that are not part of the kernel's image.
const MODULES: &str = "nbd ublk_drv ext4 xfs btrfs loop fuse virtio_pci virtio_blk dm-vdo";

/// Programs in the guest besides busybox's. `sync` of coreutils syncs single files.
const PROGRAMS: &str = "nbd-client mkfs.ext4 e2fsck mkfs.xfs xfs_repair mkfs.btrfs btrfs losetup mount umount fstrim sync vdoformat dmsetup";

const FETCH: &str = include_str!("fetch.sh");
const IMAGE: &str = include_str!("image.sh");
const TREE_TAR: &str = include_str!("tree.sh");
/// Files of the guest.
const FILES: &[(&str, &[&str])] = &[
    ("init", &[include_str!("init.sh")]),
    ("steps.sh", &[include_str!("steps.sh")]),
    (
        "run.sh",
        &[
            include_str!("transports.sh"),
            include_str!("power.sh"),
            include_str!("vdo.sh"),
            include_str!("faults.sh"),
        ],
    ),
];

/// RAM of a guest, and of one that is saved: what it uses is written to a file.
const RAM: &str = "3G";
const SAVED_RAM: &str = "1G";
/// Longest time of a boot, and of saving the guest.
const BOOT_MAX: Duration = Duration::from_secs(300);
/// Word of a guest that waits for a line of the host.
pub const WAITING: &str = "WAITING";

/// Parts of the workspace that the guest stores.
const TREE: &[&str] = &["docs", "crates/onefold/src", "crates/volume/src"];

/// Kernel, initramfs, and a folder for disks.
pub struct Guest {
    kernel: PathBuf,
    folder: PathBuf,
}

impl Guest {
    /// Installs packages that are missing, fetches the kernel where it is not there yet, and makes the initramfs in
    /// `folder`.
    pub fn prepare(program: &Path, folder: &Path) -> Result<Self, String> {
        install(PACKAGES)?;
        let kernel = cache::folder("kernel").ok_or("there is no folder for a kernel: set HOME")?;
        script(FETCH, &[&kernel.display().to_string()])?;
        let root = folder.join("root");
        std::fs::create_dir_all(&root).map_err(|error| error.to_string())?;
        for (name, parts) in FILES {
            std::fs::write(root.join(name), parts.concat()).map_err(|error| error.to_string())?;
        }
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(root.join("tree.tar"));
        tar.arg("-C").arg(tidy::root()).args(TREE);
        step("tar", &mut tar)?;
        let programs = format!("{} {PROGRAMS}", program.display());
        let place = |path: &Path| path.display().to_string();
        script(IMAGE, &[&place(&kernel), &place(&root), MODULES, &programs])?;
        let folder = folder.to_owned();
        Ok(Self { kernel, folder })
    }

    /// Version of the guest's kernel.
    pub fn version(&self) -> String {
        let done = std::fs::read_to_string(self.kernel.join("done")).unwrap_or_default();
        done.trim().to_owned()
    }

    /// A disk that is a tar of a large tree of sources, of some `mib` MiB.
    pub fn tree(&self, mib: u32) -> Result<String, String> {
        let tar = self.folder.join("tree.img").display().to_string();
        let root = tidy::root().display().to_string();
        script(TREE_TAR, &[&root, &tar, &mib.to_string()])?;
        Ok(tar)
    }

    /// A new sparse file for a disk of `bytes` bytes.
    pub fn disk(&self, name: &str, bytes: u64) -> Result<String, String> {
        let path = self.folder.join(name);
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .map_err(|error| error.to_string())?;
        Ok(path.display().to_string())
    }

    /// Boots the guest with disks, files or QEMU's names of servers, to run a case: a script and its words, with commas
    /// between. It is killed after `limit`.
    pub fn boot(
        &self,
        case: &str,
        disks: &[String],
        limit: Duration,
    ) -> Result<RunningGuest, String> {
        RunningGuest::start(self.machine(case, disks, RAM)?, limit)
    }

    /// Boots the guest to run `case`, and saves it to the file `state` once it waits for a word of the host.
    pub fn save(&self, case: &str, disks: &[String], state: &Path) -> Result<(), String> {
        let monitor = self.folder.join("monitor.sock");
        let mut machine = self.machine(case, disks, SAVED_RAM)?;
        machine.arg("-monitor");
        machine.arg(format!("unix:{},server=on,wait=off", monitor.display()));
        let mut running = RunningGuest::start(machine, BOOT_MAX)?;
        loop {
            match running.next() {
                Some(Said::Word(word, _)) if word == WAITING => break,
                Some(Said::Step(name, Err(why))) => return Err(format!("{name}: {why}")),
                Some(_) => {}
                None => return Err(format!("no guest to save: {}", running.last_words())),
            }
        }
        let said = ask_monitor(
            &monitor,
            &format!(
                "migrate \"exec:cat >{}\"\ninfo migrate\nquit\n",
                state.display()
            ),
        )
        .map_err(|error| format!("QEMU's monitor: {error}"))?;
        if said.contains("completed") {
            Ok(())
        } else {
            Err(format!("the guest is not saved: {said}"))
        }
    }

    /// Restores a saved guest, with disks of the same sizes. It is killed after `limit`.
    pub fn restore(
        &self,
        case: &str,
        disks: &[String],
        state: &Path,
        limit: Duration,
    ) -> Result<RunningGuest, String> {
        let mut machine = self.machine(case, disks, SAVED_RAM)?;
        machine.arg("-incoming");
        machine.arg(format!("exec:cat {}", state.display()));
        RunningGuest::start(machine, limit)
    }

    fn machine(&self, case: &str, disks: &[String], ram: &str) -> Result<Command, String> {
        let vmlinuz = format!("{}/unpacked/boot", self.kernel.display());
        let vmlinuz = std::fs::read_dir(vmlinuz)
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("vmlinuz"))
            .ok_or("the package of the kernel has no vmlinuz")?;
        let mut command = Command::new("nice");
        command.args(["-n", "10", "qemu-system-x86_64"]);
        // Stock kernels do not boot on every /dev/kvm there is.
        command.args(["-accel", "tcg,thread=multi,tb-size=256"]);
        command.args(["-cpu", "max", "-M", "q35", "-m", ram, "-smp", "2"]);
        command.args(["-nographic", "-no-reboot", "-nodefaults"]);
        command.args(["-serial", "stdio"]);
        for (number, disk) in disks.iter().enumerate() {
            command.arg("-drive");
            command.arg(format!(
                "file={disk},format=raw,if=none,id=d{number},cache=none,discard=unmap"
            ));
            command.arg("-device");
            command.arg(format!("virtio-blk-pci,drive=d{number}"));
        }
        command.arg("-kernel").arg(vmlinuz);
        command.arg("-initrd").arg(self.folder.join("root.gz"));
        command.arg("-append");
        command.arg(format!(
            "console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check nowatchdog case={case}"
        ));
        Ok(command)
    }
}

/// Gives QEMU's monitor commands, the last of which ends it, and returns all that it says.
fn ask_monitor(path: &Path, commands: &str) -> std::io::Result<String> {
    let mut monitor = UnixStream::connect(path)?;
    monitor.set_read_timeout(Some(BOOT_MAX))?;
    monitor.write_all(commands.as_bytes())?;
    let mut said = Vec::new();
    monitor.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn script(script: &str, args: &[&str]) -> Result<(), String> {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script, "bash"])
        .args(args);
    step("kernel and initramfs of the guest", &mut command)
}
