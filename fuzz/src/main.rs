//! One fuzz target per decoder: seeded mutations of real bytes, on the stable toolchain. `cargo xtask fuzz` runs it.
//!
//! An input fails when the decoder panics, allocates far more than the input's length bears out, on the heap or in
//! mappings, or takes long. The failing input is written to a file and its seed printed; the same seed repeats it. Half
//! of the time the checksums of what was mutated are made true again ([`mend`]), since a checksum would stop all other
//! mutations at the door; the tests count that enough of them get past it.
#![forbid(unsafe_code)]

mod image;
mod mend;
mod mutate;
mod targets;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use mutate::Mutator;
use onefold_io::os::{mapped_bytes, mapped_peak, reset_mapped_peak};
use peak_alloc::PeakAlloc;
use targets::{Reach, Target};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// One input may take so long.
const INPUT_MAX: Duration = Duration::from_secs(10);

/// Mutates what the decoders read.
#[derive(Parser)]
struct Args {
    /// Seconds for each target.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seed of the mutations. By default the number of the day, so that each day tries other inputs.
    #[arg(long, env = "ONEFOLD_FUZZ_SEED", default_value_t = day())]
    seed: u64,
    /// Targets whose names hold this.
    #[arg(long, default_value = "")]
    only: String,
    /// Run the input in this file once, through the targets that `--only` chooses.
    #[arg(long)]
    input: Option<PathBuf>,
}

/// Days since 1970.
fn day() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_secs() / (24 * 60 * 60))
}

fn main() {
    let args = Args::parse();
    println!(
        "seed {0}: `cargo xtask fuzz --seed {0}` tries the same",
        args.seed
    );
    let mut failed = 0;
    for target in targets::all() {
        if !target.name.contains(&args.only) {
            continue;
        }
        let done = match &args.input {
            Some(path) => std::fs::read(path)
                .map_err(|error| error.to_string())
                .and_then(|input| try_one(&target, &input))
                .map(drop),
            None => fuzz(&target, &args),
        };
        if let Err(error) = done {
            println!("{}: {error}", target.name);
            failed += 1;
        }
    }
    std::process::exit(i32::from(failed > 0));
}

fn fuzz(target: &Target, args: &Args) -> Result<(), String> {
    let start = Instant::now();
    let mut mutator = Mutator::new(args.seed);
    for seed in &target.seeds {
        try_one(target, seed).map_err(|error| format!("an unchanged seed: {error}"))?;
    }
    let (mut inputs, mut inside) = (0u64, 0u64);
    while start.elapsed().as_secs_f64() < args.seconds {
        let input = mutator.mutate(target);
        let reach = try_one(target, &input).map_err(|error| {
            let path = std::env::temp_dir().join(format!("fuzz-{}", target.name.replace('/', "-")));
            let kept = std::fs::write(&path, &input);
            format!(
                "input {inputs}, kept in {} ({kept:?}): {error}\n\
                 `cargo xtask fuzz --seed {} --only {} --seconds 60` comes to it again",
                path.display(),
                args.seed,
                target.name
            )
        })?;
        inputs += 1;
        inside += u64::from(reach == Reach::Inside);
    }
    println!(
        "{:<38}{:>4} seeds {inputs:>9} inputs, {:>3} % past checksums",
        target.name,
        target.seeds.len(),
        inside * 100 / inputs.max(1)
    );
    Ok(())
}

/// Runs the target on one input: how far it came, or what went wrong. `Err` of the decoder is what it is for, not a
/// failure.
fn try_one(target: &Target, input: &[u8]) -> Result<Reach, String> {
    let start = Instant::now();
    ALLOCATOR.reset_peak_usage();
    reset_mapped_peak();
    let (heap, mapped) = (ALLOCATOR.current_usage(), mapped_bytes());
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let heap = ALLOCATOR.peak_usage().saturating_sub(heap);
    let allocated = heap + mapped_peak().saturating_sub(mapped);
    let allowed = target.base_bytes + input.len() * 512;
    let reach = ended.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        format!("panics: {}", text.unwrap_or_default())
    })?;
    if allocated > allowed {
        return Err(format!(
            "allocates {allocated} bytes for an input of {}",
            input.len()
        ));
    }
    if start.elapsed() > INPUT_MAX {
        Err(format!("takes {:?}", start.elapsed()))
    } else {
        Ok(reach)
    }
}
