//! Parts of the log that no lookup can need any more.
//!
//! Invariant: a page counts as gone only where all its records point to retired containers, where they are removals
//! that have met every older record, or where its file was dropped.

use std::collections::HashSet;
use std::ops::Range;

use super::spans::{LogSpan, read_spans};
use super::view::View;
use crate::{ContainerId, Result};

/// Parts of the log that no lookup can need any more.
pub struct GoneParts {
    /// Ranges of log pages, rising, all of whose records are retired or whose file was dropped.
    pub pages: Vec<Range<u32>>,
    /// Log files all of whose pages are gone, as positions in the manifest.
    pub logs: Vec<usize>,
    /// Retired containers that no page outside of `logs` speaks of.
    pub forgotten: HashSet<ContainerId>,
}

impl GoneParts {
    /// The number of `pages` that are gone.
    pub fn pages_within(&self, pages: Range<u32>) -> u64 {
        let first = self.pages.partition_point(|gone| gone.end <= pages.start);
        let gone = self.pages[first..].iter();
        gone.take_while(|gone| gone.start < pages.end)
            .map(|gone| u64::from(gone.end.min(pages.end) - gone.start.max(pages.start)))
            .sum()
    }
}

/// The [`GoneParts`] of the last manifest, kept because working it out reads the footers of all log files where any
/// container is retired.
#[derive(Default)]
pub struct KnownGone(Option<KnownParts>);

struct KnownParts {
    born: u64,
    generation: u64,
    gone: GoneParts,
}

impl KnownGone {
    /// The gone parts of `view`'s log, read anew where the manifest has changed.
    pub fn of(&mut self, view: &View) -> Result<&GoneParts> {
        let (born, generation) = (view.manifest.born, view.manifest.generation);
        let known = self.0.take();
        let known = known.filter(|known| (known.born, known.generation) == (born, generation));
        let known = match known {
            Some(known) => known,
            None => KnownParts {
                born,
                generation,
                gone: gone_pages(view)?,
            },
        };
        Ok(&self.0.insert(known).gone)
    }
}

fn gone_pages(view: &View) -> Result<GoneParts> {
    let mut gone = GoneParts {
        pages: Vec::new(),
        logs: Vec::new(),
        forgotten: view.retired.clone(),
    };
    // a removal has met every older record once it is in the oldest run
    let met = view.manifest.runs.first().map_or(0, |run| run.end_page);
    let mut end = 0;
    for (place, log) in view.logs.iter().enumerate() {
        gone.pages
            .extend((end < log.entry.first_page).then_some(end..log.entry.first_page));
        end = log.entry.end_page();
        // spans stay within the pages of their file, and the manifest bounds these
        let first_page = log.entry.first_page;
        if view.retired.is_empty() {
            let holes = log.spans.holes().iter();
            let holes = holes.map(|hole| first_page + hole.start..first_page + hole.end);
            gone.pages.extend(holes);
            continue;
        }
        let spans = read_spans(&log.entry, &log.path, &*log.disk)?;
        let is_live = |span: &&LogSpan| match span.said {
            Some(container) => !view.retired.contains(&container),
            None => end > met,
        };
        let live: Vec<(u32, u32)> = spans
            .iter()
            .filter(is_live)
            .map(|span| (span.first, span.last))
            .collect();
        if live.is_empty() {
            gone.logs.push(place);
        } else {
            for container in spans.iter().filter_map(|span| span.said) {
                gone.forgotten.remove(&container);
            }
        }
        let mut from = 0;
        for (first, last) in live.into_iter().chain([(log.entry.pages, log.entry.pages)]) {
            gone.pages
                .extend((from < first).then(|| first_page + from..first_page + first));
            from = last.saturating_add(1);
        }
    }
    gone.pages
        .extend((end < view.manifest.next_page).then_some(end..view.manifest.next_page));
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_pages_are_counted_within_any_range() {
        let gone = GoneParts {
            pages: vec![2..5, 8..9, 20..30],
            logs: Vec::new(),
            forgotten: HashSet::new(),
        };
        for (pages, count) in [
            (0..40, 14),
            (0..2, 0),
            (3..4, 1),
            (4..21, 3),
            (5..8, 0),
            (29..40, 1),
            (30..40, 0),
        ] {
            assert_eq!(gone.pages_within(pages.clone()), count, "{pages:?}");
        }
    }
}
