//! Other stores at the same work: runs the `rivals` program, which stands outside the workspace, and reads its figures.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::figures::{Figure, Measured};
use super::memory_group::MemoryGroup;
use super::{Error, IndexArgs};

/// Bytes of a key and its value, there.
const RECORD_BYTES: f64 = 40.0;

/// The program at `path`, or built if that is empty.
pub fn program(path: &Path) -> Result<PathBuf, Error> {
    if !path.as_os_str().is_empty() {
        return Ok(path.to_path_buf());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rivals");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked"]);
    let built = build.current_dir(&folder).status()?;
    if !built.success() {
        return Err("the rivals crate did not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| folder.join("target"), PathBuf::from);
    Ok(target.join("release/rivals"))
}

/// Fills `store` in a new folder within `dir`, asks it, and removes it. `None` where it failed, which is printed.
pub fn run(
    args: &IndexArgs,
    program: &Path,
    store: &str,
    budget_mib: usize,
    dir: &Path,
) -> Result<Option<Measured>, Error> {
    let folder = dir.join(store);
    let limit = ((budget_mib + args.slack_mib) as u64) << 20;
    let mut figures = Vec::new();
    let mut peak_kib = 0;
    for verb in ["build", "measure"] {
        let mut command = Command::new(program);
        command.args([verb, "--store", store, "--dir"]).arg(&folder);
        command.args(["--keys", &args.keys.to_string()]);
        command.args(["--budget-mib", &budget_mib.to_string()]);
        command.args(["--seed", &args.seed.to_string()]);
        if verb == "measure" {
            command.args(["--seconds", &args.seconds.to_string()]);
        }
        // B-trees are filled in the order of keys, which must be sorted first
        let is_free = verb == "build" && matches!(store, "redb" | "lmdb");
        let lines = match (!is_free).then(|| MemoryGroup::new(limit)) {
            None => output(command),
            Some(Ok(group)) => output(group.start_in(&command)),
            Some(Err(error)) => {
                println!("{store}: no limit on page cache: {error}");
                output(command)
            }
        };
        match lines {
            Ok(lines) => {
                for line in &lines {
                    figures.push(figure(line));
                    print_line(store, &figures[figures.len() - 1]);
                    if !is_free {
                        peak_kib = peak_kib.max(line["peak_kib"].as_u64().unwrap_or(0));
                    }
                }
            }
            Err(error) => {
                println!("{store}: {verb}: {error}");
                std::fs::remove_dir_all(&folder)?;
                return Ok(None);
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(Some(Measured {
        name: store.to_string(),
        budget_mib,
        ram: (0, 0),
        peak_kib,
        record_bytes: RECORD_BYTES,
        figures,
    }))
}

fn output(mut command: Command) -> Result<Vec<Value>, Error> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{}", output.status).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    let lines = lines.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

fn figure(line: &Value) -> Figure {
    let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
    let keys = number("keys").max(1.0);
    Figure {
        what: line["what"].as_str().unwrap_or("?").to_string(),
        threads: line["threads"].as_u64().unwrap_or(1),
        rate: keys / number("seconds"),
        cpu_us: number("cpu_seconds") * 1e6 / keys,
        reads: number("read_bytes") / 4096.0 / keys,
        written: number("write_bytes") / keys,
    }
}

fn print_line(store: &str, figure: &Figure) {
    println!(
        "{:<34}{:>14.0}{:>12.4}{:>12.2}  {} threads, {:.0} bytes written a key",
        format!("{store}: {}", figure.what),
        figure.rate,
        figure.reads,
        figure.cpu_us,
        figure.threads,
        figure.written
    );
}
