//! Spans: which pages of a log file speak of which container. They are stored in the footer of the file.
//!
//! A stream fills one container for some thousand chunks, so a span is some ten pages: few enough to keep all of them
//! in RAM, 12 bytes each. With the spans, a run's record of a fingerprint gives its container without a read of the
//! log. Invariant: the spans of a page stand in the order of its records, and neighbouring spans differ, except
//! across pages without records: a hole, see [`join`](super::join).

use std::ops::Range;

use onefold_io::Disk;
use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::varint::ByteReader;

use super::log::{HEADER_BYTES, LogPage, Said};
use super::manifest::LogEntry;
use super::page::{FOOTER_BYTES_MAX, PAGE_BYTES, check_page_of, check_reaches, seal_page_of};
use super::run_page::SPAN_UNKNOWN;
use crate::{ContainerId, Error, Result};

/// The footer of a log file.
pub const LOG_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTRLOG",
    version: 3,
};

/// Bytes of the footer's frame on each of its pages.
const FRAME_BYTES_A_PAGE: usize = PAGE_BYTES - HEADER_BYTES;

/// Neighbouring records with the same content, as a range of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSpan {
    /// The container of the records, or `None` for removals.
    pub said: Said,
    /// Number of the first page, within the file.
    pub first: u32,
    /// Number of the last page, within the file.
    pub last: u32,
}

/// Adds the spans of page `number` to those of the pages before. No span crosses a page without records.
pub fn extend_spans(spans: &mut Vec<LogSpan>, page: LogPage<'_>, number: u32) {
    for (said, _) in page.spans() {
        match spans.last_mut() {
            Some(last) if last.said == said && last.last + 1 >= number => last.last = number,
            _ => spans.push(LogSpan {
                said,
                first: number,
                last: number,
            }),
        }
    }
}

/// Encodes the footer of the log file that has this mark: pages without records, behind its `pages` pages, with a frame
/// in the rest of them. The footer stays where the file grows.
pub fn encode_spans(mark: u64, records: u64, pages: u32, spans: &[LogSpan]) -> Vec<u8> {
    let mut payload = records.to_le_bytes().to_vec();
    payload.extend_from_slice(&pages.to_le_bytes());
    payload.extend_from_slice(&(spans.len() as u32).to_le_bytes());
    for span in spans {
        payload.push(u8::from(span.said.is_none()));
        payload.extend_from_slice(&span.said.map_or(0, |container| container.0).to_le_bytes());
        payload.extend_from_slice(&span.first.to_le_bytes());
        payload.extend_from_slice(&span.last.to_le_bytes());
    }
    let frame = encode_frame(LOG_FRAME, &payload);
    let mut out = Vec::with_capacity(frame.len().div_ceil(FRAME_BYTES_A_PAGE) * PAGE_BYTES);
    for (number, part) in (pages..).zip(frame.chunks(FRAME_BYTES_A_PAGE)) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        out.extend_from_slice(part);
        out.resize(start + PAGE_BYTES, 0);
        seal_page_of(&mut out[start..], mark, number);
    }
    out
}

/// Reads the footer of a log file: spans in the order of its pages and records. The file may be longer than its entry
/// says, while its writer adds to it.
pub fn read_spans(entry: &LogEntry, path: &str, disk: &dyn Disk) -> Result<Vec<LogSpan>> {
    let footer_at = u64::from(entry.pages) * PAGE_BYTES as u64;
    let frame = read_footer(entry, footer_at, path, disk)?;
    let payload = decode_frame(LOG_FRAME, &frame, path, footer_at)?.payload;
    let mut reader = ByteReader::new(payload, path, footer_at);
    let (records, pages, spans) = (reader.u64()?, reader.u32()?, reader.u32()?);
    if records != entry.records || pages != entry.pages {
        return Err(reader
            .damaged(format!(
                "{records} records on {pages} pages, expected {} on {}",
                entry.records, entry.pages
            ))
            .into());
    }
    let span = |reader: &mut ByteReader<'_>| -> Result<LogSpan> {
        let (removed, container) = (reader.u8()? != 0, ContainerId(reader.u64()?));
        Ok(LogSpan {
            said: (!removed).then_some(container),
            first: reader.u32()?,
            last: reader.u32()?,
        })
    };
    let spans = (0..spans)
        .map(|_| span(&mut reader))
        .collect::<Result<Vec<_>>>()?;
    reader.end()?;
    match out_of_place(&spans, pages) {
        Some(span) => Err(reader.damaged(format!("{span:?} of {pages} pages")).into()),
        None => Ok(spans),
    }
}

/// The first span that does not stand where [`extend_spans`] would put it: several may be on one page, and each begins
/// no earlier than the one before ends.
fn out_of_place(spans: &[LogSpan], pages: u32) -> Option<&LogSpan> {
    let mut end = 0;
    spans.iter().find(|span| {
        let before = std::mem::replace(&mut end, span.last);
        span.first < before || span.last < span.first || span.last >= pages
    })
}

/// Reads the pages of a footer, checks them, and returns their content.
fn read_footer(entry: &LogEntry, footer_at: u64, path: &str, disk: &dyn Disk) -> Result<Vec<u8>> {
    check_reaches(disk, path, entry.file_bytes)?;
    let footer = entry.file_bytes.checked_sub(footer_at);
    let Some(bytes) = footer.filter(|bytes| {
        (1..=FOOTER_BYTES_MAX).contains(bytes) && bytes.is_multiple_of(PAGE_BYTES as u64)
    }) else {
        let what = format!("{} pages in {} bytes", entry.pages, entry.file_bytes);
        return Err(Error::damaged(path, footer_at, what));
    };
    let mut pages = vec![0; bytes as usize];
    disk.read_at(&mut pages, footer_at)
        .map_err(|error| Error::from_read(error, path))?;
    let mut frame = Vec::with_capacity(pages.len());
    for (number, page) in (entry.pages..).zip(pages.chunks_exact(PAGE_BYTES)) {
        check_page_of(page, entry.id.mark(), path, number)?;
        frame.extend_from_slice(&page[HEADER_BYTES..]);
    }
    Ok(frame)
}

/// The spans of a log file in RAM.
#[derive(Default)]
pub struct SpanTable {
    /// The last page of each span, rising.
    last: Box<[u32]>,
    /// The container of each span; 0 for removals, which lookups never ask for.
    containers: Box<[ContainerId]>,
    /// Ranges of pages without records, rising.
    holes: Box<[Range<u32>]>,
}

impl SpanTable {
    /// RAM for `spans` spans, in bytes.
    pub const fn ram(spans: usize) -> usize {
        spans * (size_of::<u32>() + size_of::<ContainerId>())
    }

    /// The table of spans as a footer lists them.
    pub fn new(spans: &[LogSpan]) -> SpanTable {
        SpanTable {
            last: spans.iter().map(|span| span.last).collect(),
            containers: spans
                .iter()
                .map(|span| span.said.unwrap_or(ContainerId(0)))
                .collect(),
            holes: holes(spans),
        }
    }

    /// The ranges of pages without records, as far as known.
    pub fn holes(&self) -> &[Range<u32>] {
        &self.holes
    }

    /// Whether page `page` is known to have no records.
    pub fn is_hole(&self, page: u32) -> bool {
        let behind = self.holes.partition_point(|hole| hole.start <= page);
        behind > 0 && page < self.holes[behind - 1].end
    }

    /// The container of the records in span `span` of page `page`, which is counted within the file; `None` where only
    /// the page can tell.
    pub fn container(&self, page: u32, span: u8) -> Option<ContainerId> {
        if span >= SPAN_UNKNOWN {
            return None;
        }
        let first = self.last.partition_point(|last| *last < page);
        self.containers.get(first + usize::from(span)).copied()
    }

    /// RAM of spans and holes, in bytes.
    pub fn ram_bytes(&self) -> usize {
        SpanTable::ram(self.last.len()) + self.holes.len() * size_of::<Range<u32>>()
    }
}

/// The ranges of pages between spans. A file begins and ends with records.
fn holes(spans: &[LogSpan]) -> Box<[Range<u32>]> {
    let pairs = spans.windows(2);
    pairs
        .filter(|pair| pair[1].first > pair[0].last + 1)
        .map(|pair| pair[0].last + 1..pair[1].first)
        .collect()
}

#[cfg(test)]
mod tests {
    use onefold_chunk::Fingerprint;

    use super::super::log::LogPacker;
    use super::*;

    #[test]
    fn pages_without_records_are_holes() {
        let said = Some(ContainerId(5));
        let mut spans = Vec::new();
        let mut packer = LogPacker::default();
        packer.push(&Fingerprint([1; 32]), said);
        packer.close_page();
        let (full, empty) = (packer.pages, vec![0; PAGE_BYTES]);
        for (number, page) in [&full, &full, &empty, &empty, &full]
            .into_iter()
            .enumerate()
        {
            extend_spans(&mut spans, LogPage::checked(page), number as u32);
        }
        let table = SpanTable::new(&spans);
        assert_eq!((table.holes().len(), &table.holes()[0]), (1, &(2..4)));
        let holes = [0, 1, 2, 3, 4, 5].map(|page| table.is_hole(page));
        assert_eq!(holes, [false, false, true, true, false, false]);
    }

    #[test]
    fn a_page_and_a_place_in_it_give_the_container() {
        let said = |container| Some(ContainerId(container));
        let span = |said, first, last| LogSpan { said, first, last };
        let spans = [
            span(said(1), 0, 2),
            span(said(2), 2, 2),
            span(None, 2, 2),
            span(said(1), 2, 2),
            span(said(3), 3, 9),
        ];
        let table = SpanTable::new(&spans);
        for (page, place, container) in [
            (0, 0, 1),
            (1, 0, 1),
            (2, 0, 1),
            (2, 1, 2),
            (3, 0, 3),
            (9, 0, 3),
        ] {
            assert_eq!(
                table.container(page, place),
                said(container),
                "{page}, {place}"
            );
        }
        for (page, place) in [(2, SPAN_UNKNOWN), (10, 0), (9, 1)] {
            assert_eq!(table.container(page, place), None, "{page}, {place}");
        }
    }
}
