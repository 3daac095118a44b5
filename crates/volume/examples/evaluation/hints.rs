//! Figures 6.1 to 6.3: the hints NODEDUP and PREFETCH over `cbt` with small caches.
//!
//! There is no file system in between: nearly all that `dd` writes is data, and it comes in order. `dd` is one process
//! that waits for what it reads, so gains are told for data and metadata in turns, too.

use crate::findings::{Findings, Measured, parallel};
use crate::likeness::MetadataDevice;
use crate::micro::range;
use crate::paper;
use crate::setup::{CHUNK_BYTES, Modelled, Setup, Spent, Write};
use crate::{Args, Error};

/// Shares of the metadata in the cache (report §6.1).
pub const CACHES: [f64; 4] = [0.01, 0.02, 0.05, 0.1];
const TRANSACTIONS: [u64; 2] = [1000, 1];
/// Bytes that are written, and bytes that are copied (p. 34).
const WRITTEN_BYTES: f64 = 4e9;
const COPIED_BYTES: f64 = 1e9;
/// Part of them where nobody asks for the report's size.
const SCALE: f64 = 1.0 / 16.0;
const REQUEST_CHUNKS: u64 = 160;

/// The use of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Writes it; the hint is NODEDUP.
    Write,
    /// Reads and writes it once more, with so many chunks for each content; the hint is PREFETCH.
    Copy { alike: u64 },
}

struct Load<'a> {
    metadata: MetadataDevice<'a>,
    setup: Setup,
    act: Act,
    /// Chunks of the file.
    chunks: u64,
    is_hinted: bool,
}

/// Figure 6.1.
pub fn nodedup(args: &Args) -> Result<Findings, Error> {
    let found = Findings::new("6.1", "Unique chunks in order, without and with NODEDUP");
    let claims = [
        (paper::NODEDUP, paper::NODEDUP_TURNS),
        (paper::NODEDUP_EACH, paper::NODEDUP_EACH_TURNS),
    ];
    run(args, found, Act::Write, WRITTEN_BYTES, &claims)
}

/// Figure 6.2.
pub fn prefetch(args: &Args) -> Result<Findings, Error> {
    let found = Findings::new("6.2", "A copy of unique chunks, without and with PREFETCH");
    let claims = [
        (paper::PREFETCH, paper::PREFETCH_TURNS),
        (paper::PREFETCH_EACH, paper::PREFETCH_EACH_TURNS),
    ];
    run(args, found, Act::Copy { alike: 1 }, COPIED_BYTES, &claims)
}

/// Figure 6.3.
pub fn prefetch_of_pairs(args: &Args) -> Result<Findings, Error> {
    let found = Findings::new(
        "6.3",
        "A copy of chunks of which two are alike, without and with PREFETCH",
    );
    run(
        args,
        found,
        Act::Copy { alike: 2 },
        COPIED_BYTES,
        &[(paper::PREFETCH_HALF, paper::PREFETCH_HALF_TURNS)],
    )
}

/// Measures all setups without and with the hint; a claim for each length of transactions.
fn run(
    args: &Args,
    mut found: Findings,
    act: Act,
    bytes: f64,
    claims: &[(&'static str, &'static str)],
) -> Result<Findings, Error> {
    let scale = if args.full { 1.0 } else { SCALE };
    let chunks = (bytes * scale) as u64 / CHUNK_BYTES;
    let mut setups = vec![Setup::Raw, Setup::Log];
    for transaction in TRANSACTIONS {
        setups.extend(CACHES.map(|cache| Setup::Cbt { cache, transaction }));
    }
    let mut loads = Vec::new();
    for is_hinted in [false, true] {
        loads.extend(setups.iter().map(|setup| Load {
            metadata: args.hinted_device(),
            setup: *setup,
            act,
            chunks,
            is_hinted,
        }));
    }
    found.measured = parallel(&loads, measure)?;
    let (without, with) = found.measured.split_at(setups.len());
    let faster = |wanted: u64, seconds: fn(&Spent) -> f64| {
        let pairs = without.iter().zip(with);
        let pairs = pairs.filter(|(one, _)| one.setup.is_cbt(wanted));
        range(pairs.map(|(without, with)| seconds(&without.spent) / seconds(&with.spent)))
    };
    let all = TRANSACTIONS.map(|wanted| {
        let side_by_side = faster(wanted, Spent::seconds);
        (side_by_side, faster(wanted, Spent::seconds_in_turns))
    });
    for ((claim, in_turns), (times, times_in_turns)) in claims.iter().zip(all) {
        found.add(claim, times);
        found.add(in_turns, times_in_turns);
    }
    Ok(found)
}

/// Does it, and makes all durable, as the report does with `sync` at the end (p. 32).
fn measure(load: &Load<'_>) -> Result<Measured, Error> {
    let (chunks, alike, is_copy) = match load.act {
        Act::Write => (load.chunks, 1, false),
        Act::Copy { alike } => (load.chunks, alike, true),
    };
    let lbns = if is_copy { 2 * chunks } else { chunks };
    // The second half of a file of pairs repeats the first.
    let unique = chunks / alike;
    let mut device = Modelled::over(load.setup, chunks, lbns, load.metadata)?;
    let write = |device: &mut Modelled, from: u64, to: u64, nodedup: bool| {
        let contents = (from..chunks.min(from + REQUEST_CHUNKS)).map(|chunk| chunk % unique);
        device.write(&[Write {
            lbn: to,
            contents: contents.collect(),
            nodedup,
        }])
    };
    for from in (0..chunks).step_by(REQUEST_CHUNKS as usize) {
        write(&mut device, from, from, !is_copy && load.is_hinted)?;
    }
    device.commit()?;
    if is_copy {
        device.begin();
        for from in (0..chunks).step_by(REQUEST_CHUNKS as usize) {
            let lbns: Vec<u64> = (from..chunks.min(from + REQUEST_CHUNKS)).collect();
            device.read(&lbns, load.is_hinted)?;
            write(&mut device, from, from + chunks, false)?;
        }
        device.commit()?;
    }
    let hint = if load.is_hinted {
        "with the hint"
    } else {
        "no hint"
    };
    Ok(Measured {
        group: hint.to_owned(),
        setup: load.setup,
        chunks,
        spent: device.spent(),
        stored: device.stored_chunks(),
        said: None,
        half_width: None,
    })
}
