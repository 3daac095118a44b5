//! Eight callers on one index, beside one caller with the same keys: pieces of the stream, each in its order. Maps in
//! RAM, one for each caller, show the speed of the machine's cores for callers that share nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onefold_chunk::Fingerprint;
use onefold_index::ChunkIndex;
use onefold_papers::workload::seeded_key;

use super::{Bench, print_value};
use crate::index::{BATCH, Error};

/// Number of callers at once.
const CALLERS: u64 = 8;
/// Number of keys for each caller: some 13 MiB of fingerprints, so that all are made before the clock starts.
const KEYS_EACH: u64 = 400_000;
/// Number of turns of one caller and of eight, so that other work of the machine affects both.
const TURNS: usize = 5;

impl Bench<'_> {
    /// Prints the keys a second of one caller and of eight, and the ratio of the medians.
    pub(super) fn callers(&mut self) -> Result<(), Error> {
        let each = KEYS_EACH.min(self.keys / CALLERS).max(1);
        let piece = |caller: u64| -> Vec<Fingerprint> {
            let first = self.keys / CALLERS * caller;
            let numbers = first..first + each;
            numbers
                .map(|number| seeded_key(self.args.seed, number))
                .collect()
        };
        let pieces: Vec<_> = (0..CALLERS).map(piece).collect();
        let index = self.index.as_shared();
        let maps: Vec<HashMap<Fingerprint, u32>> = pieces
            .iter()
            .map(|piece| piece.iter().copied().zip(0..).collect())
            .collect();
        let ask_index = |_: usize, keys: &[Fingerprint]| ask(index, keys);
        let ask_own_map = |caller: usize, keys: &[Fingerprint]| {
            let is_there = |key| maps[caller].contains_key(key);
            if keys.iter().all(is_there) {
                Ok(())
            } else {
                Err("a key is missing from a map".to_owned())
            }
        };
        let [mut one, mut many, mut one_apart, mut many_apart] = [const { Vec::new() }; 4];
        for _ in 0..TURNS {
            one.push(rate(&pieces, ask_in_turn(&ask_index))?);
            many.push(rate(&pieces, ask_at_once(&ask_index))?);
            one_apart.push(rate(&pieces, ask_in_turn(&ask_own_map))?);
            many_apart.push(rate(&pieces, ask_at_once(&ask_own_map))?);
        }
        let middle = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let (one, many) = (middle(&mut one), middle(&mut many));
        print_value("stream, one caller", one, 0, "median of five turns");
        print_value("stream, eight callers", many, 0, "of all together");
        print_value("eight callers / one", many / one, 2, "≥ 1.6 on two cores");
        let apart = middle(&mut many_apart) / middle(&mut one_apart);
        print_value("eight / one, a map each", apart, 2, "what the cores give");
        Ok(())
    }
}

/// Looks up a caller's keys.
type Ask<'a> = dyn Fn(usize, &[Fingerprint]) -> Result<(), String> + Sync + 'a;

/// One caller looks up the pieces of all.
fn ask_in_turn(ask: &Ask<'_>) -> impl FnOnce(&[Vec<Fingerprint>]) -> Result<(), String> {
    move |pieces| (pieces.iter().enumerate()).try_for_each(|(caller, piece)| ask(caller, piece))
}

/// A thread for each piece looks it up.
fn ask_at_once(ask: &Ask<'_>) -> impl FnOnce(&[Vec<Fingerprint>]) -> Result<(), String> {
    move |pieces| {
        std::thread::scope(|scope| {
            let callers: Vec<_> = (pieces.iter().enumerate())
                .map(|(caller, piece)| scope.spawn(move || ask(caller, piece)))
                .collect();
            let mut ended = callers.into_iter().map(|caller| caller.join());
            ended.try_for_each(|end| end.unwrap_or_else(|_| Err("a caller panicked".into())))
        })
    }
}

/// Keys a second, over all pieces.
fn rate(
    pieces: &[Vec<Fingerprint>],
    run: impl FnOnce(&[Vec<Fingerprint>]) -> Result<(), String>,
) -> Result<f64, Error> {
    let keys: usize = pieces.iter().map(Vec::len).sum();
    let start = Instant::now();
    run(pieces)?;
    let took: Duration = start.elapsed();
    Ok(keys as f64 / took.as_secs_f64())
}

fn ask(index: &dyn ChunkIndex, keys: &[Fingerprint]) -> Result<(), String> {
    let mut found = vec![None; BATCH as usize];
    for batch in keys.chunks(BATCH as usize) {
        let found = &mut found[..batch.len()];
        index
            .lookup(batch, found)
            .map_err(|error| error.to_string())?;
        if found.contains(&None) {
            return Err("a key that is there is not found".into());
        }
    }
    Ok(())
}
