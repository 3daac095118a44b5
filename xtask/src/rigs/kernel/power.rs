//! Power cuts of the guest: QEMU and a volatile cache below its disk are killed at a random moment. What the guest had
//! told to be synced is whole after the next boot.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::WAYS;
use super::guest::{Guest, Running, Said};
use crate::rigs::steps::Steps;

const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Files that are synced before a power cut, or a round would say nothing.
const SYNCED_MIN: usize = 5;
/// Longest time between these files and the power cut, in milliseconds.
const CUT_AFTER_MS_MAX: u64 = 8000;

/// The device that was attached when the power was cut.
struct Attached {
    way: &'static str,
    file_system: &'static str,
    /// Number of the last file that was synced.
    synced: i64,
}

/// Cuts the power `rounds` times.
pub fn run(guest: &Guest, folder: &Path, rounds: u32, steps: &mut Steps) -> Result<(), String> {
    if rounds == 0 {
        return Ok(());
    }
    let disk = guest.disk("disk.img", 4)?;
    let seed = std::process::id();
    println!("   power cuts, seed {seed}");
    let mut before: Option<Attached> = None;
    for round in 1..=rounds {
        let cache = Cache::start(&disk, folder)?;
        let number = round as usize - 1;
        let (way, file_system) = (WAYS[number % 3], FILE_SYSTEMS[(number + number / 3) % 3]);
        let case = format!("{},{way},{file_system}", words(before.as_ref()));
        let mut running = guest.boot(&case, &[cache.disk()])?;
        let wait = Duration::from_millis(mixed(seed, round) % CUT_AFTER_MS_MAX);
        let synced = cut(&mut running, cache, wait, steps);
        let name = format!("round {round}: power cut, {way}, {file_system}");
        match synced {
            Some(synced) => steps.tell(&format!("{name}: {} files are synced", synced + 1), Ok(())),
            None => {
                steps.tell(&name, Err(running.last_words()));
                return Ok(());
            }
        }
        before = synced.map(|synced| Attached {
            way,
            file_system,
            synced,
        });
    }
    let cache = Cache::start(&disk, folder)?;
    let case = format!("{},last", words(before.as_ref()));
    guest.boot(&case, &[cache.disk()])?.tell(steps);
    Ok(())
}

/// A number for this round of this seed, anyhow.
fn mixed(seed: u32, round: u32) -> u64 {
    let mut number = (u64::from(seed) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    number ^= number >> 29;
    number.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32
}

/// The case of a boot after this power cut.
fn words(before: Option<&Attached>) -> String {
    match before {
        Some(Attached {
            way,
            file_system,
            synced,
        }) => format!("power,{way},{file_system},{synced}"),
        None => "power,none,none,-1".into(),
    }
}

/// Cuts the power some time after some files were synced. Returns the number of the last file that the guest told to be
/// synced; `None` where it ended before.
fn cut(running: &mut Running, cache: Cache, wait: Duration, steps: &mut Steps) -> Option<i64> {
    let mut cache = Some(cache);
    let mut synced = None;
    let mut files = 0;
    while let Some(said) = running.next() {
        match said {
            Said::Step(name, done) => steps.tell(&name, done),
            Said::Word(word, rest) if word == "SYNCED" => {
                synced = rest.trim().parse().ok();
                files += 1;
                if files == SYNCED_MIN {
                    // Until then the guest goes on; its console holds what it says.
                    std::thread::sleep(wait);
                    drop(cache.take());
                    running.kill();
                }
            }
            Said::Word(..) => {}
            Said::End => return None,
        }
    }
    cache.is_none().then_some(synced).flatten()
}

/// A server of the disk that keeps what was not flushed to itself. Dropping it is a power cut.
struct Cache {
    pid: i32,
    socket: String,
}

impl Cache {
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

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
