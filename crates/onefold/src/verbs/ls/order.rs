//! `ls --sort`: orders of lines.

use clap::ValueEnum;
use onefold_backup::{Entry, Time, path};

/// Order of lines.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LineOrder {
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

impl LineOrder {
    /// Returns the sort key of the line for the entry `at` this path; keys are compared byte by byte.
    pub fn key(self, at: &[u8], entry: &Entry) -> Vec<u8> {
        let oldest = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        let number = match self {
            LineOrder::Name => return Vec::new(),
            LineOrder::Extension => return extension(path::split(at).1).to_vec(),
            LineOrder::Size => i128::from(entry.size),
            LineOrder::Time => oldest(entry.mtime),
            LineOrder::Atime => oldest(entry.atime.unwrap_or(entry.mtime)),
            LineOrder::Ctime => oldest(entry.ctime),
        };
        // Negative numbers come before others.
        (number ^ i128::MIN).to_be_bytes().to_vec()
    }
}

fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|b| *b == b'.') {
        Some(at) => &name[at..],
        None => b"",
    }
}

#[cfg(test)]
mod tests {
    use onefold_backup::Kind;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_times_before_and_after_1970() {
        let key = |secs: i64, nanos: u32| {
            let mut entry = Entry::new(b"f".to_vec(), Kind::File);
            entry.mtime = Time { secs, nanos };
            LineOrder::Time.key(b"/f", &entry)
        };
        let times = [
            (i64::MIN, 0),
            (-1, 0),
            (-1, 999_999_999),
            (0, 0),
            (0, 1),
            (256, 0),
            (i64::MAX, 1),
        ];
        assert!(
            times
                .map(|(secs, nanos)| key(secs, nanos))
                .is_sorted_by(|a, b| a < b)
        );
    }
}
