//! Table 4.2: seconds to extract a tar of 40 versions of a source tree on ext4, without and with a deduplicating device
//! below, on a disk of this machine. Needs root, FUSE and loop devices.
//!
//! A round makes the file system anew, drops the page cache, extracts, and ends when the file system is unmounted.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chunking::own_versions;
use crate::findings::Findings;
use crate::paper;
use crate::real::mean_and_half_width;
use crate::report::Table;
use crate::{Args, Error};

/// Names, and the backend of the device below; without one the file system lies in a file.
const CONTESTANTS: [(&str, Option<&str>); 4] = [
    ("ext4", None),
    ("ext4 on log", Some("log")),
    // The report's cache for this load (p. 28).
    (
        "ext4 on cbt, 150 MB, 1000",
        Some("cbt:cache=150M,transaction=1000"),
    ),
    ("ext4 on inram", Some("inram")),
];

/// Times of one contestant.
struct Times {
    name: &'static str,
    seconds: Vec<f64>,
}

/// Measures all contestants in alternating rounds: the table, and the report's claim.
pub fn run(args: &Args) -> Result<(Table, Findings), Error> {
    let program = args.onefold.as_ref().ok_or("Table 4.2 needs --onefold")?;
    let program = program.canonicalize()?;
    let work = tempfile::Builder::new()
        .prefix("bench-volume")
        .tempdir_in(&args.folder)?;
    let tar = tar_of_versions(args, work.path())?;
    let bytes = std::fs::metadata(&tar)?.len();
    let mut all = CONTESTANTS.map(|(name, _)| Times {
        name,
        seconds: Vec::new(),
    });
    for _ in 0..args.rounds.max(1) {
        for ((_, backend), times) in CONTESTANTS.iter().zip(&mut all) {
            let seconds = extract(&program, work.path(), *backend, bytes * 3 + (256 << 20))?;
            times.seconds.push(seconds);
        }
    }
    let mut found = Findings::new("t4.2", "Extraction of 40 trees");
    let mean = |name: &str| {
        let found = all.iter().find(|times| times.name == name);
        found.map(|times| mean_and_half_width(&times.seconds).0)
    };
    let times = mean(CONTESTANTS[0].0).zip(mean(CONTESTANTS[2].0));
    found.add(
        paper::EXTRACTION,
        times.map(|(without, with)| (without / with, without / with)),
    );
    Ok((table(&all, bytes), found))
}

fn table(all: &[Times], bytes: u64) -> Table {
    let plain = mean_and_half_width(&all[0].seconds).0;
    let here = all.iter().map(|times| {
        let (mean, half) = mean_and_half_width(&times.seconds);
        vec![
            format!("here, {} MB", bytes / 1_000_000),
            times.name.to_owned(),
            format!("{mean:.2}"),
            format!("± {:.1} %", half * 100.0),
            format!("{:.2}", plain / mean),
        ]
    });
    let paper = paper::EXTRACTION_SECONDS.iter().map(|(name, seconds)| {
        vec![
            "paper".to_owned(),
            (*name).to_owned(),
            format!("{seconds:.0}"),
            String::new(),
            format!("{:.2}", paper::EXTRACTION_SECONDS[0].1 / seconds),
        ]
    });
    Table {
        head: vec!["", "on", "s", "95 %", "ext4 by it"],
        words: 2,
        rows: paper.chain(here).collect(),
    }
}

/// A tar of all versions in the folder.
fn tar_of_versions(args: &Args, work: &Path) -> Result<PathBuf, Error> {
    let made;
    let trees = match &args.trees {
        Some(trees) => trees.as_path(),
        None => {
            made = own_versions()?;
            made.path()
        }
    };
    let tar = work.join("trees.tar");
    let mut command = Command::new("tar");
    let status = command
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(trees)
        .arg(".")
        .status()?;
    if status.success() {
        Ok(tar)
    } else {
        Err(format!("tar: {status}").into())
    }
}

/// Makes a file system, extracts, and takes it away; returns the seconds from the first file to the end of `umount`.
fn extract(program: &Path, work: &Path, backend: Option<&str>, bytes: u64) -> Result<f64, Error> {
    let (make, end) = match backend {
        None => (
            format!("truncate -s {bytes} image; dev=$(losetup -f --show --direct-io=on image)"),
            "losetup -d $dev; rm -f image".to_owned(),
        ),
        Some(backend) => {
            let onefold = program.display();
            (
                format!(
                    "{onefold} -q volume create $PWD/depot --size {bytes} --backend {backend} >&2; \
                     dev=$({onefold} -q volume attach $PWD/depot)"
                ),
                format!("{onefold} -q volume detach $PWD/depot >&2; rm -rf depot"),
            )
        }
    };
    let script = format!(
        "set -e; export PATH=$PATH:/usr/sbin:/sbin; mkdir -p mnt; \
         trap 'umount -l mnt 2>/dev/null || true; {end}' EXIT; \
         {make}; mkfs.ext4 -qF $dev >&2; mount $dev mnt; sync; echo 3 >/proc/sys/vm/drop_caches; \
         start=$(date +%s%N); tar -xf trees.tar -C mnt; sync -f mnt; umount mnt; stop=$(date +%s%N); \
         echo $((stop - start))"
    );
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(work).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    match told
        .lines()
        .find_map(|line| line.trim().parse::<f64>().ok())
    {
        Some(nanoseconds) if output.status.success() => Ok(nanoseconds / 1e9),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}
