//! Runs one command and measures it: wall, CPU, peak RSS, and how busy other processes were meanwhile.
//!
//! A small process of its own starts the command (`bench::child`): figures are those of the command and its children,
//! not the benchmark's.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::child::Child;

/// The figures of several commands together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Seconds from start to exit.
    pub wall_s: f64,
    /// Seconds of user and system time.
    pub cpu_s: f64,
    /// Peak resident set of the largest process.
    pub rss_bytes: u64,
    /// Bytes that came from the disk, not from the page cache.
    pub disk_read_bytes: u64,
    /// Bytes of the source that should be in the page cache; 0 in stages that want none there.
    pub source_bytes: u64,
    /// Bytes of the source in the page cache just before; `None` where the kernel does not tell.
    pub cached_bytes: Option<u64>,
    /// CPU seconds of other processes (and the kernel's own threads) meanwhile.
    pub others_cpu_s: f64,
    /// Seconds of a `sync` right after, for data that the command left unwritten.
    pub sync_s: f64,
}

/// Runs `commands` one after the other, with their output in the file `log`.
pub fn run(commands: Vec<Command>, log: &Path) -> Result<Measured, String> {
    let mut all = Measured::default();
    let busy = busy_s();
    for command in commands {
        let one = run_one(command, log)?;
        all.wall_s += one.wall_s;
        all.cpu_s += one.cpu_s;
        all.rss_bytes = all.rss_bytes.max(one.rss_bytes);
        all.disk_read_bytes += one.disk_read_bytes;
    }
    all.others_cpu_s = (busy_s() - busy - all.cpu_s).max(0.0);
    let start = Instant::now();
    rustix::fs::sync();
    all.sync_s = start.elapsed().as_secs_f64();
    Ok(all)
}

fn run_one(command: Command, log: &Path) -> Result<Measured, String> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    let shown = words.join(" ");
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let open = || -> std::io::Result<File> { File::options().create(true).append(true).open(log) };
    let (out, err) = (open(), open());
    let (Ok(out), Ok(err)) = (out, err) else {
        return Err(format!("{}: cannot be written", log.display()));
    };
    let (child, mut helper) = Child::new(&command).map_err(failed)?;
    helper.stdin(Stdio::null()).stdout(out).stderr(err);
    helper.status().map_err(failed)?;
    let taken = child.taken().map_err(|error| format!("{shown}: {error}"))?;
    if !taken.status.success() {
        let said = std::fs::read(log).unwrap_or_default();
        return Err(format!(
            "{shown}: {}: {}",
            taken.status,
            tail(&String::from_utf8_lossy(&said), 400)
        ));
    }
    Ok(Measured {
        wall_s: taken.wall_s,
        cpu_s: taken.cpu_s,
        rss_bytes: taken.rss_bytes,
        disk_read_bytes: taken.read_bytes,
        ..Measured::default()
    })
}

fn tail(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(chars)).collect()
}

/// Writes dirty pages and empties the page cache. `false` where that is not permitted: figures are then those of a warm
/// cache.
pub fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// CPU seconds of the whole machine since it started.
fn busy_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut fields = stat.lines().next().unwrap_or_default().split_whitespace();
    fields.next();
    // user, nice, system, idle, iowait, irq, softirq, steal: in hundredths of a second
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    let waiting: f64 = ticks.iter().skip(3).take(2).sum();
    (ticks.iter().take(8).sum::<f64>() - waiting) / 100.0
}

/// Bytes of a tree: the lengths of its files, and the space that they take on the disk.
pub fn disk_usage(root: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut apparent, mut blocks) = (0, 0);
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            blocks += metadata.blocks() * 512;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                apparent += metadata.len();
            }
        }
    }
    (apparent, blocks)
}
