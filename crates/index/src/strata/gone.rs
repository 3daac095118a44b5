//! What of the log nobody can ask for any more.
//!
//! Always holds: a page is gone only where all that it says is of retired containers, or removals that have met every older record, or where its file was dropped.

use std::collections::HashSet;
use std::ops::Range;

use super::spans::{LogSpan, read_spans};
use super::view::View;
use crate::{ContainerId, Result};

/// What of the log nobody can ask for any more.
pub struct Gone {
    /// Ranges of log pages, rising: retired as a whole, or their file was dropped.
    pub pages: Vec<Range<u32>>,
    /// Log files all of whose pages are such, as places in the manifest.
    pub logs: Vec<usize>,
    /// Retired containers that no page speaks of, those of `logs` not counted.
    pub forgotten: HashSet<ContainerId>,
}

/// See [`Gone`].
pub fn gone_pages(view: &View) -> Result<Gone> {
    let mut gone = Gone {
        pages: Vec::new(),
        logs: Vec::new(),
        forgotten: view.retired.clone(),
    };
    // removals have met every older record once they are in the oldest run
    let met = view.manifest.runs.first().map_or(0, |run| run.end_page);
    let mut end = 0;
    for (place, log) in view.logs.iter().enumerate() {
        gone.pages
            .extend((end < log.entry.first_page).then_some(end..log.entry.first_page));
        end = log.entry.end_page();
        if view.retired.is_empty() {
            let first = log.entry.first_page;
            let holes = log.spans.holes().iter();
            let holes =
                holes.map(|hole| first.saturating_add(hole.start)..first.saturating_add(hole.end));
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
            gone.pages.extend(
                (from < first).then(|| log.entry.first_page + from..log.entry.first_page + first),
            );
            from = from.max(last.saturating_add(1));
        }
    }
    gone.pages
        .extend((end < view.manifest.next_page).then_some(end..view.manifest.next_page));
    Ok(gone)
}
