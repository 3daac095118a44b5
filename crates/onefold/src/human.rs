//! Numbers for people: sizes in binary units, counts with separators, durations, and sizes as people write them; and
//! sentences about numbers that several verbs use.

use std::time::Duration;

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Returns bytes with three significant digits: `17 B`, `1.50 KiB`, `16.0 MiB`, `123 GiB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    // From 999.5 on the number would print as 1000: the next unit is shorter.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{n} B"),
        (_, v) if v < 9.995 => format!("{v:.2} {}", UNITS[unit]),
        (_, v) if v < 99.95 => format!("{v:.1} {}", UNITS[unit]),
        (_, v) => format!("{v:.0} {}", UNITS[unit]),
    }
}

/// Returns a count with thousands separated: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a count and a noun, in the plural unless the count is one: `1 file`, `2,000 files`.
pub fn many(n: u64, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        _ if n == 1 => noun.to_owned(),
        Some(stem) if !noun.ends_with("ey") => format!("{stem}ies"),
        _ => format!("{noun}s"),
    };
    format!("{} {plural}", count(n))
}

/// Returns a sentence: `of` lacks paths that could not be read.
pub fn unread(of: &str, paths: u64) -> String {
    let they_were = if paths == 1 { "it was" } else { "they were" };
    let paths = many(paths, "path");
    format!("{of} lacks {paths} that could not be read or listed when {they_were} backed up")
}

/// Returns a sentence: `of` lacks attributes of paths that could not be read.
pub fn unread_attributes(of: &str, paths: u64) -> String {
    let paths = many(paths, "path");
    format!("{of} lacks the attributes of {paths}: they could not be read when they were backed up")
}

/// Returns a duration as `0.42 s`, `12.3 s`, `3:07 min` or `2:05:09 h`.
pub fn duration(d: Duration) -> String {
    let secs = d.as_secs();
    match secs {
        0..10 => format!("{:.2} s", d.as_secs_f64()),
        10..60 => format!("{:.1} s", d.as_secs_f64()),
        60..3600 => format!("{}:{:02} min", secs / 60, secs % 60),
        _ => format!("{}:{:02}:{:02} h", secs / 3600, secs / 60 % 60, secs % 60),
    }
}

/// Returns `part` of `whole` in percent; 0 of nothing is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Returns a ratio as `2.41×`, or `–` where the divisor is 0.
pub fn ratio(big: u64, small: u64) -> String {
    match small {
        0 => "–".into(),
        _ if big >= small.saturating_mul(1000) => format!("{}×", count(big / small)),
        _ => format!("{:.2}×", big as f64 / small as f64),
    }
}

/// Parses a rate in bytes a second: a bare number counts KiB, as restic's does; with a unit it is a size.
///
/// # Errors
/// A sentence for the user: the text is no rate, or the rate is zero.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let is_bare = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let rate = if is_bare {
        parse_bytes(&format!("{text}K"))
    } else {
        parse_bytes(text)
    }?;
    match rate {
        0 => Err("at a rate of 0 nothing moves: leave it out for none".into()),
        rate => Ok(rate),
    }
}

/// Parses a size as people write it: `4096`, `64K`, `16MiB`, `1.5g`. Units are binary, as restic's. Errors: a sentence
/// for the user.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no size: write it like 65536, 64K, 16M or 1.5G"))?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => {
            return Err(format!(
                "unit {other:?} is unknown: K, M, G and T are taken, 1K being 1024 bytes"
            ));
        }
    };
    let bytes = number * (1u64 << shift) as f64;
    if bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(format!("{text:?} is too large"))
    }
}

/// Parses a percentage, `5%` or `2.5%`, as a share of one. Errors: a sentence for the user.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .ok_or_else(|| format!("{text:?} has no % sign"))?;
    match number.trim().parse::<f64>() {
        Ok(n) if (0.0..=100.0).contains(&n) => Ok(n / 100.0),
        _ => Err(format!("{text:?} is not between 0% and 100%")),
    }
}

/// Parses a duration as Go writes it, such as `30s`, `5m`, `1h30m`. Errors: a sentence for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write it like 30s, 5m or 1h30m");
    let (mut secs, mut rest) = (0u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        let (number, more) = rest.split_at(digits.ok_or_else(wrong)?);
        let unit = match more.as_bytes()[0] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let more_secs = number.checked_mul(unit).ok_or_else(wrong)?;
        secs = secs.checked_add(more_secs).ok_or_else(wrong)?;
        rest = &more[1..];
    }
    match text {
        "" => Err(wrong()),
        _ => Ok(Duration::from_secs(secs)),
    }
}

/// Returns rows as left-aligned columns, two spaces apart; the last column is not padded. Columns in `right` are
/// aligned right.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let mut columns = Columns::new(right);
    rows.iter().for_each(|row| columns.fit(row));
    let lines = rows.iter().map(|row| columns.line(row) + "\n");
    lines.collect()
}

/// Columns of a table whose rows come one by one, twice: to be measured, and to be written.
pub struct Columns<'a> {
    widths: Vec<usize>,
    right: &'a [usize],
}

impl<'a> Columns<'a> {
    /// Makes a table; the columns in `right` are aligned right.
    pub fn new(right: &'a [usize]) -> Self {
        let widths = Vec::new();
        Self { widths, right }
    }

    /// Makes the columns at least as wide as this row needs.
    pub fn fit(&mut self, row: &[String]) {
        let columns = self.widths.len().max(row.len());
        self.widths.resize(columns, 0);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// Returns a row as a line.
    pub fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
            if c + 1 == self.widths.len() && !self.right.contains(&c) {
                line += cell;
                break;
            }
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            line += &if self.right.contains(&c) {
                pad + cell
            } else {
                format!("{cell}{pad}")
            };
            line += "  ";
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let [one, two] = [1, 2].map(|paths| unread("it", paths));
        assert!(one.contains("1 path that") && one.contains("when it was"));
        assert!(two.contains("2 paths that") && two.contains("when they were"));
    }

    #[test]
    fn sizes_have_three_digits() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1536, "1.50 KiB"),
            (16 << 20, "16.0 MiB"),
            (123 << 30, "123 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn counts_and_nouns() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(many(1, "file"), "1 file");
        assert_eq!(many(0, "directory"), "0 directories");
        assert_eq!(many(2, "key"), "2 keys");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        for wrong in ["", "-1", "x", "1X", "1e30T", "K", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        let why = |wrong| parse_bytes(wrong).unwrap_err();
        assert!(why("-1").contains("no size"));
        assert!(why("8X").contains("1024 bytes"));
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(parse_duration("1h30m5s"), Ok(Duration::from_secs(5405)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for wrong in ["", "5", "m", "-5m", "5x", "5µ", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tables_align() {
        let rows = vec![
            vec!["a".into(), "1".into(), "x".into()],
            vec!["bcd".into(), "10".into(), "y".into()],
        ];
        assert_eq!(table(&rows, &[1]), "a     1  x\nbcd  10  y\n");
    }
}
