//! The manifest: which files the index consists of. The one file that is ever replaced.
//!
//! Always holds: logs and runs stand in the order of their age, and each run speaks of a range of log pages of its own,
//! so that of two runs one is newer as a whole. The pages behind those of the last run are loose: no run speaks of them
//! yet.

use std::ops::Range;

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::ByteReader;

use crate::{ContainerId, Result};

/// The frame of the manifest.
pub const MANIFEST_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTRMAN",
    version: 4,
};
/// The most runs: a lookup keeps a bit for each.
pub const RUNS_MAX: usize = 128;
/// From so many on, whoever says something waits for merges.
pub const RUNS_MANY: usize = RUNS_MAX / 4 * 3;
/// Records on loose pages, at most: 60 bytes of RAM each, which any budget has.
pub const LOOSE_RECORDS_MAX: u32 = 1024;
/// Loose pages, at most: who opens the index reads all of them.
pub const LOOSE_PAGES_MAX: u32 = 64;
/// Log pages are numbers of 31 bits: 270 G records.
pub const LOG_PAGES_MAX: u32 = 1 << 31;
/// No opener makes so many files; the next number fits 32 bits.
const FILE_NUMBER_MAX: u32 = 1 << 31;
/// What no log or run holds more of: 128 for each page there can be. Sums and products of it fit 64 bits.
const RECORDS_MAX: u64 = (LOG_PAGES_MAX as u64) << 7;

/// Which log pages are loose: no run speaks of them yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoosePages {
    /// Of which index: see [`Manifest`].
    pub born: u64,
    /// All that are behind the last run; of those of files that were dropped there is nothing left.
    pub pages: Range<u32>,
    /// Records that were written to them; those of files that were dropped count.
    pub records: u32,
}

impl LoosePages {
    /// Whether `records` on `pages` more may be loose, too.
    pub fn has_room(&self, records: usize, pages: u32) -> bool {
        self.records as usize + records <= LOOSE_RECORDS_MAX as usize
            && self.pages.len() + pages as usize <= LOOSE_PAGES_MAX as usize
    }

    /// How many pages a run must speak of besides those behind them: all, or none where they have no records.
    pub fn to_cover(&self) -> u32 {
        match self.records {
            0 => 0,
            _ => self.pages.len() as u32,
        }
    }

    /// Whether a run of these pages and of those behind them has a place in an index of which `newest` are loose: where
    /// none have records, as any that speaks of pages to come; else as that of who knows all of them.
    pub fn are_all(&self, newest: &LoosePages) -> bool {
        let is_same = (self.born, self.pages.end) == (newest.born, newest.pages.end);
        is_same || self.records == 0 && newest.records == 0
    }
}

/// What makes the name of a log or run: who wrote it, and its how manieth it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The writer's own number.
    pub unique: u64,
    /// Counts that writer's files.
    pub number: u32,
}

impl FileId {
    /// The name of the log file.
    pub fn log_name(&self) -> String {
        format!("log-{:016x}-{:08x}", self.unique, self.number)
    }

    /// The name of the run.
    pub fn run_name(&self) -> String {
        format!("run-{:016x}-{:08x}", self.unique, self.number)
    }

    /// What goes into the checksums of its pages, so that a page of another file is damage in this one.
    pub fn mark(&self) -> u64 {
        self.unique ^ u64::from(self.number).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

/// A log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its name.
    pub id: FileId,
    /// Its first page in the sequence of all log pages.
    pub first_page: u32,
    /// Its pages; the footer follows them, and between them may stand earlier ones.
    pub pages: u32,
    /// Records.
    pub records: u64,
    /// The file up to the footer's end; it may be longer where its writer is adding to it, or died of that.
    pub file_bytes: u64,
}

impl LogEntry {
    /// The page behind its last.
    pub fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunEntry {
    /// Its name.
    pub id: FileId,
    /// The log page that its records count from.
    pub first_page: u32,
    /// The page behind the last that it speaks of.
    pub end_page: u32,
    /// Records.
    pub records: u64,
    /// Where its footer begins.
    pub footer_at: u64,
    /// The whole file.
    pub file_bytes: u64,
}

/// Which files the index consists of, and the order of their age.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Manifest {
    /// Grows with each replacement.
    pub generation: u64,
    /// Who began this index: an index that was deleted and begun anew numbers its log pages anew.
    pub born: u64,
    /// The number of the next log page.
    pub next_page: u32,
    /// See [`LoosePages`].
    pub loose_records: u32,
    /// Log files, oldest first.
    pub logs: Vec<LogEntry>,
    /// Runs, oldest first.
    pub runs: Vec<RunEntry>,
    /// Retired containers that some log page still speaks of, sorted.
    pub retired: Vec<ContainerId>,
}

impl Manifest {
    /// Its bytes, framed.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.generation.to_le_bytes().to_vec();
        out.extend_from_slice(&self.born.to_le_bytes());
        let counts = [
            self.next_page,
            self.loose_records,
            self.logs.len() as u32,
            self.runs.len() as u32,
            self.retired.len() as u32,
        ];
        counts
            .iter()
            .for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
        for log in &self.logs {
            put_id(&mut out, log.id);
            [log.first_page, log.pages]
                .iter()
                .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            [log.records, log.file_bytes]
                .iter()
                .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        for run in &self.runs {
            put_id(&mut out, run.id);
            [run.first_page, run.end_page]
                .iter()
                .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            [run.records, run.footer_at, run.file_bytes]
                .iter()
                .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        self.retired
            .iter()
            .for_each(|container| out.extend_from_slice(&container.0.to_le_bytes()));
        encode_frame(MANIFEST_FRAME, &out)
    }

    /// What `encode` made, checked; `path` is for errors.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Manifest> {
        let payload = decode_whole(MANIFEST_FRAME, bytes, path, 0)?;
        let mut reader = ByteReader::new(payload, path, 0);
        let (generation, born) = (reader.u64()?, reader.u64()?);
        if generation == u64::MAX {
            let what = format!("generation {generation}, which has no next");
            return Err(reader.damaged(what).into());
        }
        let (next_page, loose_records) = (reader.u32()?, reader.u32()?);
        let [logs, runs, retired] = [reader.u32()?, reader.u32()?, reader.u32()?];
        let logs = (0..logs)
            .map(|_| read_log(&mut reader))
            .collect::<Result<Vec<_>>>()?;
        let runs = (0..runs)
            .map(|_| read_run(&mut reader))
            .collect::<Result<Vec<_>>>()?;
        let retired = (0..retired)
            .map(|_| Ok(ContainerId(reader.u64()?)))
            .collect::<Result<Vec<_>>>()?;
        reader.end()?;
        let manifest = Manifest {
            generation,
            born,
            next_page,
            loose_records,
            logs,
            runs,
            retired,
        };
        match manifest.disorder() {
            Some(what) => Err(reader.damaged(what).into()),
            None => Ok(manifest),
        }
    }

    /// The names of all its files.
    pub fn file_names(&self) -> impl Iterator<Item = String> + '_ {
        let logs = self.logs.iter().map(|log| log.id.log_name());
        logs.chain(self.runs.iter().map(|run| run.id.run_name()))
    }

    /// Records in all runs: superseded and retired ones count.
    pub fn records(&self) -> u64 {
        self.runs.iter().map(|run| run.records).sum()
    }

    /// Its loose pages.
    pub fn loose(&self) -> LoosePages {
        LoosePages {
            born: self.born,
            pages: self.runs.last().map_or(0, |run| run.end_page)..self.next_page,
            records: self.loose_records,
        }
    }

    /// Whether what is loose is the same as in `other`.
    pub fn has_loose_of(&self, other: &Manifest) -> bool {
        self.loose() == other.loose() && self.loose_logs() == other.loose_logs()
    }

    /// Log files that have loose pages.
    fn loose_logs(&self) -> &[LogEntry] {
        let first = self.loose().pages.start;
        &self.logs[self.logs.partition_point(|log| log.end_page() <= first)..]
    }

    /// Bytes of all files, the manifest's own not counted.
    pub fn file_bytes(&self) -> u64 {
        self.logs.iter().map(|log| log.file_bytes).sum::<u64>()
            + self.runs.iter().map(|run| run.file_bytes).sum::<u64>()
    }

    fn disorder(&self) -> Option<String> {
        if self.runs.len() > RUNS_MAX {
            return Some(format!(
                "{} runs, expected at most {RUNS_MAX}",
                self.runs.len()
            ));
        }
        let mut page = 0u64;
        for log in &self.logs {
            if u64::from(log.first_page) < page {
                return Some(format!(
                    "log from page {}, but {page} is taken",
                    log.first_page
                ));
            }
            page = u64::from(log.first_page) + u64::from(log.pages);
        }
        let mut end = 0;
        for run in &self.runs {
            if run.first_page < end
                || run.end_page < run.first_page
                || run.footer_at > run.file_bytes
            {
                return Some(format!(
                    "run of pages {} to {}, but {end} is taken",
                    run.first_page, run.end_page
                ));
            }
            end = run.end_page;
        }
        let over = page > u64::from(self.next_page)
            || end > self.next_page
            || self.next_page > LOG_PAGES_MAX;
        if over {
            let next = self.next_page;
            return Some(format!(
                "pages up to {page} and {end}, expected at most {next}"
            ));
        }
        let loose = self.loose();
        (!loose.has_room(0, 0)).then(|| format!("{loose:?}, too many"))
    }
}

fn put_id(out: &mut Vec<u8>, id: FileId) {
    out.extend_from_slice(&id.unique.to_le_bytes());
    out.extend_from_slice(&id.number.to_le_bytes());
}

fn read_id(reader: &mut ByteReader<'_>) -> Result<FileId> {
    let (unique, number) = (reader.u64()?, reader.u32()?);
    match number {
        0..=FILE_NUMBER_MAX => Ok(FileId { unique, number }),
        _ => Err(reader
            .damaged(format!("file number {number}, at most {FILE_NUMBER_MAX}"))
            .into()),
    }
}

fn read_log(reader: &mut ByteReader<'_>) -> Result<LogEntry> {
    let id = read_id(reader)?;
    Ok(LogEntry {
        id,
        first_page: reader.u32()?,
        pages: reader.u32()?,
        records: read_records(reader)?,
        file_bytes: reader.u64()?,
    })
}

fn read_records(reader: &mut ByteReader<'_>) -> Result<u64> {
    match reader.u64()? {
        records @ 0..=RECORDS_MAX => Ok(records),
        records => Err(reader
            .damaged(format!("{records} records, at most {RECORDS_MAX}"))
            .into()),
    }
}

fn read_run(reader: &mut ByteReader<'_>) -> Result<RunEntry> {
    let id = read_id(reader)?;
    let [first_page, end_page] = [reader.u32()?, reader.u32()?];
    Ok(RunEntry {
        id,
        first_page,
        end_page,
        records: read_records(reader)?,
        footer_at: reader.u64()?,
        file_bytes: reader.u64()?,
    })
}
