//! `cargo xtask bench fbc`: Frequency-Based Chunking beside the content-defined chunkers, at equal average chunk size.
//!
//! The stream is like the dissertation's: one version of a source tree after the other, each as a tar whose members all
//! have the version's own time, as in release archives. Ratios at equal size are read off each chunker's curve, by
//! straight lines over the logarithm of the size.

mod exact;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use onefold_chunk::fbc::{Estimator, Fbc, Params};
use onefold_chunk::{Chunker, Fingerprint, by_name};

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct FbcArgs {
    /// Versions of one source tree, in order.
    pub versions: Vec<PathBuf>,
    /// Largest number of MiB of each version.
    #[arg(long, default_value_t = 24)]
    pub mib: usize,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Largest number of segments that are tracked.
    #[arg(long, default_value_t = Params::ENTRIES_MAX)]
    pub entries: usize,
    /// Means of the other chunkers, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024, 2048, 4096, 8192, 16384])]
    pub means: Vec<usize>,
    /// Frequent segments of the two passes, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024, 2048, 4096, 8192])]
    pub segments: Vec<usize>,
    /// Means of the one pass, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024, 2048, 4096, 8192])]
    pub one_pass: Vec<usize>,
    /// Only two passes without an escape frequency, and one pass without the sketch of an earlier run.
    #[arg(long)]
    pub plain: bool,
    /// Threshold: segments estimated to occur more often are frequent.
    #[arg(long, default_value_t = 5)]
    pub threshold: u32,
    /// Mean of a coarse chunk, in segments.
    #[arg(long, default_value_t = 16)]
    pub stage_ratio: usize,
    /// Compare the estimator's counts with exact ones, and nothing else.
    #[arg(long)]
    pub exact: bool,
    /// Files without tar headers.
    #[arg(long)]
    pub bare: bool,
}

/// One run of one chunker.
struct Point {
    name: String,
    bytes_mean: f64,
    ratio: f64,
    ratio_meta: f64,
    table_bytes: usize,
}

/// Runs the benchmark and prints its tables.
pub fn run(args: &FbcArgs) -> Result<(), String> {
    let mut stream = Vec::new();
    for (time, version) in args.versions.iter().enumerate() {
        let mut left = args.mib << 20;
        append(version, time, args.bare, &mut left, &mut stream)
            .map_err(|error| format!("{}: {error}", version.display()))?;
    }
    println!(
        "{} versions, {} MiB, seed {}",
        args.versions.len(),
        stream.len() >> 20,
        args.seed
    );
    if args.exact {
        exact::run(&stream, &args.segments, args.entries, args.seed);
        return Ok(());
    }
    let mut points = Vec::new();
    for mean in args.means.iter().copied() {
        for name in ["rabin", "fastcdc", "sieve"] {
            let mut chunker = by_name(name, mean, None).map_err(|error| error.to_string())?;
            points.push(measure(name, &mut *chunker, &stream));
        }
    }
    let escapes = [None, Some(2 * args.versions.len() as u32), Some(5)];
    for segment in args.segments.iter().copied() {
        for escape in escapes.into_iter().take(if args.plain { 1 } else { 3 }) {
            points.push(two_passes(segment, escape, args, &stream));
        }
    }
    for mean in args.one_pass.iter().copied() {
        let mut one = Fbc::one_pass(mean);
        let mut point = measure("fbc one pass", &mut one, &stream);
        point.table_bytes = one.bytes();
        points.push(point);
        if args.plain {
            continue;
        }
        let mut again = Fbc::informed(mean, one.segments().clone());
        points.push(measure("fbc informed", &mut again, &stream));
    }
    print(&points);
    Ok(())
}

fn two_passes(segment: usize, escape: Option<u32>, args: &FbcArgs, stream: &[u8]) -> Point {
    let params = Params {
        escape,
        entries_max: args.entries,
        threshold: args.threshold,
        stage_ratio: args.stage_ratio,
        ..Params::new(segment)
    };
    let mut estimator = Estimator::new(params, args.seed);
    estimator.feed(stream);
    let table_bytes = estimator.bytes();
    let name = match escape {
        None => "fbc two passes".to_owned(),
        Some(escape) => format!("fbc two, escape {escape}"),
    };
    let mut point = measure(&name, &mut Fbc::with(params, estimator.finish()), stream);
    point.table_bytes = table_bytes;
    point
}

/// Cuts the stream; the metadata is that of eq. 2.3.
fn measure(name: &str, chunker: &mut dyn Chunker, stream: &[u8]) -> Point {
    let (mut rest, mut chunks) = (stream, 0u64);
    let mut unique = HashMap::new();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunker.cut(rest));
        unique.insert(Fingerprint::of(chunk).prefix(), chunk.len());
        chunks += 1;
        rest = after;
    }
    let stored = unique.values().sum::<usize>() as f64;
    let distinct = unique.len() as f64;
    let metadata = distinct * distinct.log2() / 8.0 + 20.0 * chunks as f64;
    Point {
        name: name.to_owned(),
        bytes_mean: stream.len() as f64 / chunks as f64,
        ratio: stream.len() as f64 / stored,
        ratio_meta: stream.len() as f64 / (stored + metadata),
        table_bytes: 0,
    }
}

fn print(points: &[Point]) {
    println!(
        "\n{:<20} {:>8} {:>7} {:>9} {:>10} {:>9} {:>10}",
        "chunker", "ACS", "DER", "DER meta", "× rabin", "× sieve", "ACS × rabin"
    );
    for point in points {
        let against = |name| match curve(
            points,
            name,
            |p| p.bytes_mean.ln(),
            |p| p.ratio,
            point.bytes_mean.ln(),
        ) {
            Some(ratio) => format!("{:.2}", point.ratio / ratio),
            None => "-".into(),
        };
        let longer = curve(
            points,
            "rabin",
            |p| p.ratio,
            |p| p.bytes_mean.ln(),
            point.ratio,
        );
        println!(
            "{:<20} {:>8.0} {:>7.3} {:>9.3} {:>10} {:>9} {:>10} {:>6} KiB",
            point.name,
            point.bytes_mean,
            point.ratio,
            point.ratio_meta,
            against("rabin"),
            against("sieve"),
            longer.map_or("-".into(), |log| format!(
                "{:.2}",
                point.bytes_mean / log.exp()
            )),
            point.table_bytes >> 10,
        );
    }
    println!("\none pass against two passes, DER at equal ACS:");
    for point in points.iter().filter(|point| point.name == "fbc one pass") {
        let two = |p: &Point| p.bytes_mean.ln();
        if let Some(ratio) = curve(
            points,
            "fbc two passes",
            two,
            |p| p.ratio,
            point.bytes_mean.ln(),
        ) {
            println!("ACS {:>6.0}: {:.3}", point.bytes_mean, point.ratio / ratio);
        }
    }
}

/// The value of `y` at `x` on a chunker's curve; `None` beyond its ends.
fn curve(
    points: &[Point],
    name: &str,
    x_of: impl Fn(&Point) -> f64,
    y_of: impl Fn(&Point) -> f64,
    x: f64,
) -> Option<f64> {
    let mut line: Vec<_> = points
        .iter()
        .filter(|point| point.name == name)
        .map(|point| (x_of(point), y_of(point)))
        .collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line.windows(2).find_map(|pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        (x0 <= x && x <= x1).then(|| y0 + (y1 - y0) * (x - x0) / (x1 - x0).max(1e-12))
    })
}

/// Appends files in order of their names, each behind a ustar header of this version's time, while they fit.
fn append(
    folder: &Path,
    time: usize,
    bare: bool,
    left: &mut usize,
    stream: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            append(&entry.path(), time, bare, left, stream)?;
        } else if kind.is_file() && entry.metadata()?.len() <= *left as u64 {
            let file = std::fs::read(entry.path())?;
            *left = left.saturating_sub(file.len() + 1024);
            if !bare {
                stream.extend(header(&entry.path(), file.len(), time));
            }
            stream.extend(&file);
            if !bare {
                stream.resize(stream.len().next_multiple_of(512), 0);
            }
        }
    }
    Ok(())
}

fn header(path: &Path, bytes: usize, time: usize) -> [u8; 512] {
    let mut block = [0; 512];
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = &name[..name.len().min(100)];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{bytes:011o}\0").as_bytes());
    block[136..148]
        .copy_from_slice(format!("{:011o}\0", 1_700_000_000 + time * 1_000_003).as_bytes());
    block[156] = b'0';
    block[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
