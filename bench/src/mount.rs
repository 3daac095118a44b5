//! `cargo xtask bench mount`: snapshots as a folder. Reading large files in order, beside a restore of the same, and
//! `find` over very many entries, with the peak RSS of the process that serves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use onefold_io::Random;

use super::report;

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct MountArgs {
    /// Folder for sources, repository and mount, on the disk to measure.
    #[arg(long, default_value = "target/bench/mount")]
    data: PathBuf,
    /// Number of entries for `find`.
    #[arg(long, default_value_t = 290_000)]
    entries: usize,
    /// Size of the large files in MiB, half of unique bytes, half of text.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Rounds; figures are medians.
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// The program to measure. Default: this workspace's, built for release.
    #[arg(long)]
    onefold: Option<PathBuf>,
}

/// Runs the benchmark and prints its table.
pub fn run(args: &MountArgs) -> Result<(), String> {
    let onefold = match &args.onefold {
        Some(program) => program.clone(),
        None => {
            xtask::program::cargo(&["build", "--quiet", "--release", "--package", "onefold"])?;
            PathBuf::from("target/release/onefold")
        }
    };
    let failed = |error: std::io::Error| format!("{}: {error}", args.data.display());
    fs::create_dir_all(&args.data).map_err(failed)?;
    let bench = Bench {
        onefold: onefold.canonicalize().map_err(failed)?,
        data: args.data.canonicalize().map_err(failed)?,
    };
    println!("{}", report::machine_line(&report::machine()));
    bench.make(args).map_err(failed)?;
    let mut rows: [Vec<f64>; 4] = Default::default();
    let mut rss_kib = 0;
    for _ in 0..args.repeat {
        let _ = fs::remove_dir_all(bench.data.join("restored"));
        drop_caches();
        let large = format!("{}/source/large", bench.data.display());
        let args = [&format!("latest:{large}"), "--target", "restored"];
        rows[0].push(bench.timed(&bench.onefold("restore", &args))?);
        drop_caches();
        let mut mounted = bench.mount()?;
        rows[1].push(bench.timed(&format!("cat mnt/latest{large}/* >/dev/null"))?);
        rows[2].push(bench.timed("find mnt/latest/ >/dev/null")?);
        rows[3].push(bench.timed("find mnt/latest/ -printf %s%t >/dev/null")?);
        rss_kib = rss_kib.max(peak_rss_kib(mounted.id()));
        bench.timed("umount mnt")?;
        mounted.wait().map_err(failed)?;
    }
    let names = [
        "restore of the large files",
        "the large files read in order from the mount",
        "find over all entries",
        "find that asks for attributes, once more",
    ];
    for (name, seconds) in names.iter().zip(&rows) {
        let seconds = report::median(seconds).unwrap_or_default();
        println!("{name}: {seconds:.2} s");
    }
    println!("peak RSS of the mount: {} MiB", rss_kib >> 10);
    Ok(())
}

struct Bench {
    onefold: PathBuf,
    data: PathBuf,
}

impl Bench {
    /// Makes sources and a repository of them, unless they exist.
    fn make(&self, args: &MountArgs) -> std::io::Result<()> {
        if self.data.join("repo/config").exists() {
            return Ok(());
        }
        let mut random = Random(1);
        let large = self.data.join("source/large");
        fs::create_dir_all(&large)?;
        for n in 0..args.mib.div_ceil(64) {
            let bytes = match n % 2 {
                0 => random.bytes(64 << 20),
                _ => {
                    let line = |i: usize| format!("line {n} {i} {}\n", random.below(1 << 20));
                    let text: String = (0..3_200_000).map(line).collect();
                    text.into_bytes()
                }
            };
            fs::write(large.join(n.to_string()), bytes)?;
        }
        for n in 0..args.entries {
            let folder = self.data.join(format!("source/many/d{}", n / 100));
            if n.is_multiple_of(100) {
                fs::create_dir_all(&folder)?;
            }
            fs::write(folder.join(format!("file-{n}")), random.bytes(n % 200))?;
        }
        for command in [
            self.onefold("init", &["--encryption", "none"]),
            self.onefold("backup", &["source"]),
        ] {
            self.timed(&command).map_err(std::io::Error::other)?;
        }
        Ok(())
    }

    fn onefold(&self, verb: &str, args: &[&str]) -> String {
        let program = self.onefold.display();
        format!("{program} -r repo {verb} --quiet {}", args.join(" "))
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec {command}")])
            .current_dir(&self.data)
            .stdout(Stdio::null());
        shell
    }

    /// Runs a command; returns its seconds.
    fn timed(&self, command: &str) -> Result<f64, String> {
        let start = Instant::now();
        let command = command.trim_start();
        let status = self.shell(command).status().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(start.elapsed().as_secs_f64())
        } else {
            Err(format!("{command}: {status}"))
        }
    }

    /// Mounts the repository, and returns when it is there.
    fn mount(&self) -> Result<Child, String> {
        fs::create_dir_all(self.data.join("mnt")).map_err(|e| e.to_string())?;
        let command = self.onefold("mount", &["-f", "mnt"]);
        let mut child = self.shell(&command).spawn().map_err(|e| e.to_string())?;
        while !self.data.join("mnt/latest").exists() {
            if child.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Err("the mount ended".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(child)
    }
}

/// Empties the page cache, as far as that is permitted.
fn drop_caches() {
    let _ = Command::new("sync").status();
    let _ = fs::write(Path::new("/proc/sys/vm/drop_caches"), "3");
}

fn peak_rss_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}
