//! CPU time, of this process and of all others: where others take much, rates say little, and only CPU a chunk does.

use std::fs::read_to_string;

/// Ticks of `/proc`, a hundredth of a second each.
const TICKS: f64 = 100.0;

/// CPU time until now, in ticks; 0 where `/proc` does not say.
pub struct Cpu {
    own: f64,
    busy: f64,
    all: f64,
}

impl Cpu {
    /// CPU time until now.
    pub fn now() -> Self {
        let numbers = |path: &str, behind: char| -> Vec<f64> {
            let text = read_to_string(path).unwrap_or_default();
            let line = text.lines().next().unwrap_or_default();
            let rest = line.rsplit_once(behind).map_or(line, |(_, rest)| rest);
            let words = rest.split_whitespace();
            words.map(|word| word.parse().unwrap_or(0.0)).collect()
        };
        // state, ppid … utime and stime are the 12th and 13th behind the name.
        let own = numbers("/proc/self/stat", ')');
        // user nice system idle iowait irq softirq steal
        let all = numbers("/proc/stat", 'u');
        let sum = |list: &[f64]| list.iter().sum::<f64>();
        let idle = sum(all.get(3..5).unwrap_or_default());
        Self {
            own: sum(own.get(11..13).unwrap_or_default()),
            busy: sum(all.get(..8).unwrap_or_default()) - idle,
            all: sum(all.get(..8).unwrap_or_default()),
        }
    }

    /// Seconds of CPU that this process took since `before`.
    pub fn own_seconds(&self, before: &Self) -> f64 {
        (self.own - before.own) / TICKS
    }

    /// Percent of all CPUs that others took since `before`.
    pub fn others_percent(&self, before: &Self) -> f64 {
        let others = self.busy - before.busy - (self.own - before.own);
        100.0 * others / (self.all - before.all).max(1.0)
    }
}
