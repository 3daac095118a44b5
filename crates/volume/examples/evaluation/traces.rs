//! Figure 4.4 and Table 4.1: a day's work of three servers, synthesised to the table's sizes.
//!
//! The report replayed traces of FIU, which are not here. A trace is made of what the table says: gigabytes written and
//! read, unique by content and by place, and the range of places. What the table does not say is assumed: requests are
//! runs of 32 KiB; reads go in equal parts to places that are written and to as many others, which hold data before the
//! replay begins, as in the report; repeats of contents and of places prefer none.

use std::collections::{HashMap, HashSet};

use onefold_io::{FlashModel, Random};

use crate::findings::{Findings, Measured, parallel};
use crate::likeness::MetadataDevice;
use crate::loads::{QUEUE, write};
use crate::micro::{found_times, range};
use crate::paper::{self, TRACES_OF_TABLE, Trace};
use crate::report::Table;
use crate::setup::{CHUNK_BYTES, Modelled, REPORT_CHUNKS, Setup, Write};
use crate::{Args, Error};

/// Chunks of a request.
const RUN: u64 = 8;
/// Bytes of the report's device (§4.1).
const DEVICE_GB: f64 = 146.0;
const CACHE: f64 = 0.25;

const SETUPS: [Setup; 5] = [
    Setup::Raw,
    Setup::InRam,
    Setup::Log,
    Setup::Dtb { cache: CACHE },
    Setup::Cbt {
        cache: CACHE,
        transaction: 1000,
    },
];

/// One request of a trace: `RUN` neighbouring chunks.
#[derive(Clone, Copy, Debug)]
enum Request {
    Read {
        lbn: u64,
    },
    /// The first content; the others follow it.
    Write {
        lbn: u64,
        content: u64,
    },
}

/// A trace that was made.
struct Synthesised {
    of: &'static Trace,
    /// Part of the table's trace.
    scale: f64,
    requests: Vec<Request>,
    /// Places that hold data before the replay.
    before: Vec<u64>,
    lbns: u64,
}

impl Synthesised {
    /// A trace of some `chunks` chunks.
    fn new(of: &'static Trace, chunks: u64, seed: u64) -> Self {
        let all = (of.written + of.read) * 1e9 / CHUNK_BYTES as f64;
        let scale = (chunks as f64 / all).min(1.0);
        let runs = |gb: f64| ((gb * 1e9 * scale) as u64 / (CHUNK_BYTES * RUN)).max(1);
        let (written, read) = (runs(of.written), runs(of.read));
        let (contents, places) = (runs(of.unique_by_content), runs(of.unique_by_offset));
        let range = runs(of.ranges).max(2 * places);
        // Every so many runs of the range one is written, and one of the others is read.
        let apart = range / (2 * places);
        let lbn = |place: u64| place * apart * RUN;
        let (mut random, mut done) = (Random(seed), [0u64; 2]);
        let (mut next_place, mut next_content) = (0, 0);
        let mut requests = Vec::with_capacity((written + read) as usize);
        for _ in 0..written + read {
            let left = [written - done[0], read - done[1]];
            if random.below(left[0] + left[1]) >= left[0] {
                done[1] += 1;
                let lbn = lbn(random.below(2 * places));
                requests.push(Request::Read { lbn });
                continue;
            }
            // New places and contents come evenly over the whole trace.
            let is_due = |next: u64, all: u64| next * written < (done[0] + 1) * all;
            let place = if is_due(next_place, places) {
                next_place
            } else {
                random.below(next_place)
            };
            let content = if is_due(next_content, contents) {
                next_content
            } else {
                random.below(next_content)
            };
            next_place = next_place.max(place + 1);
            next_content = next_content.max(content + 1);
            done[0] += 1;
            requests.push(Request::Write {
                lbn: lbn(2 * place),
                content: content * RUN,
            });
        }
        let lbns = lbn(2 * places) + RUN;
        Self {
            of,
            scale,
            requests,
            before: (0..2 * places).map(lbn).collect(),
            lbns,
        }
    }

    fn chunks(&self) -> u64 {
        self.requests.len() as u64 * RUN
    }
}

/// Figure 4.4.
pub fn replay(args: &Args) -> Result<Findings, Error> {
    let traces = all(args);
    let loads: Vec<(&Synthesised, Setup)> = (traces.iter())
        .flat_map(|trace| SETUPS.map(|setup| (trace, setup)))
        .collect();
    let mut found = Findings::new("4.4", "Traces, synthesised to Table 4.1");
    found.measured = parallel(&loads, |(trace, setup)| measure(trace, *setup))?;
    let times = TRACES_OF_TABLE.iter().filter_map(|trace| {
        let of_trace = found.measured.iter().filter(|one| one.group == trace.name);
        let of_trace: Vec<_> = of_trace.cloned().collect();
        found_times(&of_trace, &Setup::is_dmdedup)
    });
    let ends = range(times.flat_map(|(low, high)| [low, high]));
    found.add(paper::TRACES, ends);
    Ok(found)
}

/// Table 4.1: what the table says and what was made of it, in GB of the whole trace.
pub fn characteristics(args: &Args) -> Table {
    let rows = all(args).into_iter().map(|trace| {
        let (mut written, mut read) = (0.0, 0.0);
        let (mut contents, mut places) = (HashSet::new(), HashSet::new());
        for request in &trace.requests {
            match request {
                Request::Read { .. } => read += 1.0,
                Request::Write { lbn, content } => {
                    written += 1.0;
                    contents.insert(*content);
                    places.insert(*lbn);
                }
            }
        }
        let gb = |runs: f64| runs * (RUN * CHUNK_BYTES) as f64 / 1e9 / trace.scale;
        let both = |said: f64, made: f64| format!("{said:.2} / {made:.2}");
        let of = trace.of;
        vec![
            of.name.to_owned(),
            of.days.to_string(),
            both(of.written, gb(written)),
            both(of.unique_by_content, gb(contents.len() as f64)),
            both(of.unique_by_offset, gb(places.len() as f64)),
            both(of.read, gb(read)),
            both(of.ratio, written / contents.len() as f64),
            format!("{} / {CHUNK_BYTES}", of.block_bytes),
            both(of.ranges, gb(trace.lbns as f64 / RUN as f64)),
        ]
    });
    Table {
        head: vec![
            "paper / here",
            "days",
            "written",
            "unique by content",
            "by place",
            "read",
            "ratio",
            "block",
            "range",
        ],
        words: 1,
        rows: rows.collect(),
    }
}

fn all(args: &Args) -> Vec<Synthesised> {
    let chunks = if args.full { u64::MAX } else { args.chunks() };
    let made = |of: &'static Trace| Synthesised::new(of, chunks, args.seed);
    TRACES_OF_TABLE.iter().map(made).collect()
}

fn measure(trace: &Synthesised, setup: Setup) -> Result<Measured, Error> {
    let chunks = (REPORT_CHUNKS * trace.scale) as u64;
    let is_moved = trace.of.ranges > DEVICE_GB;
    let mut device = Device {
        made: Modelled::over(
            setup,
            chunks,
            trace.lbns,
            MetadataDevice::new(FlashModel::x25_m),
        )?,
        moved: (is_moved && setup == Setup::Raw).then(HashMap::new),
    };
    // Contents that the trace does not have.
    for (number, lbn) in (1u64 << 40..).step_by(RUN as usize).zip(&trace.before) {
        device.write(&[(*lbn, number)])?;
    }
    device.made.write_out()?;
    device.made.begin();
    for queue in trace.requests.chunks(QUEUE) {
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        for request in queue {
            match *request {
                Request::Read { lbn } => reads.push(lbn),
                Request::Write { lbn, content } => writes.push((lbn, content)),
            }
        }
        device.write(&writes)?;
        device.read(&reads)?;
    }
    device.made.write_out()?;
    Ok(Measured {
        group: trace.of.name.to_owned(),
        setup,
        chunks: trace.chunks(),
        spent: device.made.spent(),
        stored: device.made.stored_chunks(),
        said: None,
        half_width: None,
    })
}

/// A device, behind a map of places that are given in the order of their first use where the raw one is too small for
/// the range: the report's own small target (p. 27).
struct Device {
    made: Modelled,
    moved: Option<HashMap<u64, u64>>,
}

impl Device {
    fn place(&mut self, lbn: u64) -> u64 {
        match &mut self.moved {
            None => lbn,
            Some(moved) => {
                let next = moved.len() as u64 * RUN;
                *moved.entry(lbn).or_insert(next)
            }
        }
    }

    fn write(&mut self, runs: &[(u64, u64)]) -> Result<(), Error> {
        let one = |(lbn, content): &(u64, u64)| -> Write {
            let contents: Vec<u64> = (*content..content + RUN).collect();
            write(self.place(*lbn), &contents)
        };
        let writes: Vec<Write> = runs.iter().map(one).collect();
        self.made.write(&writes)
    }

    fn read(&mut self, runs: &[u64]) -> Result<(), Error> {
        let first: Vec<u64> = runs.iter().map(|lbn| self.place(*lbn)).collect();
        let lbns: Vec<u64> = first.iter().flat_map(|lbn| *lbn..lbn + RUN).collect();
        if lbns.is_empty() {
            Ok(())
        } else {
            self.made.read(&lbns, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_the_sizes_of_the_table() {
        for of in &TRACES_OF_TABLE {
            let trace = Synthesised::new(of, 400_000, 1);
            let is_write = |request: &&Request| matches!(request, Request::Write { .. });
            let written = trace.requests.iter().filter(is_write).count() as f64;
            let share = written / trace.requests.len() as f64;
            assert!((share - of.written / (of.written + of.read)).abs() < 0.01);
            let mut contents = HashSet::new();
            for request in &trace.requests {
                if let Request::Write { content, .. } = request {
                    contents.insert(*content);
                }
            }
            let ratio = written / contents.len() as f64;
            let expected = of.written / of.unique_by_content;
            assert!(
                (ratio / expected - 1.0).abs() < 0.02,
                "{}: {ratio}",
                of.name
            );
        }
    }
}
