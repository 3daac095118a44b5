//! `ls --sort`: what is listed, held until all of it is there.

use clap::ValueEnum;
use onefold_backup::{Entry, Time, path};

/// What lines are sorted by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// As the snapshot has them: folder by folder, by name
    #[default]
    Name,
    /// Smallest first
    Size,
    /// Oldest content first
    #[value(alias = "mtime")]
    Time,
    /// Last read longest ago first, where that was kept
    Atime,
    /// Oldest change of the file's state first
    Ctime,
    /// By what follows the last dot
    Extension,
}

/// A line with what it is sorted by; the second part is for extensions.
type Line<T> = ((i128, Vec<u8>), T);

/// Lines to be sorted.
pub struct Sorted<T> {
    order: Order,
    lines: Vec<Line<T>>,
}

impl<T> Sorted<T> {
    /// None yet.
    pub fn by(order: Order) -> Self {
        Self {
            order,
            lines: Vec::new(),
        }
    }

    /// Adds the line of the entry at `path`.
    pub fn add(&mut self, at: &[u8], entry: &Entry, line: T) {
        let oldest = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        let number = match self.order {
            Order::Name | Order::Extension => 0,
            Order::Size => i128::from(entry.size),
            Order::Time => oldest(entry.mtime),
            Order::Atime => oldest(entry.atime.unwrap_or(entry.mtime)),
            Order::Ctime => oldest(entry.ctime),
        };
        let word = match self.order {
            Order::Extension => extension(path::split(at).1).to_vec(),
            _ => Vec::new(),
        };
        self.lines.push(((number, word), line));
    }

    /// In order; equal ones stay as the snapshot has them.
    pub fn lines(mut self, reverse: bool) -> impl Iterator<Item = T> {
        self.lines.sort_by(|a, b| a.0.cmp(&b.0));
        if reverse {
            self.lines.reverse();
        }
        self.lines.into_iter().map(|(_, line)| line)
    }
}

fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|b| *b == b'.') {
        Some(at) => &name[at..],
        None => b"",
    }
}
