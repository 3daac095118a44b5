//! Text of the progress line while files are read or written: as much as fits.

use std::sync::atomic::Ordering::Relaxed;

use console::measure_text_width;
use indicatif::FormattedDuration;
use onefold_backup::Progress;

use super::Doing;
use super::status::RunState;
use crate::{human, paths};

/// Columns of the bar itself.
const BAR: usize = 14;
/// Least columns that must be left for a path to be shown.
const PATH_MIN: usize = 16;

/// A part of the line, with its rank: where the terminal is narrow, the highest ranks are left out first.
pub type Part = (u8, String);

/// Returns the line for a terminal of `width` columns.
pub fn line(state: &RunState, progress: &Progress, width: usize) -> String {
    if progress.is_cancelled() {
        return fit(vec![(0, "stopping…".into())], "", width);
    }
    if progress.is_settling.load(Relaxed) {
        let files = human::many(progress.files_done.load(Relaxed), "file");
        let parts = vec![(0, "waiting for the disk".into()), (1, files)];
        return fit(parts, "", width);
    }
    let path = paths::shown(&progress.current.lock());
    fit(parts(state, progress), &path, width)
}

fn parts(state: &RunState, progress: &Progress) -> Vec<Part> {
    let (files, bytes) = (
        progress.files_done.load(Relaxed),
        state.bytes_done(progress),
    );
    let mut parts = Vec::new();
    match state.totals {
        Some((all, all_bytes)) => {
            let (done, work) = state.work(progress, all_bytes);
            let share = human::percent(done, work);
            // The bar has the highest rank, since the figures tell more.
            parts.push((8, bar(share)));
            parts.push((0, format!("{share:.0}%")));
            let (files, all) = (human::count(files), human::count(all));
            parts.push((4, format!("{files}/{all} {}s", state.doing.unit())));
            let (bytes, all) = (human::bytes(bytes), human::bytes(all_bytes));
            parts.push((2, format!("{bytes}/{all}")));
        }
        None => {
            parts.push((0, FormattedDuration(state.elapsed).to_string()));
            parts.push((3, human::many(files, state.doing.unit())));
            parts.push((0, human::bytes(bytes)));
        }
    }
    let moved = human::bytes(state.moved_per_s);
    match state.doing {
        Doing::Backup => {
            parts.push((5, format!("read {moved}/s")));
            let stored = human::bytes(state.stored_per_s);
            parts.push((7, format!("stored {stored}/s")));
        }
        Doing::Copy => parts.push((5, format!("read {moved}/s"))),
        Doing::Restore | Doing::Estimate | Doing::Sync => parts.push((5, format!("{moved}/s"))),
    }
    if let Some(eta) = state.eta(progress) {
        parts.push((3, format!("{} left", FormattedDuration(eta))));
    }
    match progress.errors.load(Relaxed) {
        0 => {}
        errors => parts.push((1, human::many(errors, "error"))),
    }
    parts
}

/// Returns the bar: `[=====>     ]`.
fn bar(share: f64) -> String {
    let inside = BAR - 2;
    let done = ((share / 100.0 * inside as f64) as usize).min(inside);
    let tip = if done < inside { ">" } else { "" };
    format!("[{:<inside$}]", format!("{}{tip}", "=".repeat(done)))
}

/// Joins the parts that fit, and the end of the path where room is left.
pub fn fit(mut parts: Vec<Part>, path: &str, width: usize) -> String {
    let joined = |parts: &[Part]| {
        let texts: Vec<_> = parts.iter().map(|(_, text)| text.as_str()).collect();
        texts.join("  ")
    };
    let mut line = joined(&parts);
    while measure_text_width(&line) > width && parts.len() > 1 {
        let last = parts.iter().map(|(rank, _)| *rank).max();
        let at = parts.iter().rposition(|(rank, _)| Some(*rank) == last);
        parts.remove(at.unwrap_or(0));
        line = joined(&parts);
    }
    let left = width.saturating_sub(measure_text_width(&line) + 2);
    if path.is_empty() || left < PATH_MIN {
        return end(&line, width).to_owned();
    }
    if measure_text_width(path) <= left {
        format!("{line}  {path}")
    } else {
        format!("{line}  …{}", end(path, left - 1))
    }
}

/// Returns as much of the text's end as fits.
fn end(text: &str, width: usize) -> &str {
    let tails = text.char_indices().rev().map(|(at, _)| &text[at..]);
    let fits = |tail: &&str| measure_text_width(tail) <= width;
    tails.take_while(fits).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_fits_every_width() {
        let parts = || {
            vec![
                (6, bar(50.0)),
                (0, "50%".to_owned()),
                (2, "1 MiB/2 MiB".into()),
            ]
        };
        for width in 0..120 {
            let line = fit(
                parts(),
                "/home/me/ä-long-näme/with/more/folders/file.txt",
                width,
            );
            assert!(measure_text_width(&line) <= width, "{width}: {line}");
        }
        assert_eq!(fit(parts(), "/some/path", 20), "50%  1 MiB/2 MiB");
        assert_eq!(fit(parts(), "", 6), "50%");
        assert_eq!(
            fit(vec![(0, "0".into())], "/some/where/deep/file", 20),
            "0  …/where/deep/file"
        );
    }

    #[test]
    fn what_is_written_is_not_yet_on_the_disk() {
        let progress = Progress::default();
        progress.is_settling.store(true, Relaxed);
        let state = RunState {
            doing: Doing::Restore,
            elapsed: Duration::from_secs(9),
            met: (0, 0),
            totals: Some((1, 10)),
            moved_per_s: 1,
            stored_per_s: 0,
        };
        let line = line(&state, &progress, 60);
        assert!(line.starts_with("waiting for the disk"), "{line}");
    }

    #[test]
    fn copies_count_snapshots_and_replicas_objects() {
        let progress = Progress::default();
        progress.files_done.store(1, Relaxed);
        progress.bytes_of_current.store(25, Relaxed);
        progress.bytes_done.store(25, Relaxed);
        for (doing, parts) in [
            (Doing::Copy, ["1/4 snapshots", " 50% "]),
            (Doing::Sync, ["1/4 objects", " 50% "]),
        ] {
            let state = RunState {
                doing,
                elapsed: Duration::from_secs(10),
                met: (4, 100),
                totals: Some((4, 100)),
                moved_per_s: 1,
                stored_per_s: 0,
            };
            let line = format!(" {}", line(&state, &progress, 200));
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
            assert!(line.contains("00:00:10 left"), "{line}");
        }
    }

    /// Otherwise the bar would stay at 100 % for as long as it took to get there.
    #[test]
    fn what_is_to_be_read_back_is_not_done_yet() {
        let progress = Progress::default();
        progress.is_verifying.store(true, Relaxed);
        progress.bytes_done.store(100, Relaxed);
        let state = RunState {
            doing: Doing::Restore,
            elapsed: Duration::from_secs(10),
            met: (1, 100),
            totals: Some((1, 100)),
            moved_per_s: 1,
            stored_per_s: 0,
        };
        for (verified, share, eta) in [
            (0, " 50% ", "00:00:10 left"),
            (50, " 75% ", "00:00:03 left"),
        ] {
            progress.bytes_verified.store(verified, Relaxed);
            let line = format!(" {}", line(&state, &progress, 200));
            assert!(line.contains(share) && line.contains(eta), "{line}");
        }
    }

    #[test]
    fn a_bar_has_one_width() {
        assert_eq!(bar(0.0), "[>           ]");
        assert_eq!(bar(50.0), "[======>     ]");
        assert_eq!(bar(100.0), "[============]");
    }
}
