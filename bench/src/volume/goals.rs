//! Everything that has a goal, as ratios in one run: in process, over NBD beside qemu-nbd and nbdkit memory, RAM of a
//! map of random chunks, and opening after a kill.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::fio::{Load, LoadTarget};
use super::transport::{build, fill, median};
use super::{VolumeArgs, limits, snapshots};
use crate::report;
use xtask::serving::{TestServer, version};

/// MiB of log before the kill: as much as there can be.
const LOG_MIB: &str = "1024";
/// Extents of the map behind it.
const EXTENTS: &str = "4194304";

/// Runs all parts and prints their tables; none ends the others.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    println!("{}", report::machine_line(&report::machine()));
    println!(
        "{} · {} MiB, {} rounds, {} s, seed {}",
        ["fio", "qemu-nbd", "nbdkit"].map(version).join(" · "),
        args.mib,
        args.rounds,
        args.seconds,
        args.seed
    );
    println!("── in process");
    let mut more = vec![
        format!("mib={}", args.mib),
        format!("rounds={}", args.rounds),
    ];
    more.extend(
        args.tree
            .iter()
            .map(|tree| format!("tree={}", tree.display())),
    );
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let mut failed = Vec::new();
    let mut note = |what: &str, done: Result<bool, String>| match done {
        Ok(true) => {}
        Ok(false) => failed.push(what.to_owned()),
        Err(why) => failed.push(format!("{what}: {why}")),
    };
    note("in process", limits::example("in_process", args, &more));
    println!("── over NBD");
    note("NBD", over_nbd(args).map(|()| true));
    println!("── snapshots under load");
    note("snapshots", snapshots::run(args).map(|()| true));
    println!("── RAM");
    let ram_mib = args.ram_mib.to_string();
    let ram = ["ram", &args.chunks.to_string(), &ram_mib];
    note("RAM", limits::example("log_limits", args, &ram));
    println!("── opening after a kill");
    let recovery = ["recovery", LOG_MIB, EXTENTS];
    note("opening", limits::example("log_limits", args, &recovery));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("; "))
    }
}

const FILE: &str = "file";
const MEMORY: &str = "nbdkit memory";
const QEMU: &str = "qemu-nbd";
const DEPOT: &str = "depot";

/// A load over NBD, and which of the contestants run it.
struct NbdLoad {
    load: Load,
    /// fio's arguments beside those of the load; `None` writes each byte once.
    more: &'static [&'static str],
    is_timed: bool,
    contestants: &'static [&'static str],
}

const SEQUENTIAL: NbdLoad = NbdLoad {
    load: load("unique, sequential, 1 MiB", "write", 1 << 20, 4),
    more: &["--end_fsync=1"],
    is_timed: false,
    contestants: &[FILE, MEMORY, DEPOT],
};
const READ: NbdLoad = NbdLoad {
    load: load("read 4k QD32", "randread", 4096, 32),
    more: &[],
    is_timed: true,
    contestants: &[FILE, MEMORY, QEMU, DEPOT],
};
const WRITE: NbdLoad = NbdLoad {
    load: load("unique write 4k QD32", "randwrite", 4096, 32),
    ..READ
};
const DUPLICATE: NbdLoad = NbdLoad {
    load: load("duplicate write 4k QD32", "randwrite", 4096, 32),
    more: &["--dedupe_percentage=100", "--scramble_buffers=0"],
    ..READ
};
const ONE_CLIENT: NbdLoad = NbdLoad {
    load: load("write and flush, 1 client", "randwrite", 4096, 1),
    more: &["--fsync=1"],
    is_timed: true,
    contestants: &[QEMU, DEPOT],
};
const CLIENTS: NbdLoad = NbdLoad {
    load: load("write and flush, 32 clients", "randwrite", 4096, 1),
    more: &["--fsync=1", "--numjobs=32", "--group_reporting"],
    ..ONE_CLIENT
};

const fn load(name: &'static str, rw: &'static str, bytes: u32, depth: u32) -> Load {
    Load {
        name,
        rw,
        bytes,
        depth,
    }
}

/// Rates by load and contestant.
type Rates = BTreeMap<(&'static str, &'static str), Vec<f64>>;

fn over_nbd(args: &VolumeArgs) -> Result<(), String> {
    let program = match &args.onefold {
        Some(program) => program.clone(),
        None => build()?,
    };
    let folder = tempfile::tempdir_in(&args.folder).map_err(|error| error.to_string())?;
    let file = folder.path().join("raw");
    fill(&file, args.mib).map_err(|error| format!("{}: {error}", file.display()))?;
    let memory = TestServer::nbdkit(args.mib, folder.path())?;
    let qemu = TestServer::qemu(&file, folder.path())?;
    let depot = TestServer::depot(&program, args.mib, folder.path())?;
    let targets = [
        (FILE, LoadTarget::File(&file)),
        (MEMORY, LoadTarget::Uri(&memory.uri)),
        (QEMU, LoadTarget::Uri(&qemu.uri)),
        (DEPOT, LoadTarget::Uri(&depot.uri)),
    ];
    let mut rates = Rates::new();
    for round in 0..args.rounds.max(1) {
        for load in [SEQUENTIAL, READ, WRITE, DUPLICATE, ONE_CLIENT, CLIENTS] {
            let taking_part =
                |(name, _): &&(&'static str, LoadTarget<'_>)| load.contestants.contains(name);
            for (name, target) in targets.iter().filter(taking_part) {
                let rate = load.run(args, target, args.seed + round as u64)?;
                rates.entry((load.load.name, name)).or_default().push(rate);
            }
        }
    }
    print(&mut rates)?;
    println!("{}", writes(&program, &folder.path().join("depot"))?);
    Ok(())
}

impl NbdLoad {
    fn run(&self, args: &VolumeArgs, target: &LoadTarget<'_>, seed: u64) -> Result<f64, String> {
        let time = format!("--runtime={}", args.seconds);
        let mut more = self.more.to_vec();
        if self.is_timed {
            more.extend(["--time_based", &time]);
        }
        self.load.run_with(target, args.mib, seed, &more)
    }
}

/// Prints medians, then ratios beside their goals.
fn print(rates: &mut Rates) -> Result<(), String> {
    let medians: BTreeMap<_, _> = rates
        .iter_mut()
        .map(|(key, all)| (*key, median(all)))
        .collect();
    for ((load, contestant), rate) in &medians {
        println!("{load:<30}{contestant:<15}{rate:>10.0} a second");
    }
    let rate = |load: NbdLoad, contestant| {
        let found = medians.get(&(load.load.name, contestant));
        found
            .copied()
            .ok_or_else(|| format!("{contestant} has no rate"))
    };
    let ceiling = rate(SEQUENTIAL, FILE)?.min(rate(SEQUENTIAL, MEMORY)?);
    for (what, ratio, goal) in [
        (
            "unique, sequential / min(file, nbdkit memory)",
            rate(SEQUENTIAL, DEPOT)? / ceiling,
            Some(0.8),
        ),
        (
            "read 4k QD32 / qemu-nbd",
            rate(READ, DEPOT)? / rate(READ, QEMU)?,
            Some(0.95),
        ),
        (
            "unique write 4k QD32 / qemu-nbd",
            rate(WRITE, DEPOT)? / rate(WRITE, QEMU)?,
            Some(1.3),
        ),
        (
            "duplicate write 4k QD32 / qemu-nbd",
            rate(DUPLICATE, DEPOT)? / rate(DUPLICATE, QEMU)?,
            Some(1.4),
        ),
        (
            "write and flush, 32 clients / 1 client",
            rate(CLIENTS, DEPOT)? / rate(ONE_CLIENT, DEPOT)?,
            Some(8.0),
        ),
        (
            "write and flush, 1 client / qemu-nbd",
            rate(ONE_CLIENT, DEPOT)? / rate(ONE_CLIENT, QEMU)?,
            None,
        ),
        (
            "write and flush, 32 clients / qemu-nbd",
            rate(CLIENTS, DEPOT)? / rate(CLIENTS, QEMU)?,
            None,
        ),
    ] {
        let judged = match goal {
            Some(goal) if ratio >= goal => format!("goal {goal}: kept"),
            Some(goal) => format!("goal {goal}: MISSED"),
            None => String::new(),
        };
        println!("{ratio:7.2}  {what}  {judged}");
    }
    Ok(())
}

/// The depot's counts of unique and duplicate writes: fio's contents are unique where they should be.
fn writes(program: &Path, depot: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command
        .args(["volume", "stats", "--json"])
        .arg(depot)
        .output();
    let output = output.map_err(|error| error.to_string())?;
    let said: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(format!(
        "the depot counts {} unique and {} duplicate writes, and is {} % full",
        said["unique_writes"], said["duplicate_writes"], said["space"]["full_percent"]
    ))
}
