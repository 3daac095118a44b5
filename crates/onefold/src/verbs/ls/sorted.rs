//! Sorts lines by their keys; lines with the same key stay in their order.
//!
//! Lines stay in RAM up to a budget. Beyond it, they are sorted and written to a nameless file, as a run, and the runs
//! are merged at the end.
//!
//! Format of a record in a run: `key length: u32 | line length: u32 | key | line`, little-endian.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use onefold_io::os::Scratch;

use crate::error::Result;

/// RAM for lines, or for the parts of their runs that are read, in bytes.
const RAM_BYTES: usize = 16 << 20;
/// Least bytes that are read of a run at once: beyond 4,096 runs, which are 64 GiB of lines, that takes more RAM than
/// the budget.
const READ_BYTES_MIN: usize = 4 << 10;
/// Bytes of a run that are written at once.
const WRITE_BYTES: usize = 256 << 10;
const LENGTHS_BYTES: usize = 8;

/// Lines to be sorted.
pub struct SortedLines {
    is_reverse: bool,
    ram_bytes: usize,
    bytes: Vec<u8>,
    records: Vec<LineSpan>,
    file: Option<Scratch>,
    runs: Vec<Range<u64>>,
}

/// Offsets in RAM of the key, of the line, and of the line's end.
#[derive(Clone, Copy)]
struct LineSpan {
    key: u32,
    line: u32,
    end: u32,
}

impl SortedLines {
    /// Makes an empty list. In reverse, lines with the same key are reversed, too.
    pub fn new(is_reverse: bool) -> Self {
        Self::within(RAM_BYTES, is_reverse)
    }

    fn within(ram_bytes: usize, is_reverse: bool) -> Self {
        Self {
            is_reverse,
            ram_bytes,
            bytes: Vec::new(),
            records: Vec::new(),
            file: None,
            runs: Vec::new(),
        }
    }

    /// Adds a line. Keys are compared byte by byte. Errors: the temporary file failed.
    pub fn push(&mut self, key: &[u8], line: &[u8]) -> Result<()> {
        let bytes = key.len() + line.len() + size_of::<LineSpan>();
        let held = self.bytes.len() + self.records.len() * size_of::<LineSpan>();
        if held + bytes > self.ram_bytes && !self.records.is_empty() {
            self.spill()?;
        }
        let at = |bytes: &Vec<u8>| bytes.len() as u32;
        let start = at(&self.bytes);
        self.bytes.extend_from_slice(key);
        let middle = at(&self.bytes);
        self.bytes.extend_from_slice(line);
        self.records.push(LineSpan {
            key: start,
            line: middle,
            end: at(&self.bytes),
        });
        Ok(())
    }

    /// Calls `visit` with all lines in order. Errors: the temporary file failed, or errors of `visit`.
    pub fn each(mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            self.sort();
            let lines = self.records.iter().map(|record| self.parts(record).1);
            return lines.into_iter().try_for_each(visit);
        }
        self.spill()?;
        (self.bytes, self.records) = (Vec::new(), Vec::new());
        match &self.file {
            Some(file) => self.merge(file, visit),
            None => Ok(()),
        }
    }

    fn parts(&self, record: &LineSpan) -> (&[u8], &[u8]) {
        let LineSpan { key, line, end } = *record;
        let bytes = &self.bytes[..end as usize];
        let (key, line) = (key as usize..line as usize, line as usize..);
        (&bytes[key], &bytes[line])
    }

    fn sort(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by(|a, b| {
            let keys = self.parts(a).0.cmp(self.parts(b).0);
            keys.then(a.key.cmp(&b.key)).then(a.end.cmp(&b.end))
        });
        if self.is_reverse {
            records.reverse();
        }
        self.records = records;
    }

    /// Writes the lines in RAM as a run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let file = match self.file.take() {
            Some(file) => file,
            None => Scratch::create().map_err(temporary)?,
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        let (mut end, mut out) = (start, Vec::with_capacity(WRITE_BYTES));
        for (i, record) in self.records.iter().enumerate() {
            let (key, line) = self.parts(record);
            for len in [key.len(), line.len()] {
                out.extend_from_slice(&(len as u32).to_le_bytes());
            }
            out.extend_from_slice(key);
            out.extend_from_slice(line);
            if out.len() >= WRITE_BYTES || i + 1 == self.records.len() {
                file.write_at(&out, end).map_err(temporary)?;
                end += out.len() as u64;
                out.clear();
            }
        }
        self.runs.push(start..end);
        self.file = Some(file);
        self.bytes.clear();
        self.records.clear();
        Ok(())
    }

    fn merge(&self, file: &Scratch, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let read_bytes = (self.ram_bytes / self.runs.len()).max(READ_BYTES_MIN);
        let mut heads = BinaryHeap::with_capacity(self.runs.len());
        for (number, run) in self.runs.iter().enumerate() {
            let mut head = RunHead {
                is_reverse: self.is_reverse,
                number,
                rest: run.clone(),
                read_bytes,
                buffer: Vec::new(),
                key: 0..0,
                line: 0..0,
            };
            if head.go_on(file)? {
                heads.push(head);
            }
        }
        while let Some(mut head) = heads.peek_mut() {
            visit(&head.buffer[head.line.clone()])?;
            if !head.go_on(file)? {
                PeekMut::pop(head);
            }
        }
        Ok(())
    }
}

/// The next record of a run. The greatest head comes first.
struct RunHead {
    is_reverse: bool,
    number: usize,
    /// Range of the file that is still to be read.
    rest: Range<u64>,
    read_bytes: usize,
    buffer: Vec<u8>,
    key: Range<usize>,
    line: Range<usize>,
}

impl RunHead {
    /// Moves to the next record. Returns false at the end of the run.
    fn go_on(&mut self, file: &Scratch) -> Result<bool> {
        let start = self.line.end;
        let start = self.have(start, LENGTHS_BYTES, file)?;
        let Some(lengths) = self.buffer.get(start..start + LENGTHS_BYTES) else {
            return Ok(false);
        };
        let (key, line) = lengths.split_at(LENGTHS_BYTES / 2);
        let len = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |len, b| len << 8 | usize::from(*b))
        };
        let (key, line) = (len(key), len(line));
        let start = self.have(start, LENGTHS_BYTES + key + line, file)? + LENGTHS_BYTES;
        self.key = start..start + key;
        self.line = self.key.end..self.key.end + line;
        Ok(true)
    }

    /// Fills the buffer until it has `len` bytes from `start` on, or as many as there are; returns where they begin.
    fn have(&mut self, start: usize, len: usize, file: &Scratch) -> Result<usize> {
        if start + len <= self.buffer.len() {
            return Ok(start);
        }
        self.buffer.drain(..start);
        let before = self.buffer.len();
        let rest = (self.rest.end - self.rest.start) as usize;
        let more = rest.min(len.max(self.read_bytes) - before);
        self.buffer.resize(before + more, 0);
        let read = file.read_at(&mut self.buffer[before..], self.rest.start);
        read.map_err(temporary)?;
        self.rest.start += more as u64;
        Ok(0)
    }

    fn place(&self) -> (&[u8], usize) {
        (&self.buffer[self.key.clone()], self.number)
    }
}

impl Ord for RunHead {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.place().cmp(&other.place());
        if self.is_reverse {
            order
        } else {
            order.reverse()
        }
    }
}

impl PartialOrd for RunHead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunHead {}

fn temporary(error: onefold_io::Error) -> crate::error::Error {
    onefold_backup::Error::Temporary(error).into()
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    /// Sorts with `slice::sort_by`, which is stable.
    fn naive(mut lines: Vec<(Vec<u8>, Vec<u8>)>, is_reverse: bool) -> Vec<Vec<u8>> {
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        if is_reverse {
            lines.reverse();
        }
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Returns the lines in order, and how many runs it took.
    fn sorted(
        lines: &[(Vec<u8>, Vec<u8>)],
        ram_bytes: usize,
        is_reverse: bool,
    ) -> (Vec<Vec<u8>>, usize) {
        let mut sorted = SortedLines::within(ram_bytes, is_reverse);
        for (key, line) in lines {
            sorted.push(key, line).expect("room");
            let held = sorted.bytes.len() + sorted.records.len() * size_of::<LineSpan>();
            assert!(held <= ram_bytes || sorted.records.len() == 1);
        }
        let (mut given, runs) = (Vec::new(), sorted.runs.len());
        let each = sorted.each(&mut |line| {
            given.push(line.to_vec());
            Ok(())
        });
        each.expect("read");
        (given, runs)
    }

    #[test]
    fn lines_go_in_the_order_of_their_keys_however_few_stand_in_ram() {
        let mut random = Random(1);
        let lines: Vec<_> = (0..3000u32)
            .map(|n| {
                let key_len = random.below(3) as usize;
                let key: Vec<u8> = (0..key_len).map(|_| random.below(3) as u8).collect();
                let line = format!("{n}{}", "-".repeat(random.below(40) as usize));
                (key, line.into_bytes())
            })
            .collect();
        for is_reverse in [false, true] {
            let expected = naive(lines.clone(), is_reverse);
            for (ram_bytes, runs_min) in [(1 << 20, 0), (20_000, 4), (300, 300), (1, 2999)] {
                let (given, runs) = sorted(&lines, ram_bytes, is_reverse);
                assert!(given == expected, "{ram_bytes}");
                assert!(runs >= runs_min && (runs_min > 0 || runs == 0), "{runs}");
            }
        }
    }

    #[test]
    fn a_line_may_be_longer_than_what_is_read_at_once() {
        let line = |n: usize| (vec![9 - n as u8], vec![n as u8; n * 5000]);
        let lines: Vec<_> = (0..8).map(line).collect();
        let (given, runs) = sorted(&lines, 100, false);
        assert!(given == naive(lines, false) && runs > 4);
    }

    #[test]
    fn without_lines_nothing_is_given() {
        assert_eq!(sorted(&[], 100, true), (Vec::new(), 0));
    }
}
