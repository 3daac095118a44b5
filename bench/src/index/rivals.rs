//! Other stores at the same work: runs the `rivals` program, which is outside the workspace, and reads its figures.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::figures::{Figure, MeasuredStore, PAGE_BYTES};
use super::memory_group::MemoryGroup;
use super::{Error, IndexArgs};

/// The signal by which the system kills a process for its use of memory.
const KILLED: i32 = 9;

/// The program at `path`; an empty path builds it.
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
) -> Result<Option<MeasuredStore>, Error> {
    let mut rival = Rival {
        args,
        program,
        store,
        folder: dir.join(store),
        limit: ((budget_mib + args.slack_mib) as u64) << 20,
        budget_mib,
        given_mib: budget_mib,
        keys: args.keys,
        peak_kib: 0,
    };
    let figures = rival.built_and_asked();
    if rival.folder.is_dir() {
        std::fs::remove_dir_all(&rival.folder)?;
    }
    let figures = match figures {
        Ok(figures) => figures,
        Err(error) => {
            println!("{store}: {error}");
            return Ok(None);
        }
    };
    let name = if rival.given_mib == budget_mib {
        store.to_string()
    } else {
        format!("{store} (given {})", rival.given_mib)
    };
    Ok(Some(MeasuredStore {
        name,
        budget_mib,
        keys: rival.keys,
        ram: (0, 0),
        peak_kib: rival.peak_kib,
        figures,
    }))
}

/// Another store at work.
struct Rival<'a> {
    args: &'a IndexArgs,
    program: &'a Path,
    store: &'a str,
    folder: PathBuf,
    /// Largest RAM of the store's processes, in bytes.
    limit: u64,
    budget_mib: usize,
    /// RAM that the store is told to take for caches, filters and write buffers: less than the budget if it exceeded
    /// the limit.
    given_mib: usize,
    keys: u64,
    peak_kib: u64,
}

impl Rival<'_> {
    fn built_and_asked(&mut self) -> Result<Vec<Figure>, Error> {
        // B-trees are filled in the order of keys, which must be sorted first
        let is_free = matches!(self.store, "redb" | "lmdb");
        let mut seconds = self.args.insert_seconds.unwrap_or(u64::MAX);
        let mut figures = Vec::new();
        for (verb, is_free) in [("build", is_free), ("measure", false)] {
            let lines = self.held(verb, seconds, is_free)?;
            seconds = self.args.seconds;
            for line in &lines {
                let figure = figure(line);
                print_line(self.store, &figure);
                figures.push(figure);
                if !is_free {
                    self.peak_kib = self.peak_kib.max(line["peak_kib"].as_u64().unwrap_or(0));
                }
            }
            if let ("build", Some(line)) = (verb, lines.first()) {
                self.keys = line["keys"].as_u64().unwrap_or(self.keys);
            }
        }
        Ok(figures)
    }

    /// Runs a verb within the limit, with ever smaller caches until it stays below.
    fn held(&mut self, verb: &str, seconds: u64, is_free: bool) -> Result<Vec<Value>, Error> {
        loop {
            let command = self.command(verb, seconds);
            let ended = match (!is_free).then(|| MemoryGroup::new(self.limit)) {
                None => output(command),
                Some(Ok(group)) => output(group.start_in(&command)),
                Some(Err(error)) => {
                    println!("{}: no limit on its memory: {error}", self.store);
                    output(command)
                }
            };
            let killed = match ended {
                Ok(lines) => return Ok(lines),
                Err(Ended::Killed) => format!(
                    "{} takes more than {} MiB with {} for caches, filters and buffers",
                    self.store,
                    self.limit >> 20,
                    self.given_mib
                ),
                Err(Ended::Failed(error)) => return Err(error),
            };
            println!("{killed}");
            self.given_mib = self.given_mib * 3 / 4;
            if self.given_mib < (self.budget_mib / 5).max(1) {
                return Err(killed.into());
            }
            if verb == "build" && self.folder.is_dir() {
                std::fs::remove_dir_all(&self.folder)?;
            }
        }
    }

    fn command(&self, verb: &str, seconds: u64) -> Command {
        let mut command = Command::new(self.program);
        command.args([verb, "--store", self.store, "--dir"]);
        command.arg(&self.folder);
        command.args(["--keys", &self.keys.to_string()]);
        command.args(["--budget-mib", &self.given_mib.to_string()]);
        command.args(["--seed", &self.args.seed.to_string()]);
        command.args(["--seconds", &seconds.to_string()]);
        // the arenas of many threads are RAM that the store does not know of
        command.env("MALLOC_ARENA_MAX", "2");
        command
    }
}

/// The end of a process that did not do its work.
enum Ended {
    /// Killed by the system for lack of memory.
    Killed,
    Failed(Error),
}

fn output(mut command: Command) -> Result<Vec<Value>, Ended> {
    let failed = |error: Error| Ended::Failed(error);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| failed(error.into()))?;
    if output.status.signal() == Some(KILLED) {
        return Err(Ended::Killed);
    }
    if !output.status.success() {
        return Err(failed(output.status.to_string().into()));
    }
    let text = String::from_utf8(output.stdout).map_err(|error| failed(error.into()))?;
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.into()))
}

fn figure(line: &Value) -> Figure {
    let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
    let keys = number("keys").max(1.0);
    Figure {
        what: line["what"].as_str().unwrap_or("?").to_string(),
        threads: line["threads"].as_u64().unwrap_or(1),
        rate: keys / number("seconds"),
        cpu_us: number("cpu_seconds") * 1e6 / keys,
        pages: number("read_bytes") / PAGE_BYTES as f64 / keys,
        written: number("write_bytes") / keys,
    }
}

fn print_line(store: &str, figure: &Figure) {
    println!(
        "{:<34}{:>14.0}{:>12.4}{:>12}{:>12.2}  {} threads, {:.0} bytes written a key",
        format!("{store}: {}", figure.what),
        figure.rate,
        figure.pages,
        "",
        figure.cpu_us,
        figure.threads,
        figure.written
    );
}
