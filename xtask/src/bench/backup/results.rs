//! The figures, and what they say of each other.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::measure::{self, Measured};
use super::tools::{Compression, TOOLS, Tool};
use crate::bench::report::{self, Table};

/// The name under which the disk's own rates stand.
const DISK: &str = "(disk)";

/// One stage of one tool in one round.
#[derive(Clone, Debug)]
pub struct Row {
    set: String,
    tool: String,
    stage: String,
    taken: Measured,
    /// The repository afterwards: bytes in its files, and bytes that they take on the disk.
    repo_bytes: u64,
    repo_disk_bytes: u64,
    /// What the tool keeps outside of its repository.
    cache_bytes: u64,
    /// Bytes read, for the disk's own rates.
    read_bytes: u64,
}

impl Row {
    /// Looks at the repository as it is now.
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
        }
    }

    /// A rate of the disk.
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
        }
    }

    /// For whoever watches.
    pub fn line(&self) -> String {
        let taken = &self.taken;
        format!(
            "{} {:<14} {:<18} {:>7.2} s  CPU {:>7.2} s  RSS {:>5} MB  repository {:>6} MB  others' CPU {:.1} s",
            self.set,
            self.tool,
            self.stage,
            taken.wall_s,
            taken.cpu_s,
            mb(taken.rss_bytes),
            mb(self.repo_bytes.max(self.read_bytes)),
            taken.others_cpu_s
        )
    }

    fn json(&self) -> Value {
        let taken = &self.taken;
        json!({
            "set": self.set, "tool": self.tool, "stage": self.stage,
            "wall_s": taken.wall_s, "cpu_s": taken.cpu_s, "rss_bytes": taken.rss_bytes,
            "others_cpu_s": taken.others_cpu_s, "sync_s": taken.sync_s,
            "repo_bytes": self.repo_bytes, "repo_disk_bytes": self.repo_disk_bytes,
            "cache_bytes": self.cache_bytes, "read_bytes": self.read_bytes,
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
                others_cpu_s: real("others_cpu_s"),
                sync_s: real("sync_s"),
            },
            repo_bytes: whole("repo_bytes"),
            repo_disk_bytes: whole("repo_disk_bytes"),
            cache_bytes: whole("cache_bytes"),
            read_bytes: whole("read_bytes"),
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
    /// In the order of measuring; earlier runs' first.
    pub rows: Vec<Row>,
    failures: Vec<String>,
}

impl Results {
    /// Begins with what the files `with` hold.
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
            results.rows.extend(rows.map(Row::from_json));
        }
        Ok(results)
    }

    /// A tool that did not come through; its later stages are missing.
    pub fn failed(&mut self, set: &str, tool: &str, error: &str) {
        self.failures.push(format!("{set} {tool}: {error}"));
    }

    /// Everything, for machines.
    pub fn json(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        let all = json!({
            "machine": self.machine, "scale": self.scale, "seed": self.seed, "cold": self.cold,
            "rows": rows, "failures": self.failures,
        });
        format!("{all:#}\n")
    }

    /// The table and what stands around it.
    pub fn report(&self) -> String {
        self.document(&self.table().text())
    }

    /// The same as Markdown.
    pub fn markdown(&self) -> String {
        self.document(&self.table().markdown())
    }

    fn document(&self, table: &str) -> String {
        let cache = match self.cold {
            true => "page cache dropped before each stage but reread-cached",
            false => "page cache NOT dropped",
        };
        format!(
            "{}\n\nscale {}, seed {}, {cache}\n\n{table}\n{LEGEND}\n{}",
            report::machine_line(&self.machine),
            self.scale,
            self.seed,
            self.failures.join("\n")
        )
    }

    fn table(&self) -> Table {
        let mut table = Table {
            head: vec![
                "set", "stage", "tool", "wall s", "× best", "CPU s", "RSS MB", "sync s", "repo MB",
                "× best", "others %",
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
            table
                .rows
                .extend(medians.iter().map(|row| cells(row, &medians)));
        }
        table
    }

    /// One row a tool.
    fn medians(&self, set: &str, stage: &str) -> Vec<Row> {
        let here = |row: &&Row| row.set == set && row.stage == stage;
        let mut tools: Vec<&str> = self
            .rows
            .iter()
            .filter(here)
            .map(|row| &*row.tool)
            .collect();
        tools.sort_unstable();
        tools.dedup();
        let median_row = |tool: &str| {
            let rounds: Vec<&Row> = (self.rows.iter().filter(here))
                .filter(|row| row.tool == tool)
                .collect();
            let middle = |value: fn(&Row) -> f64| {
                let values: Vec<f64> = rounds.iter().map(|row| value(row)).collect();
                report::median(&values).unwrap_or_default()
            };
            let mut row = rounds[rounds.len() - 1].clone();
            row.taken.wall_s = middle(|row| row.taken.wall_s);
            row.taken.cpu_s = middle(|row| row.taken.cpu_s);
            row.taken.rss_bytes = middle(|row| row.taken.rss_bytes as f64) as u64;
            row.taken.others_cpu_s = middle(|row| row.taken.others_cpu_s);
            row.taken.sync_s = middle(|row| row.taken.sync_s);
            row
        };
        tools.into_iter().map(median_row).collect()
    }
}

const LEGEND: &str = "\
× best: the best peer's figure divided by this one; above 1 is better than every peer. A first backup and its size are compared with peers that
compress, or with those that do not; other stages with all. tar and the disk's rates are yardsticks, no peers. RSS: the largest process.
sync s: what was left to write afterwards. others %: CPU that others used meanwhile; with more than a few, do not trust the wall.";

fn cells(row: &Row, all: &[Row]) -> Vec<String> {
    let wall = |row: &Row| row.taken.wall_s;
    let size = |row: &Row| row.repo_bytes as f64;
    let first = row.stage == "first";
    let ratio = |value: &dyn Fn(&Row) -> f64, classes: bool| {
        let rivals = all.iter().filter(|other| {
            is_peer(&other.tool) && (!classes || compresses(&other.tool) == compresses(&row.tool))
        });
        let best = rivals.map(value).fold(f64::INFINITY, f64::min);
        match row.tool != DISK && best.is_finite() && value(row) > 0.0 {
            true => format!("{:.2}", best / value(row)),
            false => String::new(),
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let others = row.taken.others_cpu_s / (row.taken.wall_s * cpus).max(0.01) * 100.0;
    vec![
        row.set.clone(),
        row.stage.clone(),
        row.tool.clone(),
        format!("{:.2}", row.taken.wall_s),
        ratio(&wall, first),
        format!("{:.2}", row.taken.cpu_s),
        mb(row.taken.rss_bytes).to_string(),
        format!("{:.1}", row.taken.sync_s),
        mb(row.repo_bytes.max(row.read_bytes)).to_string(),
        ratio(&size, true),
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
