//! `cargo xtask bench ram`: the peak RSS of every verb that opens a repository, on one of very many chunks, or of very
//! many files.
//!
//! A stream of different chunks with little content is backed up from a pipe: the machine stores little data of it, but
//! the engine has much metadata. For the same reason most of the files are empty. Then each verb runs on that
//! repository, and the peak of its whole process is compared with the limit. The restore is of a part that needs no
//! room, and of all as a dry run; `--restore` writes all.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::backup::measure::disk_usage;
use super::child::{Child, Taken};
use super::report::{Table, machine, machine_line};

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct RamArgs {
    /// Chunks in the repository; 50 million take about 10 GB of disk.
    #[arg(long, default_value_t = 5_000_000)]
    chunks: u64,
    /// Number of files instead of chunks, in folders of a thousand.
    #[arg(long, conflicts_with_all = ["chunks", "chunk_size"])]
    files: Option<u64>,
    /// Size of a chunk, in bytes.
    #[arg(long, default_value_t = 256)]
    chunk_size: usize,
    /// The limit for each verb, in MiB.
    #[arg(long, default_value_t = 300)]
    limit_mib: u64,
    /// Folder for the repository and the files, removed at the end.
    #[arg(long, default_value = "target/bench-ram")]
    dir: PathBuf,
    /// Restore all data, too: that takes chunks × chunk size of disk.
    #[arg(long)]
    restore: bool,
    /// The program to measure. Default: this workspace's, built for release.
    #[arg(long)]
    onefold: Option<PathBuf>,
}

/// A stream of different chunks: each begins with its number, the rest is zeros.
#[derive(Clone, Copy)]
struct NumberedStream {
    first: u64,
    chunks: u64,
    chunk_size: usize,
}

impl NumberedStream {
    /// Writes the stream. Fails where the reader ends early, as after an error: its own exit code tells more.
    fn write(self, out: impl Write) -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, out);
        let mut chunk = vec![0; self.chunk_size];
        for number in self.first..self.first + self.chunks {
            chunk[..8].copy_from_slice(&number.to_le_bytes());
            out.write_all(&chunk)?;
        }
        out.flush()
    }
}

/// Runs the benchmark and prints its table; fails if a verb fails or exceeds the limit.
pub fn run(args: &RamArgs) -> Result<(), String> {
    if args.chunk_size < 8 {
        return Err("a chunk of this benchmark has 8 bytes at least".into());
    }
    println!("{}", machine_line(&machine()));
    let mut bench = Bench::new(args)?;
    let done = match args.files {
        Some(files) => bench.life_of_files(files),
        None => bench.life_of_chunks(),
    };
    let done = done.and_then(|()| bench.report());
    let removed = std::fs::remove_dir_all(&args.dir).map_err(|error| error.to_string());
    done.and(removed)
}

/// Makes `files` files below `root`; each sixteenth holds its number.
fn make_files(root: &Path, files: u64) -> std::io::Result<()> {
    for first in (0..files).step_by(1000) {
        let folder = root.join(format!("{:03}/{:06}", first / 1_000_000, first / 1000));
        std::fs::create_dir_all(&folder)?;
        for number in first..files.min(first + 1000) {
            let file = folder.join(format!("file-{number}"));
            let content = number.to_le_bytes();
            std::fs::write(file, if number % 16 == 0 { &content[..] } else { &[] })?;
        }
    }
    Ok(())
}

/// The words of a command for the table, without those in `without`, which tell a reader nothing.
fn shown(words: &[&str], without: &[&str]) -> String {
    let words = words.iter().filter(|word| !without.contains(word));
    words.copied().collect::<Vec<_>>().join(" ")
}

struct Bench<'a> {
    args: &'a RamArgs,
    program: PathBuf,
    repository: PathBuf,
    restored: PathBuf,
    table: Table,
    /// Verbs that exceeded the limit.
    over: Vec<String>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a RamArgs) -> Result<Self, String> {
        let program = match &args.onefold {
            Some(program) => program.clone(),
            None => {
                xtask::program::cargo(&["build", "--release", "--package", "onefold"])?;
                let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
                Path::new(&target).join("release/onefold")
            }
        };
        std::fs::create_dir(&args.dir)
            .map_err(|error| format!("{}: {error}", args.dir.display()))?;
        Ok(Self {
            args,
            program,
            repository: args.dir.join("repository"),
            restored: args.dir.join("restored"),
            table: Table {
                head: vec!["verb", "wall s", "CPU s", "peak RSS MiB", "of the limit"],
                words: 1,
                rows: Vec::new(),
            },
            over: Vec::new(),
        })
    }

    fn life_of_chunks(&mut self) -> Result<(), String> {
        let chunk_size = self.args.chunk_size;
        let all = NumberedStream {
            first: 0,
            chunks: self.args.chunks,
            chunk_size,
        };
        let of_all = |part: u64| NumberedStream {
            chunks: self.args.chunks / part,
            ..all
        };
        let (half, part) = (of_all(2), of_all(1000));
        let chunk_size = chunk_size.to_string();
        let init = ["init", "--chunker", "fixed", "--chunk-size", &chunk_size];
        self.measure("init", &init, None)?;
        let backup = |tag| ["backup", "--stdin", "--tag", tag];
        let backup_part = [&backup("part")[..], &["--stdin-filename", "part"]].concat();
        self.measure("backup, all new", &backup("first"), Some(all))?;
        self.measure("backup, nothing new", &backup("again"), Some(all))?;
        self.measure("backup, a thousandth", &backup_part, Some(part))?;
        self.measure("backup, half of it", &backup("half"), Some(half))?;
        self.readers("stdin", &["--tag", "part", "--include", "/part"])?;
        self.measure("dump, half of it", &["dump", "latest", "stdin"], None)?;
        self.writers()?;
        let forget = |tag| ["forget", "--tag", tag, "--unsafe-allow-remove-all"];
        self.measure("forget", &forget("first"), None)?;
        self.measure("forget", &forget("again"), None)?;
        self.measure("prune, half of it", &["prune"], None)?;
        self.measure("check", &["check"], None)
    }

    fn life_of_files(&mut self, files: u64) -> Result<(), String> {
        let tree = std::path::absolute(self.args.dir.join("tree"));
        let tree = tree.map_err(|error| error.to_string())?;
        make_files(&tree, files).map_err(|error| error.to_string())?;
        let tree = tree.to_string_lossy();
        self.measure("init", &["init"], None)?;
        self.measure("backup, all new", &["backup", &tree], None)?;
        self.measure("backup, nothing new", &["backup", &tree], None)?;
        let forced = ["backup", "--force", "--tag", "forced", &tree];
        self.measure("backup --force", &forced, None)?;
        self.readers("file-77", &["--include", &format!("{tree}/000/000000")])?;
        self.writers()?;
        let forget = ["forget", "--keep-last", "1", "--prune"];
        self.measure("forget --prune", &forget, None)
    }

    /// Runs the reading verbs on either repository: `find` looks for `name`, and `restore` takes the part of the latest
    /// snapshot that the flags `part` choose.
    fn readers(&mut self, name: &str, part: &[&str]) -> Result<(), String> {
        let [first, last] = self.first_and_last()?;
        for words in [
            &["snapshots"][..],
            &["ls", "latest"],
            &["find", name],
            &["diff", &first, &last],
            &["list", "snapshots"],
            &["list", "containers"],
            &["list", "chunks"],
            &["key", "list"],
            &["cat", "config"],
            &["cat", "snapshot", "latest"],
            &["unlock"],
            &["stats", "--mode", "raw-data"],
            &["check"],
            &["check", "--read-data"],
        ] {
            self.measure(&shown(words, &[&first, &last, name]), words, None)?;
        }
        let target = self.restored.to_string_lossy().into_owned();
        let dry = ["restore", &first, "--target", &target, "--dry-run"];
        self.measure("restore --dry-run", &dry, None)?;
        let of_part = [&["restore", "latest", "--target", &target][..], part].concat();
        self.restore("restore, a part", &of_part)?;
        if self.args.restore {
            self.restore("restore", &["restore", &first, "--target", &target])
        } else {
            Ok(())
        }
    }

    fn restore(&mut self, name: &str, words: &[&str]) -> Result<(), String> {
        self.measure(name, words, None)?;
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let is_empty = std::fs::read_dir(&self.restored)
            .map_err(failed)?
            .next()
            .is_none();
        std::fs::remove_dir_all(&self.restored).map_err(failed)?;
        if is_empty {
            Err(format!("{name}: there is nothing in the target"))
        } else {
            Ok(())
        }
    }

    /// Runs the writing verbs on either repository, except those that remove snapshots.
    fn writers(&mut self) -> Result<(), String> {
        for words in [
            &["tag", "latest", "--add", "seen"][..],
            &["repair", "snapshots", "--dry-run"],
            &["repair", "index"],
            &["repair"],
        ] {
            self.measure(&shown(words, &[]), words, None)?;
        }
        self.measure("prune, nothing to do", &["prune"], None)
    }

    /// The ids of the oldest snapshot and of the newest.
    fn first_and_last(&self) -> Result<[String; 2], String> {
        let output = self.command(&["snapshots", "--json"]).output();
        let output = output.map_err(|error| format!("snapshots: {error}"))?;
        let listed: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("snapshots: {error}"))?;
        let all = listed.as_array().map_or(&[][..], Vec::as_slice);
        let id = |snapshot: Option<&Value>| {
            let id = snapshot.and_then(|snapshot| snapshot["id"].as_str());
            id.map(str::to_string).ok_or("there is no snapshot")
        };
        Ok([id(all.first())?, id(all.last())?])
    }

    fn report(&self) -> Result<(), String> {
        println!("\n{}", self.table.markdown());
        let stored = disk_usage(&self.repository).0 / 1_000_000;
        println!("repository: {stored} MB");
        match self.over.as_slice() {
            [] => Ok(()),
            over => Err(format!(
                "over {} MiB: {}",
                self.args.limit_mib,
                over.join(", ")
            )),
        }
    }

    fn measure(
        &mut self,
        name: &str,
        words: &[&str],
        stream: Option<NumberedStream>,
    ) -> Result<(), String> {
        let taken = self.run(words, stream)?;
        if taken.rss_bytes > self.args.limit_mib << 20 {
            self.over.push(name.to_string());
        }
        let row = self.row(name, &taken);
        println!("{}", row.join("  "));
        self.table.rows.push(row);
        Ok(())
    }

    fn row(&self, name: &str, taken: &Taken) -> Vec<String> {
        let mib = taken.rss_bytes as f64 / f64::from(1 << 20);
        vec![
            name.to_string(),
            format!("{:.1}", taken.wall_s),
            format!("{:.1}", taken.cpu_s),
            format!("{mib:.0}"),
            format!("{:.2}", mib / self.args.limit_mib as f64),
        ]
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--repo").arg(&self.repository);
        command.env("ONEFOLD_PASSWORD", "bench");
        command
    }

    /// Runs the program to its end, with `stream` as its input.
    fn run(&self, words: &[&str], stream: Option<NumberedStream>) -> Result<Taken, String> {
        let mut command = self.command(words);
        command.arg("--quiet");
        let shown = words.join(" ");
        let failed = |error: std::io::Error| format!("{shown}: {error}");
        let (child, mut helper) = Child::new(&command).map_err(failed)?;
        helper.stdout(Stdio::null()).stdin(match stream {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        });
        let mut running = helper.spawn().map_err(failed)?;
        // Dropped when the stream is written, or when its reader is gone.
        let pipe = running.stdin.take();
        let fed = match (stream, pipe) {
            (Some(stream), Some(pipe)) => stream.write(pipe),
            _ => Ok(()),
        };
        running.wait().map_err(failed)?;
        let taken = child.taken().map_err(|error| format!("{shown}: {error}"))?;
        if !taken.status.success() {
            return Err(format!("{shown}: {}", taken.status));
        }
        fed.map_err(failed)?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_chunks_of_a_stream_are_equal() {
        let stream = NumberedStream {
            first: 7,
            chunks: 5_000,
            chunk_size: 24,
        };
        let mut bytes = Vec::new();
        stream.write(&mut bytes).unwrap();
        let chunks: HashSet<&[u8]> = bytes.chunks(24).collect();
        assert_eq!((chunks.len(), bytes.len()), (5_000, 5_000 * 24));
    }
}
