//! Common output of all benchmarks: the machine, and tables as text and as Markdown.

use std::process::Command;

use serde_json::{Value, json};

/// CPU features for which the engine or its peers have faster code.
const FLAGS: &[&str] = &[
    "aes",
    "sha_ni",
    "avx2",
    "pclmulqdq",
    "vpclmulqdq",
    "avx512f",
    "avx512bw",
    "avx512vbmi",
];

/// The machine, its kernel and the date, as one JSON object.
pub fn machine() -> Value {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpus.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map_or("", |(_, value)| value.trim())
    };
    let flags: Vec<_> = field("flags")
        .split(' ')
        .filter(|flag| FLAGS.contains(flag))
        .collect();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": field("model name"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "flags": flags.join(" "),
        "memory_mib": memory.unwrap_or(0) >> 10,
        "kernel": kernel.trim(),
        "date": jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": commit(),
    })
}

/// The machine in one line.
pub fn machine_line(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("?").to_string();
    format!(
        "{} × {} ({}), {} MiB, Linux {}, {}, onefold {} {}",
        machine["cpus"],
        text("cpu"),
        text("flags"),
        machine["memory_mib"],
        text("kernel"),
        text("date"),
        text("version"),
        text("commit")
    )
}

fn commit() -> String {
    let asked = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    asked.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_string(),
    )
}

/// The middle value; for an even number of values, the mean of the two in the middle. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// A table; the first columns are words, the others numbers.
pub struct Table {
    /// The titles, one for each column.
    pub head: Vec<&'static str>,
    /// Number of columns from the left that are words.
    pub words: usize,
    /// Rows, each with as many cells as there are titles.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The table as text, with columns aligned by spaces.
    pub fn text(&self) -> String {
        self.lines("  ", "", "")
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let text = self.lines(" | ", "| ", " |");
        let rule: Vec<_> = (0..self.head.len())
            .map(|column| if column < self.words { "---" } else { "---:" })
            .collect();
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        format!("{head}\n|{}|\n{rest}", rule.join("|"))
    }

    fn lines(&self, between: &str, before: &str, after: &str) -> String {
        let head: Vec<String> = self.head.iter().map(|title| (*title).to_string()).collect();
        let rows = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| rows().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..head.len())
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<_> = (row.iter().zip(&widths).enumerate())
                .map(|(column, (cell, width))| {
                    let pad = " ".repeat(width - cell.chars().count());
                    if column < self.words {
                        format!("{cell}{pad}")
                    } else {
                        format!("{pad}{cell}")
                    }
                })
                .collect();
            format!("{before}{}{after}\n", cells.join(between))
        };
        rows().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn a_table_aligns_words_left_and_numbers_right() {
        let table = Table {
            head: vec!["tool", "s"],
            words: 1,
            rows: vec![vec!["a".into(), "10.0".into()]],
        };
        assert_eq!(table.text(), "tool     s\na     10.0\n");
        assert_eq!(
            table.markdown(),
            "| tool |    s |\n|---|---:|\n| a    | 10.0 |\n"
        );
    }
}
