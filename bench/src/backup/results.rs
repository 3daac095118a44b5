//! The figures, and their relations to each other.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::measure::{self, Measured};
use super::s3::Requests;
use super::tools::{Compression, TOOLS, Tool};
use crate::report::{self, Table};

/// The tool name for the disk's own rates.
const DISK: &str = "(disk)";

/// Stages of the disk that read a whole set.
pub const READERS: [&str; 4] = [
    "read, 8 at a time",
    "read, 1 at a time",
    "read, past the cache",
    "read past it, added up",
];
/// Share of files in the page cache that a cached stage needs.
const CACHED_PART: f64 = 0.99;
/// Largest share of these files that the disk may read meanwhile: mostly the repository's own files.
const READ_PART: f64 = 0.1;

/// One stage of one tool in one round.
#[derive(Clone, Debug)]
pub struct Timing {
    set: String,
    tool: String,
    stage: String,
    taken: Measured,
    /// Bytes of the repository's files afterwards; `repo_disk_bytes` is the space that they take on the disk.
    repo_bytes: u64,
    repo_disk_bytes: u64,
    /// Bytes that the tool keeps outside of its repository.
    cache_bytes: u64,
    /// Bytes read, in rows of the disk's own rates.
    read_bytes: u64,
    /// Requests to the server of S3; none in a folder.
    requests: Requests,
}

impl Timing {
    /// A row with the present size of the repository.
    pub fn new(
        set: &str,
        tool: &str,
        stage: &str,
        taken: Measured,
        repo: &Path,
        home: &Path,
    ) -> Self {
        let (repo_bytes, repo_disk_bytes) = measure::disk_usage(repo);
        Self {
            set: set.into(),
            tool: tool.into(),
            stage: stage.into(),
            taken,
            repo_bytes,
            repo_disk_bytes,
            cache_bytes: measure::disk_usage(home).0,
            read_bytes: 0,
            requests: Requests::default(),
        }
    }

    /// The row with the requests of its stage.
    pub fn with_requests(self, requests: Option<Requests>) -> Self {
        Self {
            requests: requests.unwrap_or_default(),
            ..self
        }
    }

    /// A row for a rate of the disk.
    pub fn rate(set: &str, stage: &str, wall_s: f64, read_bytes: u64) -> Self {
        Self {
            set: set.into(),
            tool: DISK.into(),
            stage: stage.into(),
            taken: Measured {
                wall_s,
                ..Measured::default()
            },
            repo_bytes: 0,
            repo_disk_bytes: 0,
            cache_bytes: 0,
            read_bytes,
            requests: Requests::default(),
        }
    }

    /// The row as a line, printed during the run.
    pub fn line(&self) -> String {
        let taken = &self.taken;
        format!(
            "{} {:<14} {:<18} {:>7.2} s  CPU {:>7.2} s  RSS {:>5} MB  repository {:>6} MB  others' CPU {:.1} s{}",
            self.set,
            self.tool,
            self.stage,
            taken.wall_s,
            taken.cpu_s,
            mb(taken.rss_bytes),
            mb(self.repo_bytes.max(self.read_bytes)),
            taken.others_cpu_s,
            self.requests_line()
        )
    }

    fn requests_line(&self) -> String {
        let requests = &self.requests;
        match requests.count {
            0 => String::new(),
            count => format!(
                "  {count} requests, {:.1} MB received, {:.1} sent",
                requests.received_bytes as f64 / 1e6,
                requests.sent_bytes as f64 / 1e6
            ),
        }
    }

    /// The warning for a cached stage whose files were not cached. Rows of earlier runs may lack the figures.
    pub fn warning(&self) -> Option<String> {
        let taken = &self.taken;
        let part = |bytes: u64| bytes as f64 / taken.source_bytes as f64;
        if taken.source_bytes == 0 {
            return None;
        }
        let what = match taken.cached_bytes.map(part) {
            None => "the kernel does not tell whether the files were cached".to_string(),
            Some(cached) if cached < CACHED_PART => {
                format!(
                    "only {:.1} % of the files' bytes were cached",
                    cached * 100.0
                )
            }
            _ if part(taken.disk_read_bytes) > READ_PART => {
                let read = mb(taken.disk_read_bytes);
                format!("{read} MB came from the disk all the same")
            }
            _ => return None,
        };
        let (set, tool, stage) = (&self.set, &self.tool, &self.stage);
        Some(format!("WARNING: {set} {tool} {stage}: {what}"))
    }

    fn json(&self) -> Value {
        let taken = &self.taken;
        json!({
            "set": self.set, "tool": self.tool, "stage": self.stage,
            "wall_s": taken.wall_s, "cpu_s": taken.cpu_s, "rss_bytes": taken.rss_bytes,
            "disk_read_bytes": taken.disk_read_bytes, "cached_bytes": taken.cached_bytes,
            "source_bytes": taken.source_bytes,
            "others_cpu_s": taken.others_cpu_s, "sync_s": taken.sync_s,
            "repo_bytes": self.repo_bytes, "repo_disk_bytes": self.repo_disk_bytes,
            "cache_bytes": self.cache_bytes, "read_bytes": self.read_bytes,
            "requests": self.requests.count, "received_bytes": self.requests.received_bytes,
            "sent_bytes": self.requests.sent_bytes,
        })
    }

    fn from_json(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        let real = |name: &str| value[name].as_f64().unwrap_or_default();
        let whole = |name: &str| value[name].as_u64().unwrap_or_default();
        Self {
            set: text("set"),
            tool: text("tool"),
            stage: text("stage"),
            taken: Measured {
                wall_s: real("wall_s"),
                cpu_s: real("cpu_s"),
                rss_bytes: whole("rss_bytes"),
                disk_read_bytes: whole("disk_read_bytes"),
                cached_bytes: value["cached_bytes"].as_u64(),
                source_bytes: whole("source_bytes"),
                others_cpu_s: real("others_cpu_s"),
                sync_s: real("sync_s"),
            },
            repo_bytes: whole("repo_bytes"),
            repo_disk_bytes: whole("repo_disk_bytes"),
            cache_bytes: whole("cache_bytes"),
            read_bytes: whole("read_bytes"),
            requests: Requests {
                count: whole("requests"),
                received_bytes: whole("received_bytes"),
                sent_bytes: whole("sent_bytes"),
            },
        }
    }
}

/// All figures of a run.
pub struct Results {
    machine: Value,
    scale: f64,
    seed: u64,
    /// Whether the page cache could be dropped.
    pub cold: bool,
    /// Rows in the order of measuring, earlier runs' first.
    pub rows: Vec<Timing>,
    failures: Vec<String>,
}

impl Results {
    /// Results that begin with the rows of the files `with`.
    pub fn new(scale: f64, seed: u64, with: &[PathBuf]) -> Result<Self, String> {
        let mut results = Self {
            machine: report::machine(),
            scale,
            seed,
            cold: true,
            rows: Vec::new(),
            failures: Vec::new(),
        };
        for path in with {
            let failed = |error: String| format!("{}: {error}", path.display());
            let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
            let value: Value =
                serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
            let rows = value["rows"].as_array().into_iter().flatten();
            results.rows.extend(rows.map(Timing::from_json));
        }
        Ok(results)
    }

    /// Notes that a tool failed; its later stages are missing.
    pub fn failed(&mut self, set: &str, tool: &str, error: &str) {
        self.failures.push(format!("{set} {tool}: {error}"));
    }

    /// All results as JSON.
    pub fn json(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(Timing::json).collect();
        let all = json!({
            "machine": self.machine, "scale": self.scale, "seed": self.seed, "cold": self.cold,
            "rows": rows, "failures": self.failures,
        });
        format!("{all:#}\n")
    }

    /// The table with the text around it.
    pub fn report(&self) -> String {
        self.document(&self.table().text())
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        self.document(&self.table().markdown())
    }

    fn document(&self, table: &str) -> String {
        let cache = if self.cold {
            "page cache dropped before each stage but reread-cached"
        } else {
            "page cache NOT dropped"
        };
        format!(
            "{}\n\nscale {}, seed {}, {cache}\n\n{table}\n{LEGEND}\n{}",
            report::machine_line(&self.machine),
            self.scale,
            self.seed,
            [self.warnings(), self.failures.clone()].concat().join("\n")
        )
    }

    /// Warnings for rounds of a cached stage whose files were not all cached.
    fn warnings(&self) -> Vec<String> {
        self.rows.iter().filter_map(Timing::warning).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table {
            head: vec![
                "set", "stage", "tool", "wall s", "× best", "× tar", "× disk", "CPU s", "RSS MB",
                "disk MB", "sync s", "repo MB", "× best", "requests", "others %",
            ],
            words: 3,
            rows: Vec::new(),
        };
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            if !seen.contains(&(&row.set, &row.stage)) {
                seen.push((&row.set, &row.stage));
            }
        }
        seen.sort_by_key(|(set, _)| *set); // Stable: stages stay in their order.
        for (set, stage) in seen {
            let mut medians = self.medians(set, stage);
            medians.sort_by(|a, b| a.taken.wall_s.total_cmp(&b.taken.wall_s));
            let yardsticks = Yardsticks {
                tar_s: medians.iter().find(|row| row.tool == "tar").map(wall),
                disk_s: self.disk_s(set).filter(|_| stage == "reread" && self.cold),
            };
            let rows = medians.iter();
            let rows = rows.map(|row| cells(row, &medians, yardsticks));
            table.rows.extend(rows);
        }
        table
    }

    /// Seconds to read a set at the highest rate of the disk in any of its own rows.
    fn disk_s(&self, set: &str) -> Option<f64> {
        let rates = READERS.iter().flat_map(|stage| self.medians(set, stage));
        let rates = rates.filter(|row| row.tool == DISK);
        rates.map(|row| wall(&row)).min_by(f64::total_cmp)
    }

    /// Median rows, one for each tool.
    fn medians(&self, set: &str, stage: &str) -> Vec<Timing> {
        let here = |row: &&Timing| row.set == set && row.stage == stage;
        let mut tools: Vec<&str> = self
            .rows
            .iter()
            .filter(here)
            .map(|row| &*row.tool)
            .collect();
        tools.sort_unstable();
        tools.dedup();
        let median_row = |tool: &str| {
            let rounds: Vec<&Timing> = (self.rows.iter().filter(here))
                .filter(|row| row.tool == tool)
                .collect();
            let middle = |value: fn(&Timing) -> f64| {
                let values: Vec<f64> = rounds.iter().map(|row| value(row)).collect();
                report::median(&values).unwrap_or_default()
            };
            let mut row = rounds[rounds.len() - 1].clone();
            row.taken.wall_s = middle(|row| row.taken.wall_s);
            row.taken.cpu_s = middle(|row| row.taken.cpu_s);
            row.taken.rss_bytes = middle(|row| row.taken.rss_bytes as f64) as u64;
            row.taken.others_cpu_s = middle(|row| row.taken.others_cpu_s);
            row.taken.sync_s = middle(|row| row.taken.sync_s);
            row.taken.disk_read_bytes = middle(|row| row.taken.disk_read_bytes as f64) as u64;
            row
        };
        tools.into_iter().map(median_row).collect()
    }
}

const LEGEND: &str = "\
× best: the best peer's figure divided by this one; above 1 is better than every peer. A first backup and its size are compared with peers that
compress, or with those that do not; other stages with all. tar and the disk's rates are yardsticks, no peers: × tar is plain tar's wall divided by
this one, × disk, of cold re-reads, the wall of whoever only reads the set and is fastest at it. RSS: the largest process. disk MB: read from the disk, not
from the page cache. sync s: what was left to write afterwards. others %: CPU that others used meanwhile; with more than a few, do not trust the wall.";

/// Yardsticks beside peers and us, in seconds.
#[derive(Clone, Copy)]
struct Yardsticks {
    /// Time of plain tar at the same stage.
    tar_s: Option<f64>,
    /// Time of reading alone.
    disk_s: Option<f64>,
}

fn wall(row: &Timing) -> f64 {
    row.taken.wall_s
}

fn cells(row: &Timing, all: &[Timing], yardsticks: Yardsticks) -> Vec<String> {
    let size = |row: &Timing| row.repo_bytes as f64;
    let first = row.stage == "first";
    let ratio = |value: &dyn Fn(&Timing) -> f64, classes: bool| {
        let rivals = all.iter().filter(|other| {
            is_peer(&other.tool) && (!classes || compresses(&other.tool) == compresses(&row.tool))
        });
        let best = rivals.map(value).fold(f64::INFINITY, f64::min);
        if row.tool != DISK && best.is_finite() && value(row) > 0.0 {
            format!("{:.2}", best / value(row))
        } else {
            String::new()
        }
    };
    let beside = |seconds: Option<f64>| {
        let seconds = seconds.filter(|_| row.tool != DISK && wall(row) > 0.0);
        seconds.map_or(String::new(), |seconds| {
            format!("{:.2}", seconds / wall(row))
        })
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let others = row.taken.others_cpu_s / (row.taken.wall_s * cpus).max(0.01) * 100.0;
    vec![
        row.set.clone(),
        row.stage.clone(),
        row.tool.clone(),
        format!("{:.2}", row.taken.wall_s),
        ratio(&wall, first),
        beside(yardsticks.tar_s),
        beside(yardsticks.disk_s),
        format!("{:.2}", row.taken.cpu_s),
        mb(row.taken.rss_bytes).to_string(),
        mb(row.taken.disk_read_bytes).to_string(),
        format!("{:.1}", row.taken.sync_s),
        mb(row.repo_bytes.max(row.read_bytes)).to_string(),
        ratio(&size, true),
        row.requests.count.to_string(),
        format!("{others:.0}"),
    ]
}

fn known(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

fn is_peer(name: &str) -> bool {
    known(name).is_some_and(|tool| !tool.is_ours() && !tool.is_yardstick())
}

fn compresses(name: &str) -> bool {
    known(name).is_some_and(|tool| tool.compression != Compression::None)
}

fn mb(bytes: u64) -> u64 {
    (bytes + 500_000) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tool: &str, stage: &str, wall_s: f64) -> Timing {
        Timing {
            tool: tool.into(),
            ..Timing::rate("D3", stage, wall_s, 0)
        }
    }

    fn results(rows: Vec<Timing>) -> Results {
        Results {
            rows,
            ..Results::new(1.0, 1, &[]).expect("no file is read")
        }
    }

    /// The cells of `tool` at `stage` under `title`.
    fn cell(results: &Results, tool: &str, stage: &str, title: &str) -> String {
        let table = results.table();
        let column = table.head.iter().position(|head| *head == title);
        let row = table
            .rows
            .iter()
            .find(|row| row[1] == stage && row[2] == tool);
        row.expect("a row")[column.expect("a column")].clone()
    }

    #[test]
    fn tar_and_the_disk_stand_beside_the_best_peer() {
        let mut all = results(vec![
            row(DISK, "read, 8 at a time", 3.0),
            row(DISK, "read, past the cache", 1.7),
            row("onefold", "first", 4.0),
            row("bupstash", "first", 8.0),
            row("tar", "first", 5.0),
            row("onefold", "reread", 2.0),
            row("bupstash", "reread", 6.0),
        ]);
        let of = |stage, title| cell(&all, "onefold", stage, title);
        assert_eq!(of("first", "× best"), "2.00");
        assert_eq!(of("first", "× tar"), "1.25");
        assert_eq!(of("first", "× disk"), "");
        assert_eq!(of("reread", "× best"), "3.00");
        assert_eq!(of("reread", "× tar"), "");
        assert_eq!(of("reread", "× disk"), "0.85");
        assert_eq!(cell(&all, DISK, "read, 8 at a time", "× disk"), "");
        all.cold = false;
        assert_eq!(cell(&all, "onefold", "reread", "× disk"), "");
    }

    #[test]
    fn a_cached_stage_that_was_not_one_is_warned_of() {
        let mut row = row("onefold", "reread-cached", 1.0);
        let mut warned = |cached_bytes, disk_read_bytes| {
            row.taken.source_bytes = 1_000_000_000;
            row.taken.cached_bytes = cached_bytes;
            row.taken.disk_read_bytes = disk_read_bytes;
            results(vec![Timing::from_json(&row.json())]).report()
        };
        let all = Some(1_000_000_000);
        assert!(!warned(all, 50_000_000).contains("WARNING"));
        assert!(warned(all, 150_000_000).contains("reread-cached: 150 MB came from the disk"));
        assert!(warned(Some(900_000_000), 0).contains("only 90.0 % of the files'"));
        assert!(warned(None, 0).contains("does not tell"));
    }
}
