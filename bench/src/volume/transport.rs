//! The costs of NBD over a raw file.

use std::io::Write;
use std::path::{Path, PathBuf};

use onefold_io::Random;

use super::VolumeArgs;
use super::fio::{LOADS, LoadTarget};
use crate::report;
use xtask::serving::{TestServer, version};

const CONTESTANTS: [&str; 4] = ["file", "nbdkit memory", "qemu-nbd", "onefold"];

/// Measures all loads on all contestants in turns, and prints medians and ratios.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    let program = match &args.onefold {
        Some(program) => program.clone(),
        None => build()?,
    };
    let folder = tempfile::tempdir_in(&args.folder).map_err(|error| error.to_string())?;
    let file = folder.path().join("raw");
    fill(&file, args.mib).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("{}", report::machine_line(&report::machine()));
    let versions = ["fio", "qemu-nbd", "nbdkit"].map(version).join(" · ");
    println!(
        "{versions} · {} MiB, {} s, seed {}",
        args.mib, args.seconds, args.seed
    );
    let qemu = TestServer::qemu(&file, folder.path())?;
    let nbdkit = TestServer::nbdkit(args.mib, folder.path())?;
    let onefold = TestServer::onefold(&program, &file, folder.path())?;
    let targets = [
        LoadTarget::File(&file),
        LoadTarget::Uri(&nbdkit.uri),
        LoadTarget::Uri(&qemu.uri),
        LoadTarget::Uri(&onefold.uri),
    ];
    println!(
        "{:<14}{:>12}{:>15}{:>12}{:>12}{:>10}{:>10}{:>12}",
        "a second",
        CONTESTANTS[0],
        CONTESTANTS[1],
        CONTESTANTS[2],
        CONTESTANTS[3],
        "of file",
        "of memory",
        "of qemu-nbd"
    );
    for load in &LOADS {
        let mut rates = vec![Vec::new(); targets.len()];
        for round in 0..args.rounds.max(1) {
            for (target, rates) in targets.iter().zip(&mut rates) {
                let seed = args.seed + round as u64;
                rates.push(load.run(target, args.mib, args.seconds, seed)?);
            }
        }
        let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
        let [file, memory, qemu, ours] = medians[..] else {
            return Err("four contestants".into());
        };
        println!(
            "{:<14}{file:>12.0}{memory:>15.0}{qemu:>12.0}{ours:>12.0}{:>10.2}{:>10.2}{:>12.2}",
            load.name,
            ours / file,
            ours / memory,
            ours / qemu
        );
    }
    Ok(())
}

/// Sorts rates and returns their median.
pub fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Fills a file with bytes that no disk compresses, so that reads never meet a hole.
pub fn fill(path: &Path, mib: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut random = Random(48);
    for _ in 0..mib {
        file.write_all(&random.bytes(1 << 20))?;
    }
    file.sync_all()
}

/// Builds the program for release.
pub fn build() -> Result<PathBuf, String> {
    xtask::program::cargo(&["build", "--release", "--package", "onefold"])?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("onefold"))
}
