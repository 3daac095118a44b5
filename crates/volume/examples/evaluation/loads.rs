//! Loads of Figures 4.1 to 4.3: what is written, in which order, to which setup; on modelled devices and on a disk of
//! this machine.

use onefold_io::Random;

use crate::findings::Measured;
use crate::setup::{CHUNK_BYTES, Modelled, REPORT_CHUNKS, Setup, Spent, Write};
use crate::{Args, Error};
use crate::{paper, real};

/// Chunks of a request of 640 KiB.
const IN_ORDER_CHUNKS: usize = 160;
/// Requests in the queue of a device: the length that Linux gives it.
pub const QUEUE: usize = 128;
/// A transaction for each write takes ten times as long to model as others: one in so many of the writes is made.
const EACH_COMMITTED: usize = 8;
/// Versions of a source tree (report p. 26).
const VERSIONS: usize = 40;
/// Neighbouring chunks that a version changes together, as a file has them.
const CHANGED_RUN: usize = 8;

/// The contents that are written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DataSet {
    /// Each chunk is another.
    Unique,
    /// Each chunk is the same.
    Duplicate,
    /// Source trees of so many GB with this deduplication ratio.
    Trees { gb: f64, ratio: f64 },
}

/// The report's tars of 40 source trees (p. 26): files begin at borders of 512 bytes, or of 4 KiB.
pub const TAR_512: DataSet = DataSet::Trees {
    gb: 11.0,
    ratio: 1.18,
};
pub const TAR_4096: DataSet = DataSet::Trees {
    gb: 16.0,
    ratio: 1.88,
};

impl DataSet {
    /// The contents, as many as the set has on a device of so many chunks.
    fn contents(self, chunks: u64, seed: u64) -> Vec<u64> {
        match self {
            Self::Unique => (0..chunks).collect(),
            Self::Duplicate => vec![0; chunks as usize],
            Self::Trees { gb, ratio } => {
                let share = gb * 1e9 / CHUNK_BYTES as f64 / REPORT_CHUNKS;
                trees((chunks as f64 * share) as usize, ratio, seed)
            }
        }
    }
}

/// Versions of which each repeats the one before, but for runs of new chunks: as many as give the ratio.
fn trees(chunks: usize, ratio: f64, seed: u64) -> Vec<u64> {
    let versions = VERSIONS as f64;
    let new = (versions / ratio - 1.0) / (versions - 1.0);
    let len = (chunks / VERSIONS).max(1);
    let (mut all, mut next, mut random) = (Vec::with_capacity(chunks), 0, Random(seed));
    for version in 0..VERSIONS {
        let mut is_new = true;
        for place in 0..len {
            if place % CHANGED_RUN == 0 {
                is_new = version == 0 || random.unit() < new;
            }
            if is_new {
                all.push(next);
                next += 1;
            } else {
                all.push(all[all.len() - len]);
            }
        }
    }
    all
}

/// The order of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    InOrder,
    Random,
}

impl Order {
    /// Both.
    pub const ALL: [Order; 2] = [Order::InOrder, Order::Random];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Order::InOrder => "in order, 640 KiB",
            Order::Random => "at random, 4 KiB",
        }
    }
}

/// A set that is written to a setup.
pub struct Load {
    /// The figure.
    pub of: &'static str,
    /// The device.
    pub setup: Setup,
    /// The order of places.
    pub order: Order,
    /// The contents.
    pub set: DataSet,
    /// Chunks of the device.
    pub chunks: u64,
    /// Seed of places and contents.
    pub seed: u64,
}

impl Load {
    /// All requests, in their order. With a transaction for each write an eighth of them has to do.
    fn writes(&self) -> Vec<Write> {
        let mut contents = self.set.contents(self.chunks, self.seed);
        if self.setup.is_cbt(1) {
            contents.truncate(contents.len() / EACH_COMMITTED);
        }
        match self.order {
            Order::InOrder => {
                let lbns = (0..).step_by(IN_ORDER_CHUNKS);
                let requests = lbns.zip(contents.chunks(IN_ORDER_CHUNKS));
                requests.map(|(lbn, some)| write(lbn, some)).collect()
            }
            Order::Random => {
                let places = shuffled(self.chunks, self.seed);
                let requests = places.into_iter().zip(contents);
                requests.map(|(lbn, one)| write(lbn, &[one])).collect()
            }
        }
    }

    /// Requests that are under way together on the raw device.
    fn queue(&self) -> usize {
        match self.order {
            Order::InOrder => 1,
            Order::Random => QUEUE,
        }
    }
}

/// Writes all of a set to modelled devices.
pub fn measure(load: &Load) -> Result<Measured, Error> {
    let mut device = Modelled::new(load.setup, load.chunks)?;
    let writes = load.writes();
    for queue in writes.chunks(load.queue()) {
        device.write(queue)?;
    }
    device.write_out()?;
    let chunks = writes.iter().map(|write| write.contents.len() as u64).sum();
    Ok(measured(
        load,
        chunks,
        device.spent(),
        device.stored_chunks(),
    ))
}

fn measured(load: &Load, chunks: u64, spent: Spent, stored: Option<u64>) -> Measured {
    Measured {
        group: load.order.name().to_owned(),
        setup: load.setup,
        chunks,
        spent,
        stored,
        said: said(load),
        half_width: None,
    }
}

/// Measures all loads on a disk of this machine, in rounds; the means count.
pub fn measure_here(args: &Args, loads: &[Load]) -> Result<Vec<Measured>, Error> {
    let mut all: Vec<Vec<real::Ran>> = loads.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds.max(1) {
        for (load, rounds) in loads.iter().zip(&mut all) {
            rounds.push(real::run(args, load.setup, load.chunks, &load.writes())?);
        }
    }
    let mean = |(load, rounds): (&Load, Vec<real::Ran>)| {
        let rate = |ran: &real::Ran| ran.chunks as f64 / ran.spent.seconds();
        let rates: Vec<f64> = rounds.iter().map(rate).collect();
        let (mean, half_width) = real::mean_and_half_width(&rates);
        let last = rounds.last()?;
        let data_us = last.chunks as f64 / mean * 1e6;
        let spent = Spent {
            data_us,
            ..last.spent
        };
        let mut one = measured(load, last.chunks, spent, last.stored);
        (one.half_width, one.said) = (Some(half_width), None);
        Some(one)
    };
    Ok(loads.iter().zip(all).filter_map(mean).collect())
}

/// Megabytes a second of which the report's text speaks (p. 24–26).
fn said(load: &Load) -> Option<(f64, f64)> {
    let times = |low: f64, high: f64| Some((low * paper::RAW_MB_S, high * paper::RAW_MB_S));
    let a_second = |low: f64, high: f64| Some((low * 4096e-6, high * 4096e-6));
    let cache = load.setup.cache();
    match (load.of, load.order, load.setup) {
        (_, _, Setup::Log) => None,
        (_, Order::InOrder, Setup::Raw) => times(1.0, 1.0),
        (_, Order::Random, Setup::Raw) => a_second(420.0, 420.0),
        ("4.1", Order::InOrder, Setup::InRam) => times(1.0, 1.0),
        ("4.1", Order::InOrder, Setup::Dtb { .. }) if cache < 0.01 => Some((34.0, 34.0)),
        ("4.1", Order::InOrder, Setup::Dtb { .. }) if cache > 1.3 => times(1.0, 1.0),
        ("4.1", Order::InOrder, Setup::Dtb { .. }) => Some((34.0, 147.0)),
        ("4.1", Order::InOrder, Setup::Cbt { transaction, .. }) => match transaction {
            1 => Some((3.0, 6.0)),
            1000 => Some((13.0, 34.0)),
            _ => Some((3.0, 95.0)),
        },
        ("4.1", Order::Random, _) => a_second(670.0, 11_100.0),
        ("4.2", Order::InOrder, setup) if setup.is_cbt(1) => Some((12.0, 12.0)),
        ("4.2", Order::InOrder, _) => times(1.4, 2.0),
        ("4.2", Order::Random, _) => a_second(2.0 * 420.0, 140.0 * 420.0),
        ("4.3", Order::InOrder, Setup::InRam) => {
            if load.set == TAR_512 {
                times(1.11, 1.11)
            } else {
                times(1.45, 1.45)
            }
        }
        _ => None,
    }
}

/// A write without hints.
pub fn write(lbn: u64, contents: &[u64]) -> Write {
    Write {
        lbn,
        contents: contents.to_vec(),
        nodedup: false,
    }
}

/// All numbers below `end`, each once.
fn shuffled(end: u64, seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..end).collect();
    let mut random = Random(seed);
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn trees_have_the_ratio_that_is_wanted() {
        for wanted in [1.18, 1.88, 5.0] {
            let all = trees(40_000, wanted, 1);
            let unique: HashSet<_> = all.iter().collect();
            let ratio = all.len() as f64 / unique.len() as f64;
            assert!((ratio / wanted - 1.0).abs() < 0.03, "{ratio} for {wanted}");
        }
    }

    #[test]
    fn every_place_is_written_once() {
        let mut all = shuffled(1000, 1);
        assert!(all.windows(2).filter(|pair| pair[0] < pair[1]).count() < 600);
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    /// The report's directions on a small device: what `--figure 4.1` and `--figure 4.2` measure.
    #[test]
    fn small_devices_show_the_directions_of_the_report() {
        let mb_s = |setup, order, set| {
            let load = Load {
                of: "4.1",
                setup,
                order,
                set,
                chunks: 20_000,
                seed: 1,
            };
            measure(&load).expect("a run").mb_s()
        };
        let in_order = |setup| mb_s(setup, Order::InOrder, DataSet::Unique);
        let dtb = |cache| Setup::Dtb { cache };
        let cbt = |transaction| Setup::Cbt {
            cache: 0.25,
            transaction,
        };
        let raw = in_order(Setup::Raw);
        assert!((raw / paper::RAW_MB_S - 1.0).abs() < 0.02, "{raw}");
        assert!(in_order(Setup::InRam) > raw * 0.97);
        assert!(in_order(Setup::Log) > raw * 0.8);
        assert!(in_order(dtb(0.02)) < raw * 0.4);
        assert!(in_order(cbt(1)) < raw * 0.06);
        assert!(in_order(cbt(1000)) > in_order(cbt(1)) * 2.0);
        let random = |setup| mb_s(setup, Order::Random, DataSet::Unique);
        assert!(random(dtb(0.02)) > random(Setup::Raw) * 1.5);
        let same = |setup| mb_s(setup, Order::InOrder, DataSet::Duplicate);
        assert!(same(Setup::InRam) > raw * 1.4);
    }
}
