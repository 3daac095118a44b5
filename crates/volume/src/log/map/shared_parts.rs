//! Parts of maps that heads share. A snapshot's list of runs is a copy, so most of it stays the same as its volume's:
//! whoever reads the maps of all heads reads such a part once.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::levels::{Levels, overlapping};
use super::run_id::RunId;

/// Some LBNs in which one or more heads have the same runs in the same order.
pub struct SharedPart {
    /// The LBNs.
    pub lbns: Range<u64>,
    /// The levels of any of these heads.
    pub levels: Arc<Levels>,
    /// How many heads share it.
    pub heads: u64,
}

/// Cuts the maps of all heads into parts, each of which stands for all heads that have the same runs there. Together
/// they say what all heads say.
pub fn distinct_parts(heads: &[Arc<Levels>]) -> Vec<SharedPart> {
    if let [alone] = heads {
        return vec![SharedPart {
            lbns: 0..u64::MAX,
            levels: Arc::clone(alone),
            heads: 1,
        }];
    }
    // The parts that each head stands for.
    let mut parts: Vec<Vec<(Range<u64>, u64)>> = vec![Vec::new(); heads.len()];
    for lbns in stretches(heads) {
        let mut sharing: HashMap<Vec<RunId>, (usize, u64)> = HashMap::new();
        for (at, levels) in heads.iter().enumerate() {
            let runs = runs_at(levels, &lbns);
            if !runs.is_empty() {
                sharing.entry(runs).or_insert((at, 0)).1 += 1;
            }
        }
        for (at, count) in sharing.into_values() {
            match parts[at].last_mut() {
                Some((last, sharers)) if last.end == lbns.start && *sharers == count => {
                    last.end = lbns.end;
                }
                _ => parts[at].push((lbns.clone(), count)),
            }
        }
    }
    let of_head = |(levels, parts): (&Arc<Levels>, Vec<(Range<u64>, u64)>)| {
        let levels = Arc::clone(levels);
        let shared = parts.into_iter().map(move |(lbns, heads)| SharedPart {
            lbns,
            levels: Arc::clone(&levels),
            heads,
        });
        shared.collect::<Vec<_>>()
    };
    heads.iter().zip(parts).flat_map(of_head).collect()
}

/// The stretches of LBNs in which two heads have other runs, or other levels of them, in order. Everywhere else they
/// say the same.
pub fn differing(one: &Levels, other: &Levels) -> Vec<Range<u64>> {
    let heads = [Arc::new(one.clone()), Arc::new(other.clone())];
    let mut differing: Vec<Range<u64>> = Vec::new();
    for lbns in stretches(&heads) {
        if runs_at(one, &lbns) == runs_at(other, &lbns) {
            continue;
        }
        match differing.last_mut() {
            Some(last) if last.end == lbns.start => last.end = lbns.end,
            _ => differing.push(lbns),
        }
    }
    differing
}

/// Neighbouring stretches in which no run of any head begins or ends.
fn stretches(heads: &[Arc<Levels>]) -> impl Iterator<Item = Range<u64>> {
    let runs = heads.iter().flat_map(|levels| levels.runs());
    let borders: BTreeSet<u64> = runs
        .flat_map(|run| [run.listed.first, run.listed.end])
        .collect();
    let ends = borders.iter().skip(1).copied().collect::<Vec<_>>();
    borders.into_iter().zip(ends).map(|(start, end)| start..end)
}

/// The runs that have LBNs in a stretch, newest first.
fn runs_at(levels: &Levels, lbns: &Range<u64>) -> Vec<RunId> {
    let of_level = |level| {
        let level: &super::levels::Level = level;
        level[overlapping(level, lbns)]
            .iter()
            .map(|run| run.listed.id)
    };
    levels.newest_first().flat_map(of_level).collect()
}
