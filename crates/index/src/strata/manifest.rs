//! The manifest: the list of files that make up the index. No other file of the index is ever replaced.
//!
//! Invariant: logs and runs stand in the order of their age, and each run speaks of a range of log pages of its own,
//! so that one of any two runs is newer as a whole. The pages behind those of the last run are loose: no run speaks of
//! them yet.

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
/// Number of runs from which an opener that inserts waits for merges.
pub const RUNS_MANY: usize = RUNS_MAX / 4 * 3;
/// Largest number of records on loose pages: 60 bytes of RAM each, which any budget has.
pub const LOOSE_RECORDS_MAX: u32 = 1024;
/// Largest number of loose pages: opening the index reads all of them.
pub const LOOSE_PAGES_MAX: u32 = 64;
/// Log pages are numbers of 31 bits: 270 G records.
pub const LOG_PAGES_MAX: u32 = 1 << 31;
/// No opener makes this many files, so the next number fits 32 bits.
const FILE_NUMBER_MAX: u32 = 1 << 31;
/// Largest number of records in the log or in a run: 128 for each possible page. Sums and products of two fit 64 bits.
const RECORDS_MAX: u64 = (LOG_PAGES_MAX as u64) << 7;

/// The loose log pages: those that no run speaks of yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoosePages {
    /// Which index the pages are of: see [`IndexManifest`].
    pub born: u64,
    /// All pages behind those of the last run. Pages of dropped files count, though nothing is left of them.
    pub pages: Range<u32>,
    /// Records that were written to the pages; records of dropped files count.
    pub records: u32,
}

impl LoosePages {
    /// Whether `records` more records on `pages` more pages may be loose, too.
    pub fn has_room(&self, records: usize, pages: u32) -> bool {
        self.records as usize + records <= LOOSE_RECORDS_MAX as usize
            && self.pages.len() + pages as usize <= LOOSE_PAGES_MAX as usize
    }

    /// The number of loose pages that a run of newer pages must cover as well: all, or none where they have no records.
    pub fn to_cover(&self) -> u32 {
        match self.records {
            0 => 0,
            _ => self.pages.len() as u32,
        }
    }

    /// Whether a run of these pages and of newer ones may be entered into an index whose loose pages are `newest`. A
    /// run may, if these are the same pages, or if neither have records.
    pub fn are_all(&self, newest: &LoosePages) -> bool {
        let is_same = (self.born, self.pages.end) == (newest.born, newest.pages.end);
        is_same || self.records == 0 && newest.records == 0
    }
}

/// Identity of a log file or run: its writer, and the writer's count of files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The writer's own number.
    pub unique: u64,
    /// Position among the files of that writer.
    pub number: u32,
}

impl FileId {
    /// The file name of the log file with this id.
    pub fn log_name(&self) -> String {
        format!("log-{:016x}-{:08x}", self.unique, self.number)
    }

    /// The file name of the run with this id.
    pub fn run_name(&self) -> String {
        format!("run-{:016x}-{:08x}", self.unique, self.number)
    }

    /// The mark of the file: it goes into the checksums of all pages, so that a page of another file is damage here.
    pub fn mark(&self) -> u64 {
        self.unique ^ u64::from(self.number).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

/// The manifest's entry of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Identity of the log file, which gives its name.
    pub id: FileId,
    /// The first page's number in the sequence of all log pages.
    pub first_page: u32,
    /// Number of pages. The footer follows them; earlier footers may stand between them.
    pub pages: u32,
    /// Number of records in the file.
    pub records: u64,
    /// Length in bytes up to the footer's end; the file is longer while its writer adds to it, or died of that.
    pub file_bytes: u64,
}

impl LogEntry {
    /// The number of the log page behind the last one.
    pub fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }
}

/// The manifest's entry of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunEntry {
    /// Identity of the run, which gives its name.
    pub id: FileId,
    /// Number of the first log page that the run speaks of; its records count pages from here.
    pub first_page: u32,
    /// Number of the log page behind the last that the run speaks of.
    pub end_page: u32,
    /// Number of records in the run.
    pub records: u64,
    /// Offset of the run's footer in bytes.
    pub footer_at: u64,
    /// Length of the whole file in bytes.
    pub file_bytes: u64,
}

/// The files of the index, in the order of their age.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IndexManifest {
    /// Number of replacements of this manifest since the index was begun.
    pub generation: u64,
    /// Random number of this index: an index that was deleted and begun anew numbers its log pages anew.
    pub born: u64,
    /// Number of the next log page to be written.
    pub next_page: u32,
    /// Number of records on loose pages: see [`LoosePages`].
    pub loose_records: u32,
    /// Log files, oldest first.
    pub logs: Vec<LogEntry>,
    /// Runs, oldest first.
    pub runs: Vec<RunEntry>,
    /// Retired containers that some log page still speaks of, sorted.
    pub retired: Vec<ContainerId>,
}

impl IndexManifest {
    /// Encodes the manifest with its frame.
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

    /// Decodes the bytes that `encode` made and checks them; errors name `path`.
    pub fn decode(bytes: &[u8], path: &str) -> Result<IndexManifest> {
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
        let manifest = IndexManifest {
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

    /// The names of all files that the manifest names.
    pub fn file_names(&self) -> impl Iterator<Item = String> + '_ {
        let logs = self.logs.iter().map(|log| log.id.log_name());
        logs.chain(self.runs.iter().map(|run| run.id.run_name()))
    }

    /// Number of records in all runs; superseded and retired ones count.
    pub fn records(&self) -> u64 {
        self.runs.iter().map(|run| run.records).sum()
    }

    /// The loose pages of this manifest.
    pub fn loose(&self) -> LoosePages {
        LoosePages {
            born: self.born,
            pages: self.runs.last().map_or(0, |run| run.end_page)..self.next_page,
            records: self.loose_records,
        }
    }

    /// Whether the loose pages, and the log files that hold them, are the same as in `other`.
    pub fn has_loose_of(&self, other: &IndexManifest) -> bool {
        self.loose() == other.loose() && self.loose_logs() == other.loose_logs()
    }

    /// The entries of log files that have loose pages.
    fn loose_logs(&self) -> &[LogEntry] {
        let first = self.loose().pages.start;
        &self.logs[self.logs.partition_point(|log| log.end_page() <= first)..]
    }

    /// Bytes of all files without the manifest.
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

/// The range in `entries` of all files of `ids`, if they stand there in this order without others between them.
pub fn place_of<T, I: PartialEq>(
    entries: &[T],
    ids: &[I],
    id_of: impl Fn(&T) -> I,
) -> Option<Range<usize>> {
    let at = entries.iter().position(|entry| id_of(entry) == ids[0])?;
    let found = entries.get(at..at + ids.len())?;
    let same = found.iter().zip(ids).all(|(entry, id)| id_of(entry) == *id);
    same.then_some(at..at + ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_place_only_where_all_of_them_still_stand_side_by_side() {
        let id = |number| FileId { unique: 1, number };
        let entries = [1, 2, 3, 4].map(id);
        let place = |ids: &[u32]| {
            let ids: Vec<_> = ids.iter().copied().map(id).collect();
            place_of(&entries, &ids, |id| *id)
        };
        assert_eq!(place(&[2, 3]), Some(1..3));
        for merged_by_others in [&[2, 4][..], &[4, 5], &[5, 6]] {
            assert_eq!(place(merged_by_others), None);
        }
    }
}
