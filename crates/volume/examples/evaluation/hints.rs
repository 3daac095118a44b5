//! Figure 6.1: 4 GB of unique chunks written in order over `cbt` with small caches, with and without the hint NODEDUP.
//!
//! There is no file system in between: nearly all that `dd` writes is data, and it comes in order.

use onefold_io::FlashModel;

use crate::findings::{Findings, Measured, parallel};
use crate::micro::range;
use crate::paper;
use crate::setup::{CHUNK_BYTES, Modelled, Setup, Write};
use crate::{Args, Error};

/// Shares of the metadata in the cache (report §6.1).
const CACHES: [f64; 4] = [0.01, 0.02, 0.05, 0.1];
const TRANSACTIONS: [u64; 2] = [1000, 1];
/// Bytes that are written (p. 34).
const BYTES: f64 = 4e9;
/// Part of it where nobody asks for the report's size.
const SCALE: f64 = 1.0 / 16.0;
const REQUEST_CHUNKS: u64 = 160;

struct Load {
    setup: Setup,
    chunks: u64,
    nodedup: bool,
}

/// Figure 6.1.
pub fn nodedup(args: &Args) -> Result<Findings, Error> {
    let scale = if args.full { 1.0 } else { SCALE };
    let chunks = (BYTES * scale) as u64 / CHUNK_BYTES;
    let mut setups = vec![Setup::Raw, Setup::Log];
    for transaction in TRANSACTIONS {
        setups.extend(CACHES.map(|cache| Setup::Cbt { cache, transaction }));
    }
    let mut loads = Vec::new();
    for nodedup in [false, true] {
        loads.extend(setups.iter().map(|setup| Load {
            setup: *setup,
            chunks,
            nodedup,
        }));
    }
    let mut found = Findings::new("6.1", "Unique chunks in order, without and with NODEDUP");
    found.measured = parallel(&loads, measure)?;
    let (without, with) = found.measured.split_at(setups.len());
    let faster = |wanted: u64| {
        let pairs = without
            .iter()
            .zip(with)
            .filter(|(one, _)| one.setup.is_cbt(wanted));
        range(pairs.map(|(without, with)| with.mb_s() / without.mb_s()))
    };
    let (thousand, each) = (faster(1000), faster(1));
    found.add(paper::NODEDUP, thousand);
    found.add(paper::NODEDUP_EACH, each);
    Ok(found)
}

/// Writes all, and makes it durable, as the report does with `sync` at the end (p. 32).
fn measure(load: &Load) -> Result<Measured, Error> {
    let flash: fn(u64) -> FlashModel = FlashModel::s3700;
    let mut device = Modelled::over(load.setup, load.chunks, load.chunks, flash)?;
    for lbn in (0..load.chunks).step_by(REQUEST_CHUNKS as usize) {
        let contents = (lbn..load.chunks.min(lbn + REQUEST_CHUNKS)).collect();
        let nodedup = load.nodedup;
        device.write(&[Write {
            lbn,
            contents,
            nodedup,
        }])?;
    }
    device.commit()?;
    let hint = if load.nodedup { "NODEDUP" } else { "no hint" };
    Ok(Measured {
        group: hint.to_owned(),
        setup: load.setup,
        chunks: load.chunks,
        spent: device.spent(),
        stored: device.stored_chunks(),
        said: None,
        half_width: None,
    })
}
