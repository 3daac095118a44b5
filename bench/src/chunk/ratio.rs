//! The dedup ratio (all bytes over bytes of different chunks) at equal means, by interpolation between two means around
//! the target.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onefold_chunk::sieve::Sieve;
use onefold_chunk::{Chunker, Fingerprint};

use super::contestant::Contestant;
use super::{ChunkArgs, QUANTILES, quantiles};

pub fn run(args: &ChunkArgs, all: &[Contestant]) -> Result<(), String> {
    let mut files = Vec::new();
    for path in chosen(args)? {
        let file = std::fs::read(&path);
        files.push(file.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    if bytes == 0 {
        return Err(format!(
            "no file of --data fits into --data-mib {}",
            args.data_mib
        ));
    }
    let target = reachable(args.mean, &files);
    println!(
        "\nratio: {} files, {} MiB, mean {target:.0}",
        files.len(),
        bytes >> 20,
    );
    println!(
        "{:<22} {:>8} {:>8} {QUANTILES}",
        "chunker", "ratio", "asked"
    );
    // Contestants run side by side on all cores: nothing is timed here.
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(vec![String::new(); all.len()]);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Relaxed)) {
            let at = all.iter().position(|other| std::ptr::eq(one, other));
            let line = line(one, target, &files);
            lines.lock().expect("no one panics")[at.expect("it is one of them")] = line;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    for line in lines.into_inner().expect("no one panics") {
        println!("{line}");
    }
    Ok(())
}

/// The mean of the comparison: the requested one, or, where ends of files make so many short chunks that sieve's are
/// shorter, that of sieve, which is printed.
fn reachable(asked: usize, files: &[Vec<u8>]) -> f64 {
    let (mean, _) = deduplicate(&mut Sieve::new(asked), files);
    if mean > 0.9 * asked as f64 {
        return asked as f64;
    }
    println!(
        "\nfiles are so short that chunks of {asked} bytes come out as {mean:.0}: compared at that"
    );
    mean
}

struct Found {
    ratio: f64,
    lengths: Vec<u32>,
}

fn line(one: &Contestant, target: f64, files: &[Vec<u8>]) -> String {
    let (below, above) = one.around(target, |chunker| deduplicate(chunker, files));
    let (Some(below), Some(above)) = (below, above) else {
        return format!("{:<22} {:>8}", one.name, "no such mean");
    };
    let share = (target / below.mean).ln() / (above.mean / below.mean).ln();
    let between = |low: f64, high: f64| low * (high / low).powf(share);
    let mut lengths = if share < 0.5 {
        below.outcome.lengths
    } else {
        above.outcome.lengths
    };
    format!(
        "{:<22} {:>8.4} {:>8.0} {}",
        one.name,
        between(below.outcome.ratio, above.outcome.ratio),
        between(below.asked, above.asked),
        quantiles(&mut lengths)
    )
}

fn deduplicate(chunker: &mut dyn Chunker, files: &[Vec<u8>]) -> (f64, Found) {
    let mut unique = HashMap::new();
    let mut lengths = Vec::new();
    for file in files {
        let mut at = 0;
        chunker.cuts(file, true, &mut |length| {
            unique.insert(Fingerprint::of(&file[at..at + length]), length);
            lengths.push(length as u32);
            at += length;
        });
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    let stored: usize = unique.values().sum();
    let ratio = bytes as f64 / stored.max(1) as f64;
    let mean = bytes as f64 / lengths.len().max(1) as f64;
    (mean, Found { ratio, lengths })
}

/// The regular files to deduplicate, in order of their names, as many as fit.
pub fn chosen(args: &ChunkArgs) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut left) = (Vec::new(), (args.data_mib as u64) << 20);
    for path in &args.data {
        choose(path, &mut files, &mut left)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(files)
}

fn choose(path: &Path, files: &mut Vec<PathBuf>, left: &mut u64) -> std::io::Result<()> {
    let kind = path.symlink_metadata()?;
    if kind.is_dir() {
        let entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
        paths.sort();
        paths
            .iter()
            .try_for_each(|path| choose(path, files, left))?;
    } else if kind.is_file() && kind.len() <= *left {
        *left -= kind.len();
        files.push(path.to_owned());
    }
    Ok(())
}
