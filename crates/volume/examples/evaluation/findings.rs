//! Findings for a figure: rates, the report's claims beside them, and the plot.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::paper::{CLAIMS, Claim, Unit};
use crate::plot::{Bar, Bars};
use crate::report::Table;
use crate::setup::{CHUNK_BYTES, Setup, Spent};

/// Numbers that differ by less than this factor count as equal: devices and loads are modelled, not the report's own.
const EQUAL: f64 = 1.25;

/// A gain below this factor is none.
const NO_GAIN: f64 = 1.01;

/// One setup under one load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The load: rates of the same one may be compared.
    pub group: String,
    /// The device.
    pub setup: Setup,
    /// Chunks that were written or read.
    pub chunks: u64,
    /// Their cost.
    pub spent: Spent,
    /// Chunks that were new.
    pub stored: Option<u64>,
    /// Megabytes a second of the report's text, from the lowest to the highest.
    pub said: Option<(f64, f64)>,
    /// Half of the 95 % interval of its rate, as a share of it, where it was measured on a disk.
    pub half_width: Option<f64>,
}

impl Measured {
    /// Megabytes a second.
    pub fn mb_s(&self) -> f64 {
        (self.chunks * CHUNK_BYTES) as f64 / 1e6 / self.spent.seconds()
    }
}

/// A deduplication ratio.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// How data was cut.
    pub group: String,
    /// Into pieces of which size.
    pub label: String,
    /// All bytes by different ones.
    pub ratio: f64,
}

/// Findings for a figure.
pub struct Findings {
    /// The figure's number.
    pub of: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Rates.
    pub measured: Vec<Measured>,
    /// Ratios, for figures without rates.
    pub ratios: Vec<Ratio>,
    /// The report's claims, and what was found here.
    claims: Vec<(&'static str, Option<(f64, f64)>)>,
}

impl Findings {
    /// Nothing yet.
    pub fn new(of: &'static str, title: &'static str) -> Self {
        Self {
            of,
            title,
            measured: Vec::new(),
            ratios: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Adds the lowest and the highest number that were found for the claim of this name.
    pub fn add(&mut self, what: &'static str, found: Option<(f64, f64)>) {
        self.claims.push((what, found));
    }

    /// Everything that was measured.
    pub fn table(&self) -> Table {
        if self.ratios.is_empty() {
            self.rates()
        } else {
            Table {
                head: vec!["cut into", "of", "ratio"],
                words: 2,
                rows: (self.ratios.iter())
                    .map(|one| {
                        let ratio = format!("{:.3}", one.ratio);
                        vec![one.group.clone(), one.label.clone(), ratio]
                    })
                    .collect(),
            }
        }
    }

    /// Rates, each beside the raw device's of its group.
    fn rates(&self) -> Table {
        let raw = |group: &str| {
            let mut all = self.measured.iter();
            all.find(|one| one.group == group && one.setup == Setup::Raw)
        };
        let row = |one: &Measured| {
            let times = raw(&one.group).map(|raw| one.mb_s() / raw.mb_s());
            let each = |pages: u64| match one.setup {
                Setup::Raw => "–".to_owned(),
                _ => format!("{:.2}", pages as f64 / one.chunks as f64),
            };
            vec![
                one.group.clone(),
                one.setup.name(),
                shown(one.said),
                format!("{:.1}", one.mb_s()),
                format!("{:.0}", one.mb_s() * 1e6 / CHUNK_BYTES as f64),
                times.map_or("–".into(), |times| format!("{times:.2}")),
                each(one.spent.reads),
                each(one.spent.writes),
                match one.half_width {
                    Some(half) => format!("± {:.1} %", half * 100.0),
                    None => one.spent.slowest().to_owned(),
                },
            ]
        };
        Table {
            head: vec![
                "load",
                "setup",
                "paper",
                "MB/s",
                "chunks/s",
                "× raw",
                "pages read",
                "written",
                "slowest, or 95 %",
            ],
            words: 2,
            rows: self.measured.iter().map(row).collect(),
        }
    }

    /// Everything that was measured as bars, a group for each load.
    pub fn bars(&self) -> Bars {
        let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
        let rates = self.measured.iter().map(|one| {
            let bar = Bar {
                label: one.setup.name(),
                value: one.mb_s(),
                said: one.said,
            };
            (&one.group, bar)
        });
        let ratios = self.ratios.iter().map(|one| {
            let bar = Bar {
                label: one.label.clone(),
                value: one.ratio,
                said: None,
            };
            (&one.group, bar)
        });
        for (group, bar) in rates.chain(ratios) {
            match groups.last_mut() {
                Some((title, bars)) if *title == *group => bars.push(bar),
                _ => groups.push((group.clone(), vec![bar])),
            }
        }
        let unit = if self.ratios.is_empty() {
            "MB/s"
        } else {
            "Deduplication ratio"
        };
        Bars {
            title: format!("Figure {}. {}", self.of, self.title),
            unit,
            groups,
        }
    }

    /// The report's claims beside what was found here.
    pub fn claims(&self) -> Table {
        let of_figure = CLAIMS.iter().filter(|claim| claim.of == self.of);
        let row = |claim: &Claim| {
            let found = self.claims.iter().find(|(what, _)| *what == claim.what);
            let found = found.and_then(|(_, found)| *found);
            vec![
                claim.what.to_owned(),
                format!("p. {}", claim.page),
                claim.said.to_owned(),
                shown(Some(claim.range)),
                shown(found),
                found.map_or("–", |found| judged(claim, found)).to_owned(),
            ]
        };
        Table {
            head: vec!["what", "page", "paper", "that is", "here", ""],
            words: 3,
            rows: of_figure.map(row).collect(),
        }
    }
}

fn shown(range: Option<(f64, f64)>) -> String {
    let number = |number: f64| match number {
        number if number.is_infinite() => "∞".to_owned(),
        number if number >= 10.0 => format!("{number:.0}"),
        number if number >= 1.0 => format!("{number:.2}"),
        number => format!("{number:.3}"),
    };
    match range {
        None => "–".to_owned(),
        Some((low, high)) if number(low) == number(high) => number(low),
        Some((low, high)) => format!("{}–{}", number(low), number(high)),
    }
}

/// Whether a claim holds for what was found.
fn judged(claim: &Claim, found: (f64, f64)) -> &'static str {
    let (low, high) = claim.range;
    let is_equal = |a: f64, b: f64| a == b || (a / b).max(b / a) <= EQUAL;
    let is_direction = claim.unit == Unit::Times && (low == 0.0 || high.is_infinite());
    if is_direction {
        return if low <= found.0 && found.1 <= high {
            "holds"
        } else {
            "does not hold"
        };
    }
    if is_equal(low, found.0) && is_equal(high, found.1) {
        return "holds";
    }
    let is_no_gain = claim.unit == Unit::Times && low > 1.0 && found.0 < NO_GAIN;
    if found.0 >= low / EQUAL && found.1 <= high * EQUAL && !is_no_gain {
        return "holds, narrower";
    }
    let is_same_side = (low >= 1.0 && found.0 >= 1.0) || (high <= 1.0 && found.1 <= 1.0);
    if claim.unit == Unit::Times && is_same_side && !is_no_gain {
        "direction holds"
    } else {
        "does not hold"
    }
}

/// Runs all loads, as many at once as there are cores; returns what they gave, in their order.
pub fn parallel<T: Sync, R: Send>(
    loads: &[T],
    run: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (next, cores) = (AtomicUsize::new(0), std::thread::available_parallelism()?);
    let work = || {
        let mut done = Vec::new();
        while let Some((number, load)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            loads.get(number).map(|load| (number, load))
        } {
            done.push((number, run(load)));
        }
        done
    };
    let mut all: Vec<(usize, Result<R, Error>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.get()).map(|_| scope.spawn(work)).collect();
        (threads.into_iter())
            .flat_map(|thread| thread.join().expect("a run panicked"))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn claims_are_told_apart_and_have_a_page() {
        let all: HashSet<_> = CLAIMS.iter().map(|claim| (claim.of, claim.what)).collect();
        assert_eq!(all.len(), CLAIMS.len());
        assert!(CLAIMS.iter().all(|claim| (7..=35).contains(&claim.page)));
    }

    #[test]
    fn claims_are_judged_by_both_ends() {
        let claim = |low, high| Claim {
            range: (low, high),
            ..CLAIMS[4]
        };
        assert_eq!(judged(&claim(1.4, 2.0), (1.5, 1.9)), "holds");
        assert_eq!(judged(&claim(2.0, 140.0), (3.0, 20.0)), "holds, narrower");
        assert_eq!(judged(&claim(1.4, 2.0), (1.2, 5.0)), "direction holds");
        assert_eq!(judged(&claim(1.4, 2.0), (0.5, 1.9)), "does not hold");
        assert_eq!(judged(&claim(1.2, 1.8), (1.0, 1.0)), "does not hold");
        assert_eq!(judged(&claim(0.0, 1.0), (0.3, 0.9)), "holds");
        assert_eq!(
            judged(&claim(1.0, f64::INFINITY), (0.9, 3.0)),
            "does not hold"
        );
    }
}
