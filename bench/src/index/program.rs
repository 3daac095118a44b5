//! `cargo xtask bench index --program-rss`: RAM of the whole program with a large index.
//!
//! The benchmark makes a repository, fills its index with made-up entries, and backs up one file, as restic's, borg's
//! and rustic's RAM per chunk are measured. The entries point into containers that do not exist: no sweep runs here, so
//! nothing needs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onefold_index::{ChunkIndex, Location, Strata, StrataOptions};
use onefold_io::FileDir;

use onefold_papers::workload::{container_of, seeded_key};

use super::{BATCH, IndexArgs};
use crate::backup::measure;

/// Bytes of the file that is backed up.
const FILE_BYTES: usize = 64 << 20;

/// Makes the repository in `folder`, fills its index, and measures.
pub fn run(args: &IndexArgs, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let program = program(args)?;
    let (repo, file) = (folder.join("repo"), folder.join("file"));
    let (repo_text, file_text) = (text(&repo), text(&file));
    let backup = ["-r", &repo_text, "-q", "backup", &file_text];
    let log = folder.join("log");
    let onefold = |line: &[&str]| {
        let mut command = Command::new(&program);
        command.args(line).env("ONEFOLD_PASSWORD", "bench");
        measure::run(vec![command], &log)
    };
    println!("{}: {} keys in the index", program.display(), args.keys);
    write(&file, args.seed)?;
    onefold(&["-r", &repo_text, "init"])?;
    report("first backup of a file, empty index", onefold(&backup)?);
    fill(&repo.join("index"), args)?;
    write(&file, args.seed + 1)?;
    report("new content, full index", onefold(&backup)?);
    report("the same again", onefold(&backup)?);
    report("stats", onefold(&["-r", &repo_text, "stats"])?);
    Ok(())
}

fn program(args: &IndexArgs) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let beside = std::env::current_exe()?.with_file_name("onefold");
    let program = args.onefold.clone().unwrap_or(beside);
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "{}: build it with `cargo build --release -p onefold`, or name it by --onefold",
        program.display()
    )
    .into())
}

fn fill(folder: &Path, args: &IndexArgs) -> Result<(), Box<dyn std::error::Error>> {
    let options = StrataOptions {
        ram_budget_bytes: args.budget_mib[0] << 20,
        ..StrataOptions::new(args.seed)
    };
    let mut index = Strata::open(Arc::new(FileDir::open(folder)?), options)?;
    for first in (0..args.keys).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(args.keys);
        let entries: Vec<_> = numbers
            .map(|number| {
                let container = container_of(number);
                (seeded_key(args.seed, number), Location { container })
            })
            .collect();
        index.insert(&entries)?;
    }
    index.checkpoint()?;
    index.merge_all()?;
    println!(
        "filled: {} entries, {} MiB",
        index.stats().entries,
        index.stats().disk_bytes >> 20
    );
    Ok(())
}

/// Writes a file of bytes that do not compress.
fn write(path: &Path, seed: u64) -> std::io::Result<()> {
    let bytes: Vec<u8> = (0..FILE_BYTES as u64 / 32)
        .flat_map(|number| seeded_key(!seed, number).0)
        .collect();
    std::fs::write(path, bytes)
}

fn report(what: &str, measured: measure::Measured) {
    println!(
        "{what:<40} peak RSS {:>5} MiB  {:>6.2} s  CPU {:>6.2} s",
        measured.rss_bytes >> 20,
        measured.wall_s,
        measured.cpu_s
    );
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
