//! The programs of dedup-bench (Udayashankar et al.), where they are installed: their figures for the same files,
//! beside ours.
//!
//! The configurations for chunks of 8 KB are those that its authors published. The programs write into a folder that
//! they do not create, and accept folders only: they run in a folder of their own with links to the files. Their speed
//! counts the search for cuts alone, on 32 KiB that were just copied.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIGURATIONS: &str = "config_8kb_fast25";
const HASHES: &str = "hashes_8kb_fast25";

/// Runs `dedup.exe` of `folder` on `files` with each configuration, and `measure-dedup.exe` on its output.
pub fn run(folder: &Path, files: &[PathBuf]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if files.is_empty() {
        return Err("dedup-bench needs --data with some files".into());
    }
    let folder = folder.canonicalize().map_err(failed)?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let place = place.path();
    stage(place, files).map_err(|error| format!("{}: {error}", place.display()))?;
    run_all(&folder, place)
}

/// A folder to run in, with links to the files.
fn stage(place: &Path, files: &[PathBuf]) -> std::io::Result<()> {
    std::fs::create_dir_all(place.join(HASHES))?;
    let data = place.join("data");
    std::fs::create_dir(&data)?;
    for (number, file) in files.iter().enumerate() {
        std::os::unix::fs::symlink(file.canonicalize()?, data.join(format!("{number:08}")))?;
    }
    Ok(())
}

fn run_all(folder: &Path, place: &Path) -> Result<(), String> {
    let configurations = folder.join(CONFIGURATIONS);
    let failed = |error: std::io::Error| format!("{}: {error}", configurations.display());
    let entries = std::fs::read_dir(&configurations).map_err(failed)?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    println!("\ndedup-bench: the same files, its configurations for 8 KB");
    println!(
        "{:<22} {:>8} {:>8} {:>8}",
        "chunker", "ratio", "mean", "GB/s"
    );
    for path in paths {
        println!("{}", line(folder, place, &path)?);
    }
    Ok(())
}

fn line(folder: &Path, place: &Path, configuration: &Path) -> Result<String, String> {
    let name = configuration.file_stem().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let cut = output(
        Command::new(folder.join("dedup.exe"))
            .arg("data")
            .arg(configuration)
            .current_dir(place),
    )?;
    let said = String::from_utf8_lossy(&cut.stdout).into_owned();
    let number = |said: &str, label: &str| -> Option<f64> {
        let line = said
            .lines()
            .find_map(|line| line.trim().strip_prefix(label))?;
        line.trim_start_matches([':', ' ']).parse().ok()
    };
    // Where the build lacks the instructions, the program prints that and ends.
    let (Some(mean), Some(speed)) = (
        number(&said, "Avg Chunk size"),
        number(&said, "Chunking Throughput (MB/sec)"),
    ) else {
        let why = said.lines().next().unwrap_or("no figures").to_owned();
        return Ok(format!("{name:<22} {}: {why}", cut.status));
    };
    let hashes = Path::new(HASHES).join(format!("{name}.out"));
    let measured = output(
        Command::new(folder.join("measure-dedup.exe"))
            .arg(hashes)
            .current_dir(place),
    )?;
    let measured = String::from_utf8_lossy(&measured.stdout).into_owned();
    let ratio = number(&measured, "Dedup ratio (DER)");
    let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
    // A megabyte of the program is 2²⁰ bytes.
    let speed = speed * (1 << 20) as f64 / 1e9;
    Ok(format!("{name:<22} {ratio:>8} {mean:>8.0} {speed:>8.2}"))
}

fn output(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_owned();
    let failed = |error| format!("{}: {error}", program.display());
    command.output().map_err(failed)
}
