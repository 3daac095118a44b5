//! Speed: thread CPU time over random data that no cache holds.

use super::contestant::{Contestant, PEER, count};
use onefold_io::Random;

use super::ChunkArgs;

/// Bytes on which the mean to ask for is determined.
const SAMPLE_BYTES: usize = 64 << 20;

pub fn run(args: &ChunkArgs, all: &[Contestant]) -> Result<(), String> {
    let data = Random(1).bytes(args.mib << 20);
    let sample = &data[..data.len().min(SAMPLE_BYTES)];
    let target = args.mean as f64;
    let asked: Vec<f64> = all
        .iter()
        .map(|one| one.asked_for(target, sample))
        .collect();
    let mut best = vec![f64::MAX; all.len()];
    let mut chunks = vec![0; all.len()];
    for _ in 0..args.rounds {
        for (i, one) in all.iter().enumerate() {
            let mut chunker = one.chunker(asked[i]);
            let begin = thread_seconds();
            chunks[i] = count(&mut *chunker, &data);
            best[i] = best[i].min(thread_seconds() - begin);
        }
    }
    println!("\nspeed: random data, {} MiB, one core, CPU time", args.mib);
    println!(
        "{:<22} {:>8} {:>9} {:>8} {:>8}",
        "chunker", "GB/s", "× crate", "mean", "asked"
    );
    let peer = all.iter().position(|one| one.name == PEER);
    for (i, one) in all.iter().enumerate() {
        let ratio = peer.map_or(f64::NAN, |peer| best[peer] / best[i]);
        let mean = data.len() as f64 / chunks[i] as f64;
        println!(
            "{:<22} {:>8.2} {:>9.2} {:>8.0} {:>8.0}{}",
            one.name,
            data.len() as f64 / best[i] / 1e9,
            ratio,
            mean,
            asked[i],
            if (mean / target - 1.0).abs() > 0.02 {
                "  (mean not within 2 %)"
            } else {
                ""
            },
        );
    }
    Ok(())
}

pub fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
