//! Power cuts of the guest: QEMU and a volatile cache below its disk are killed at a random moment. This host opens the
//! disk afterwards: what the guest had told to be synced is whole, and file systems and depot are clean.
//!
//! A guest is booted once and saved before it has touched a disk; each round restores it. A restored guest repeats
//! itself, so the seed of a round comes by its console, and the content of its files from a disk of random bytes. Each
//! pair of a way to the kernel and a file system has a disk of its own, which goes through all its rounds.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::acknowledged::Acknowledged;
use super::guest::{Guest, WAITING};
use super::running::{RunningGuest, Said};
use super::{FILE_SYSTEMS, WAYS};
use crate::rigs::steps::{Steps, within};

/// Longest time between the first file that is synced and the power cut, in milliseconds.
const CUT_AFTER_MS_MAX: u64 = 8000;
/// Longest time of a guest before its power cut.
const GUEST_MAX: Duration = Duration::from_secs(180);
/// Longest time for this host to look at a disk, in seconds.
const LOOK_SECONDS_MAX: u32 = 180;
/// Failed rounds after which no more are begun.
const FAILED_MAX: usize = 3;
/// Files of a disk that are kept for its next rounds, at most.
const FILES_MAX: usize = 300;
/// Sizes of the guest's disk and of its disk of random bytes.
const DISK_BYTES: u64 = 2 << 30;
const RANDOM_BYTES: u64 = 40 << 20;

/// The disk of one way to the kernel and one file system.
struct Lineage {
    way: &'static str,
    file_system: &'static str,
    /// `None` until the first round.
    disk: Option<String>,
    files: Acknowledged,
}

/// All that the rounds share.
struct Rounds<'a> {
    guest: &'a Guest,
    program: &'a Path,
    folder: &'a Path,
    state: PathBuf,
    seed: u32,
}

/// Cuts the power `rounds` times, and prints how many were clean.
pub fn run(
    guest: &Guest,
    program: &Path,
    folder: &Path,
    rounds: u32,
    steps: &mut Steps,
) -> Result<(), String> {
    if rounds == 0 {
        return Ok(());
    }
    let all = Rounds {
        guest,
        program,
        folder,
        state: folder.join("guest.state"),
        seed: std::process::id(),
    };
    let started = Instant::now();
    let disks = [
        guest.disk("empty.img", DISK_BYTES)?,
        guest.disk("random.img", RANDOM_BYTES)?,
    ];
    let saved = guest.save("power", &disks, &all.state);
    steps.tell(
        &format!(
            "{:6.1} s  a guest is booted and saved",
            started.elapsed().as_secs_f64()
        ),
        saved.clone(),
    );
    saved?;
    println!("   power cuts, seed {}", all.seed);
    let mut lineages: Vec<_> = WAYS
        .iter()
        .flat_map(|way| FILE_SYSTEMS.iter().map(|kind| Lineage::new(way, kind)))
        .collect();
    let (mut clean, mut failed, mut synced) = (0, 0, 0);
    for round in 1..=rounds {
        let number = (round as usize - 1) % lineages.len();
        let lineage = &mut lineages[number];
        let started = Instant::now();
        let (told, done) = match all.round(round, lineage) {
            Ok(files) => {
                synced += files;
                (format!(": {files} files synced"), Ok(()))
            }
            Err(why) => (String::new(), Err(why)),
        };
        let name = format!(
            "{:6.1} s  power cut {round}, {}, {}{told}",
            started.elapsed().as_secs_f64(),
            lineage.way,
            lineage.file_system
        );
        failed += usize::from(done.is_err());
        clean += usize::from(done.is_ok());
        steps.tell(&name, done);
        if failed == FAILED_MAX {
            break;
        }
    }
    println!("   {clean} of {rounds} power cuts clean, {synced} times a file was synced");
    Ok(())
}

impl Lineage {
    fn new(way: &'static str, file_system: &'static str) -> Self {
        Self {
            way,
            file_system,
            disk: None,
            files: Acknowledged::default(),
        }
    }
}

impl Rounds<'_> {
    /// One power cut, and a look at what it left. Returns how often a file was synced before.
    fn round(&self, round: u32, lineage: &mut Lineage) -> Result<usize, String> {
        lineage.files.begin();
        let disk = match &lineage.disk {
            Some(disk) => disk.clone(),
            None => {
                let name = format!("{}-{}.img", lineage.way, lineage.file_system);
                let disk = self.guest.disk(&name, DISK_BYTES)?;
                self.host(&format!("make {disk} {}", lineage.file_system))?;
                lineage.disk.insert(disk).clone()
            }
        };
        let random = self.folder.join("random.img");
        write_random(&random).map_err(|error| format!("random bytes: {error}"))?;
        let cache = DiskCache::start(&disk, self.folder)?;
        let disks = [cache.disk(), random.display().to_string()];
        let mut running = self
            .guest
            .restore("power", &disks, &self.state, GUEST_MAX)?;
        let wait = Duration::from_millis(mixed(self.seed, round) % CUT_AFTER_MS_MAX);
        let seed = mixed(!self.seed, round) & 0x7fff_ffff;
        let go = format!("GO {seed} {round} {} {}", lineage.way, lineage.file_system);
        cut(&mut running, cache, &go, wait, &mut lineage.files)?;
        drop(running);
        let kind = lineage.file_system;
        let found = self.host(&format!("look {disk} {kind} {FILES_MAX}"))?;
        lineage.files.compare(&found)?;
        let synced = lineage.files.synced;
        if found.lines().count() > FILES_MAX {
            lineage.files = Acknowledged::default();
        }
        Ok(synced)
    }

    /// Calls one of the functions of this host.
    fn host(&self, call: &str) -> Result<String, String> {
        let (folder, program) = (self.folder.display(), self.program.display());
        let script = format!("cd {folder}; onefold={program}; {HOST}{call}");
        within(LOOK_SECONDS_MAX, &script)
    }
}

/// Functions of this host: `make` makes a guest's disk with a depot and a file system on it, `look` opens it after a
/// power cut and prints the digests of its files, which it removes where there are many. Both leave nothing mounted,
/// however they end.
const HOST: &str = r#"
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p lower upper
left() { umount -l upper; $onefold volume detach lower/depot; umount -l lower; losetup -d "$loop"; }
open() {
  loop=$(losetup --find --show "$1"); trap 'set +e; left >/dev/null 2>&1' EXIT
}
attach() { $onefold volume attach lower/depot --via fuse >device; device=$(head -n 1 device); mount "$device" upper; }
close() { umount upper; check "$1"; $onefold volume detach lower/depot >&2; $onefold volume check lower/depot --read-data >&2; umount lower; }
check() {
  case $1 in
  ext4) e2fsck -fn "$device" >&2 ;;
  xfs) xfs_repair -n "$device" >&2 ;;
  btrfs) btrfs check "$device" >&2 ;;
  esac
}
make() {
  open "$1"; mkfs.ext4 -qF -E nodiscard "$loop"; mount "$loop" lower
  $onefold -q volume create lower/depot --size 512M
  $onefold volume attach lower/depot --via fuse >device; device=$(head -n 1 device)
  case $2 in ext4) mkfs.ext4 -qF "$device" ;; xfs) mkfs.xfs -qf "$device" ;; btrfs) mkfs.btrfs -qf "$device" ;; esac
  mount "$device" upper; mkdir upper/files upper/bulk; close "$2"
}
look() {
  open "$1"; e2fsck -p "$loop" >&2 || [ $? -le 1 ]; mount "$loop" lower; attach
  rm -f upper/files/.*[ab]; rm -rf upper/bulk/*
  (cd upper/files; find . -type f -print0 | xargs -0 -r sha256sum) >digests
  [ "$(wc -l <digests)" -le "$3" ] || rm -f upper/files/*
  close "$2"; cat digests
}
"#;

/// Writes the file anew, with random bytes.
fn write_random(path: &Path) -> std::io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(RANDOM_BYTES);
    std::io::copy(&mut random, &mut File::create(path)?).map(drop)
}

/// A number for this round of this seed, anyhow.
fn mixed(seed: u32, round: u32) -> u64 {
    let mut number = (u64::from(seed) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    number ^= number >> 29;
    number.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32
}

/// Has the guest begin, and cuts the power some time after the first file was synced.
fn cut(
    running: &mut RunningGuest,
    cache: DiskCache,
    go: &str,
    wait: Duration,
    files: &mut Acknowledged,
) -> Result<(), String> {
    let mut cache = Some(cache);
    let mut has_begun = false;
    while let Some(said) = running.next() {
        match said {
            Said::Word(word, _) if word == WAITING && !has_begun => {
                running.write_line(go)?;
                has_begun = true;
            }
            Said::Word(word, rest) => {
                files.hear(&word, &rest);
                if files.synced > 0 && cache.is_some() {
                    // Until then the guest goes on; its console holds what it says.
                    std::thread::sleep(wait);
                    drop(cache.take());
                    running.kill();
                }
            }
            // Once the power is gone, the guest may still see its disk fail.
            Said::Step(name, Err(why)) if cache.is_some() => return Err(format!("{name}: {why}")),
            Said::Step(..) => {}
            Said::End => break,
        }
    }
    match cache {
        None => Ok(()),
        Some(_) => Err(format!("no file was synced: {}", running.last_words())),
    }
}

/// A server of the disk that keeps what was not flushed to itself. Dropping it is a power cut.
struct DiskCache {
    pid: i32,
    socket: String,
}

impl DiskCache {
    fn start(disk: &str, folder: &Path) -> Result<Self, String> {
        let place = |name: &str| folder.join(name).display().to_string();
        let (socket, pid_file, own) = (place("disk.sock"), place("disk.pid"), place("cache"));
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_file(&pid_file);
        std::fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        let started = Command::new("nbdkit")
            .args([
                "-P",
                &pid_file,
                "-U",
                &socket,
                "--filter=cache",
                "file",
                disk,
                "cache=writeback",
            ])
            .env("TMPDIR", own)
            .stdout(Stdio::null())
            .status();
        match started {
            Ok(status) if status.success() => Ok(Self {
                pid: Self::process(&pid_file)?,
                socket,
            }),
            Ok(status) => Err(format!("nbdkit: {status}")),
            Err(error) => Err(format!("nbdkit: {error}")),
        }
    }

    /// The process of the server, which writes it down only after its parent has ended.
    fn process(pid_file: &str) -> Result<i32, String> {
        for _ in 0..200 {
            let written = std::fs::read_to_string(pid_file).unwrap_or_default();
            if let Ok(pid) = written.trim().parse() {
                return Ok(pid);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("nbdkit has no process".into())
    }

    /// Its name for QEMU.
    fn disk(&self) -> String {
        format!("nbd:unix:{}", self.socket)
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
