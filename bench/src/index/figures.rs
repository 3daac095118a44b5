//! The figures of one store, and the table that compares stores.

use crate::report::Table;

/// Bytes of a page, the unit of reads.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a key and its container, to which written bytes are related: write amplification.
pub const RECORD_BYTES: f64 = 40.0;

/// The costs of one kind of work.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the kind: `insert` (with the lookup before, until all is durable), `merged` (the same, until nothing is
    /// left to merge), `absent`, `stream` or `random`.
    pub what: String,
    /// Number of threads that asked.
    pub threads: u64,
    /// Keys a second, wall time.
    pub rate: f64,
    /// CPU time a key of all threads, in microseconds.
    pub cpu_us: f64,
    /// Pages of 4 KiB read from the disk, for each key.
    pub pages: f64,
    /// Bytes written to the disk, for each key.
    pub written: f64,
}

/// A store with one budget.
#[derive(Clone, Debug)]
pub struct MeasuredStore {
    /// Name of the store.
    pub name: String,
    /// The store's budget, in MiB.
    pub budget_mib: usize,
    /// Number of keys in the store during lookups.
    pub keys: u64,
    /// RAM by the store's own account, and by the allocator's, in bytes; 0 where unknown.
    pub ram: (u64, u64),
    /// Peak RSS of the process, in KiB.
    pub peak_kib: u64,
    /// Figures by kind and number of threads.
    pub figures: Vec<Figure>,
}

impl MeasuredStore {
    /// The best figure of a kind, over the numbers of threads.
    fn best(&self, what: &str) -> Option<&Figure> {
        let of_kind = self.figures.iter().filter(|figure| figure.what == what);
        of_kind.max_by(|a, b| a.rate.total_cmp(&b.rate))
    }
}

/// Kinds of work, in the order of the columns.
const KINDS: [&str; 5] = ["insert", "merged", "absent", "stream", "random"];
/// The kinds of work that are lookups.
const LOOKUPS: [&str; 3] = ["absent", "stream", "random"];

/// A row for each store; then, for each of ours, its speed relative to the best of the others with the same budget.
pub fn table(all: &[MeasuredStore]) -> Table {
    let mut rows: Vec<Vec<String>> = all.iter().map(row).collect();
    for one in all.iter().filter(|one| one.ram.0 > 0) {
        let others = || {
            all.iter()
                .filter(|other| other.ram.0 == 0 && other.budget_mib == one.budget_mib)
        };
        if others().next().is_none() {
            continue;
        }
        let mut cells = vec![format!("{} / best other", one.name)];
        cells.resize(6, String::new());
        for what in KINDS {
            let best = others()
                .filter_map(|other| other.best(what))
                .map(|figure| figure.rate)
                .fold(0.0, f64::max);
            let own = one.best(what).map_or(0.0, |figure| figure.rate);
            cells.push(format!("{:.2}", own / best));
        }
        cells.resize(HEAD.len(), String::new());
        rows.push(cells);
    }
    Table {
        head: HEAD.to_vec(),
        words: 1,
        rows,
    }
}

const HEAD: [&str; 16] = [
    "store",
    "MiB",
    "M keys",
    "B/key held",
    "counted",
    "peak MiB",
    "insert/s",
    "merged/s",
    "absent/s",
    "stream/s",
    "random/s",
    "pages/absent",
    "pages/stream",
    "pages/random",
    "written/key",
    "WA",
];

fn row(one: &MeasuredStore) -> Vec<String> {
    let each = |bytes: u64| match bytes {
        0 => "–".to_string(),
        bytes => format!("{:.2}", bytes as f64 / one.keys as f64),
    };
    let mut cells = vec![
        one.name.clone(),
        one.budget_mib.to_string(),
        format!("{:.1}", one.keys as f64 / 1e6),
        each(one.ram.0),
        each(one.ram.1),
        (one.peak_kib >> 10).to_string(),
    ];
    for what in KINDS {
        cells.push(one.best(what).map_or("–".to_string(), |figure| {
            let threads = match figure.threads {
                1 => String::new(),
                threads => format!(" ({threads} threads)"),
            };
            format!("{:.0}{threads}", figure.rate)
        }));
    }
    for what in LOOKUPS {
        cells.push(
            one.best(what)
                .map_or("–".to_string(), |figure| format!("{:.3}", figure.pages)),
        );
    }
    let written = one.best("merged").map(|figure| figure.written);
    cells.push(written.map_or("–".to_string(), |bytes| format!("{bytes:.0}")));
    cells.push(written.map_or("–".to_string(), |bytes| {
        format!("{:.2}", bytes / RECORD_BYTES)
    }));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, held: u64, rates: [f64; 2]) -> MeasuredStore {
        let figure = |what: &str, rate: f64, written: f64| Figure {
            what: what.into(),
            threads: 1,
            rate,
            cpu_us: 1.0,
            pages: 0.5,
            written,
        };
        let [insert, merged] = rates;
        MeasuredStore {
            name: name.into(),
            budget_mib: 64,
            keys: 1_000_000,
            ram: (held, held),
            peak_kib: 1 << 10,
            figures: vec![
                figure("insert", insert, 60.0),
                figure("merged", merged, 100.0),
            ],
        }
    }

    /// One rule for all: both times, and the bytes written until nothing was left to merge, against 40 bytes.
    #[test]
    fn ours_and_others_are_held_against_the_same() {
        let all = [
            measured("strata", 1 << 20, [900.0, 600.0]),
            measured("other", 0, [100.0, 50.0]),
        ];
        let table = table(&all);
        let cell = |row: usize, title: &str| {
            let column = table.head.iter().position(|head| *head == title);
            table.rows[row][column.expect("a column")].as_str()
        };
        for row in [0, 1] {
            assert_eq!(cell(row, "written/key"), "100");
            assert_eq!(cell(row, "WA"), "2.50");
        }
        assert_eq!(
            (cell(2, "insert/s"), cell(2, "merged/s")),
            ("9.00", "12.00")
        );
    }
}
