//! A guest with a kernel of its own: an initramfs of busybox, modules, the program under test and scripts, which QEMU
//! boots without hardware support. What the guest says for the host stands on its console, one line each.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use xtask::cache;
use xtask::program::step;

use crate::ci::install;
use crate::rigs::steps::Steps;
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

    /// A new sparse file for a disk.
    pub fn disk(&self, name: &str, gib: u64) -> Result<String, String> {
        let path = self.folder.join(name);
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(gib << 30))
            .map_err(|error| error.to_string())?;
        Ok(path.display().to_string())
    }

    /// Boots the guest with disks, files or QEMU's names of servers, to run a case: a script and its words, with commas
    /// between.
    pub fn boot(&self, case: &str, disks: &[String]) -> Result<Running, String> {
        let vmlinuz = format!("{}/unpacked/boot", self.kernel.display());
        let vmlinuz = std::fs::read_dir(vmlinuz)
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("vmlinuz"))
            .ok_or("the package of the kernel has no vmlinuz")?;
        let mut command = Command::new("nice");
        // Stock kernels do not boot on every /dev/kvm there is.
        command.args([
            "-n",
            "10",
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi,tb-size=256",
        ]);
        command.args(["-cpu", "max", "-M", "q35", "-m", "3G", "-smp", "2"]);
        command.args([
            "-nographic",
            "-no-reboot",
            "-nodefaults",
            "-serial",
            "stdio",
        ]);
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
        Running::start(command)
    }
}

/// A line of the guest for the host.
pub enum Said {
    /// A step, and whether it was well.
    Step(String, Result<(), String>),
    /// A word in capitals, and what follows it.
    Word(String, String),
    /// The guest is done, and powers off.
    End,
}

/// A guest that runs. It is killed when it is dropped.
pub struct Running {
    qemu: Arc<Mutex<Child>>,
    console: Lines<BufReader<ChildStdout>>,
    others: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut qemu = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let console = qemu.stdout.take().ok_or("QEMU has no console")?;
        let qemu = Arc::new(Mutex::new(qemu));
        watch(qemu.clone());
        Ok(Self {
            qemu,
            console: BufReader::new(console).lines(),
            others: Vec::new(),
        })
    }

    /// The next line for the host; `None` once the console is closed.
    pub fn next(&mut self) -> Option<Said> {
        loop {
            // A line that is no text is the firmware's.
            let line = match self.console.next()? {
                Ok(line) => line,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Err(_) => return None,
            };
            if let Some(said) = understood(line.trim_end()) {
                return Some(said);
            }
            self.others.push(line);
        }
    }

    /// Runs the guest to its end: tells its steps, and returns its other words.
    pub fn tell(mut self, steps: &mut Steps) -> Vec<(String, String)> {
        let mut words = Vec::new();
        let mut has_ended = false;
        while let Some(said) = self.next() {
            match said {
                Said::Step(name, done) => steps.tell(&name, done),
                Said::Word(word, rest) => words.push((word, rest)),
                Said::End => has_ended = true,
            }
        }
        if !has_ended {
            steps.tell("the guest runs to its end", Err(self.last_words()));
        }
        words
    }

    /// The last lines of the console that were not for the host.
    pub fn last_words(&self) -> String {
        let last: Vec<_> = self.others.iter().rev().take(8).rev().cloned().collect();
        last.join(" | ")
    }

    /// Stops the guest as a power cut does.
    pub fn kill(&mut self) {
        if let Ok(mut qemu) = self.qemu.lock() {
            let _ = qemu.kill();
            let _ = qemu.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Longest time of one guest.
const GUEST_MAX: Duration = Duration::from_secs(1800);

/// Kills a guest that hangs, so that its console ends.
fn watch(qemu: Arc<Mutex<Child>>) {
    let started = Instant::now();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(mut qemu) = qemu.lock() else { return };
            match qemu.try_wait() {
                Ok(None) if started.elapsed() < GUEST_MAX => {}
                Ok(None) => drop(qemu.kill()),
                _ => return,
            }
        }
    });
}

/// The words of a line for the host, which may stand behind the firmware's own.
fn understood(line: &str) -> Option<Said> {
    if let Some((_, step)) = line.split_once("STEP ") {
        return Some(match step.split_once(' ') {
            Some(("ok", name)) => Said::Step(name.to_owned(), Ok(())),
            Some(("FAIL", name)) => {
                let (name, why) = name.split_once(" ## ").unwrap_or((name, "failed"));
                Said::Step(name.to_owned(), Err(why.to_owned()))
            }
            _ => Said::End,
        });
    }
    let (word, rest) = line.split_once(' ')?;
    let is_word = word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    is_word.then(|| Said::Word(word.to_owned(), rest.to_owned()))
}

fn script(script: &str, args: &[&str]) -> Result<(), String> {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script, "bash"])
        .args(args);
    step("kernel and initramfs of the guest", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_the_host_are_told_from_others() {
        let step = understood("\u{1b}[2JSTEP FAIL ublk, xfs: create ## no device|");
        assert!(matches!(step, Some(Said::Step(name, Err(_))) if name == "ublk, xfs: create"));
        assert!(matches!(
            understood("STEP ok 3 s  x: y"),
            Some(Said::Step(_, Ok(())))
        ));
        assert!(matches!(understood("STEP end 9.1"), Some(Said::End)));
        assert!(matches!(understood("SYNCED 7"), Some(Said::Word(_, n)) if n == "7"));
        assert!(understood("insmod nbd.ko failed").is_none());
    }
}
