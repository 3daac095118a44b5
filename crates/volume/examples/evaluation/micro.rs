//! Figures 4.1 to 4.3: one writer, all setups, in order with requests of 640 KiB and at random with requests of 4 KiB.

use crate::findings::{Findings, Measured, parallel};
use crate::loads::{DataSet, Load, Order, TAR_512, TAR_4096, measure, measure_here};
use crate::paper;
use crate::setup::{CHUNK_BYTES, Setup};
use crate::{Args, Error};

/// Shares of all metadata that fit in the cache (report §4.1).
pub const CACHES: [f64; 6] = [0.003, 0.25, 0.5, 0.75, 1.0, 1.35];
/// Those that are measured on a disk of this machine.
const CACHES_HERE: [f64; 3] = [0.003, 0.25, 1.35];
/// Writes of a transaction: unlimited, each, 1,000.
const TRANSACTIONS: [u64; 3] = [0, 1, 1000];

/// Figure 4.1: unique chunks.
pub fn unique(args: &Args) -> Result<Findings, Error> {
    let [in_order, random] = run(args, "4.1", args.chunks(), DataSet::Unique, &TRANSACTIONS)?;
    let mut found = Findings::new("4.1", "Unique chunks");
    let of = |is: &dyn Fn(Setup) -> bool| found_times(&in_order, is);
    found.add(paper::INRAM_IN_ORDER, of(&|setup| setup == Setup::InRam));
    found.add(
        paper::DTB_SMALL,
        of(&|setup| setup.is_dtb() && setup.cache() < 0.01),
    );
    found.add(
        paper::DTB_LARGE,
        of(&|setup| setup.is_dtb() && setup.cache() > 1.3),
    );
    found.add(
        paper::CBT_IN_ORDER,
        of(&|setup| matches!(setup, Setup::Cbt { .. })),
    );
    found.add(paper::CBT_EACH, of(&|setup| setup.is_cbt(1)));
    found.add(paper::CBT_THOUSAND, of(&|setup| setup.is_cbt(1000)));
    let flat = of(&|setup| setup.is_cbt(1000) && setup.cache() >= 0.25);
    found.add(
        paper::CBT_FLAT,
        flat.map(|(low, high)| (low / high, low / high)),
    );
    found.add(paper::CBT_MORE_IO, more_pages(&in_order));
    found.add(paper::CBT_EACH_PAGES, pages_written(&in_order));
    found.add(paper::ALL_RANDOM, found_times(&random, &Setup::is_dmdedup));
    found.measured = [in_order, random].concat();
    Ok(found)
}

/// Figure 4.2: one chunk, again and again.
pub fn duplicate(args: &Args) -> Result<Findings, Error> {
    let [in_order, random] = run(
        args,
        "4.2",
        args.chunks(),
        DataSet::Duplicate,
        &TRANSACTIONS,
    )?;
    let mut found = Findings::new("4.2", "One chunk, again and again");
    let is_each = |setup: Setup| setup.is_cbt(1);
    let most = found_times(&in_order, &|setup| setup.is_dmdedup() && !is_each(setup));
    found.add(paper::DUPLICATE_IN_ORDER, most);
    found.add(paper::DUPLICATE_EACH, found_times(&in_order, &is_each));
    found.add(paper::DUPLICATE_PAGES, pages_written(&in_order));
    let flat = found_times(&in_order, &Setup::is_dtb);
    found.add(
        paper::DUPLICATE_FLAT,
        flat.map(|(low, high)| (low / high, low / high)),
    );
    found.add(
        paper::DUPLICATE_RANDOM,
        found_times(&random, &Setup::is_dmdedup),
    );
    let dtb = |is: &dyn Fn(f64) -> bool| {
        found_times(&random, &|setup| setup.is_dtb() && is(setup.cache()))
    };
    let poor = dtb(&|cache| cache < 0.01).zip(dtb(&|cache| cache > 0.01));
    let poor = poor.map(|(small, more)| (small.0 / more.1, small.0 / more.0));
    found.add(paper::DUPLICATE_DTB, poor);
    found.measured = [in_order, random].concat();
    Ok(found)
}

/// Figure 4.3: 40 versions of a source tree in a tar.
pub fn trees_in_tars(args: &Args) -> Result<Findings, Error> {
    let mut found = Findings::new(
        "4.3",
        "40 versions of a source tree, synthesised to the ratio",
    );
    // A tenth of the device is written, so the device may be larger for the same time.
    let chunks = args.chunks() * 2;
    let mut before = Vec::new();
    for (name, set, inram, ratio) in [
        ("tar-512", TAR_512, paper::INRAM_512, paper::RATIO_512),
        ("tar-4096", TAR_4096, paper::INRAM_4096, paper::RATIO_4096),
    ] {
        let [mut in_order, mut random] = run(args, "4.3", chunks, set, &[1000])?;
        found.add(
            inram,
            found_times(&in_order, &|setup| setup == Setup::InRam),
        );
        let stored = in_order.iter().find(|one| one.setup == Setup::InRam);
        let stored = stored.and_then(|one| Some(one.chunks as f64 / one.stored? as f64));
        found.add(ratio, stored.map(|ratio| (ratio, ratio)));
        before.extend(CACHES[1..5].iter().filter_map(|cache| {
            let of = |is: &dyn Fn(Setup) -> bool| {
                found_times(&random, &|setup| is(setup) && setup.cache() == *cache)
            };
            Some(of(&|setup| setup.is_cbt(1000))?.0 / of(&Setup::is_dtb)?.0)
        }));
        for one in in_order.iter_mut().chain(&mut random) {
            one.group = format!("{name}, {}", one.group);
        }
        found.measured.extend(in_order);
        found.measured.extend(random);
    }
    found.add(paper::CBT_BEFORE_DTB, range(before));
    Ok(found)
}

/// The lowest and the highest rate of some setups, as shares of the raw device's.
pub fn found_times(all: &[Measured], is: &dyn Fn(Setup) -> bool) -> Option<(f64, f64)> {
    let raw = all.iter().find(|one| one.setup == Setup::Raw)?.mb_s();
    let wanted = all.iter().filter(|one| is(one.setup));
    range(wanted.map(|one| one.mb_s() / raw))
}

/// The lowest and the highest number; `None` without any.
pub fn range(numbers: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.into_iter().fold(None, |so_far, number| {
        let (low, high) = so_far.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

/// Pages that `cbt` writes for a write, each a transaction.
fn pages_written(all: &[Measured]) -> Option<(f64, f64)> {
    let each = all.iter().filter(|one| one.setup.is_cbt(1));
    range(each.map(|one| one.spent.writes as f64 / one.chunks as f64))
}

/// Pages read and written by `cbt` with unlimited transactions, by those of `dtb` with the same cache.
fn more_pages(all: &[Measured]) -> Option<(f64, f64)> {
    let pages = |one: &Measured| (one.spent.reads + one.spent.writes) as f64;
    let of = |cache: f64, is: &dyn Fn(Setup) -> bool| {
        let found = all
            .iter()
            .find(|one| is(one.setup) && one.setup.cache() == cache);
        found.map(pages)
    };
    range(CACHES[1..4].iter().filter_map(|cache| {
        Some(of(*cache, &|setup| setup.is_cbt(0))? / of(*cache, &Setup::is_dtb)?)
    }))
}

/// All setups, those of `cbt` with these transactions.
fn setups(transactions: &[u64]) -> Vec<Setup> {
    let mut all = vec![Setup::Raw, Setup::InRam, Setup::Log];
    all.extend(CACHES.map(|cache| Setup::Dtb { cache }));
    for transaction in transactions {
        let transaction = *transaction;
        all.extend(CACHES.map(|cache| Setup::Cbt { cache, transaction }));
    }
    all
}

/// Some of them, for a disk on which each takes seconds.
fn setups_here() -> Vec<Setup> {
    let mut all = vec![Setup::Raw, Setup::InRam, Setup::Log];
    all.extend(CACHES_HERE.map(|cache| Setup::Dtb { cache }));
    let cbt = |cache, transaction| Setup::Cbt { cache, transaction };
    all.push(cbt(0.25, 1));
    all.extend(CACHES_HERE.map(|cache| cbt(cache, 1000)));
    all
}

fn run(
    args: &Args,
    of: &'static str,
    chunks: u64,
    set: DataSet,
    transactions: &[u64],
) -> Result<[Vec<Measured>; 2], Error> {
    let (chunks, setups) = if args.real {
        ((args.mib << 20) / CHUNK_BYTES, setups_here())
    } else {
        (chunks, setups(transactions))
    };
    let has_name = setups.iter().any(|setup| setup.name() == args.only);
    let is_wanted = |setup: &&Setup| {
        let name = setup.name();
        let is_like = !has_name && name.contains(&args.only);
        **setup == Setup::Raw || name == args.only || is_like
    };
    let mut loads = Vec::new();
    for order in Order::ALL {
        loads.extend(setups.iter().filter(is_wanted).map(|setup| Load {
            of,
            setup: *setup,
            order,
            set,
            chunks,
            seed: args.seed,
        }));
    }
    let all = if args.real {
        measure_here(args, &loads)?
    } else {
        parallel(&loads, measure)?
    };
    let (in_order, random) = all
        .into_iter()
        .partition(|one| one.group == Order::InOrder.name());
    Ok([in_order, random])
}
