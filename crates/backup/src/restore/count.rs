//! Counts, beside a restore, all that the restore will write: the plan itself knows that only when its last window is
//! filled, which for a large snapshot is near the end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_store::ChunkReader;

use super::Options;
use super::chosen::{PatternDecision, has_patterns};
use crate::path::{self, join};
use crate::tree::Tree;
use crate::{Kind, Progress, Result};

/// Counts the files that `options` ask for into `progress`, and stops once `is_over` says that the restore has ended.
/// `top` is the folder of the snapshot that the target stands for.
///
/// # Errors
/// Errors of leaves that cannot be read, except damaged ones, which are skipped.
pub fn count(
    tree: &Tree,
    top: &[u8],
    options: &Options,
    reader: &mut ChunkReader,
    progress: &Progress,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut cursor = tree.cursor_at(top, b"");
    let mut choices = FolderChoices::new(options);
    let (mut files, mut bytes) = (0, 0);
    while !is_over.load(Relaxed) {
        let (folder, entry) = match cursor.next(reader) {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) if error.is_loss() && cursor.pass_over().is_some() => continue,
            Err(error) => return Err(error),
        };
        if !path::within(&folder, top) {
            break;
        }
        let is_file = entry.kind == Kind::File && !entry.is_unreadable();
        if is_file && choices.takes(&folder[top.len()..], &entry.name) {
            files += 1;
            bytes += entry.size;
        }
    }
    progress.files_expected.store(files, Relaxed);
    progress.bytes_expected.store(bytes, Relaxed);
    progress
        .expected_known
        .store(!is_over.load(Relaxed), Relaxed);
    Ok(())
}

/// Decisions of the patterns about the folder that the count is in, and about those above.
struct FolderChoices<'a> {
    options: &'a Options,
    has_patterns: bool,
    /// Current folder, as a path in the target.
    folder: Vec<u8>,
    /// Path lengths and decisions of the current folder and those above, without the target.
    levels: Vec<(usize, PatternDecision)>,
}

impl<'a> FolderChoices<'a> {
    fn new(options: &'a Options) -> Self {
        Self {
            options,
            has_patterns: has_patterns(options),
            folder: Vec::new(),
            levels: Vec::new(),
        }
    }

    fn takes(&mut self, folder: &[u8], name: &[u8]) -> bool {
        if !self.has_patterns {
            return true;
        }
        let choice = self.enter(folder);
        choice.takes(&join(folder, name), false, self.options)
    }

    fn enter(&mut self, folder: &[u8]) -> PatternDecision {
        while !path::within(folder, &self.folder) {
            self.levels.pop();
            let len = self.levels.last().map_or(0, |(len, _)| *len);
            self.folder.truncate(len);
        }
        let rest = folder[self.folder.len()..].to_vec();
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            self.folder = join(&self.folder, name);
            let choice = match self.levels.last() {
                None => PatternDecision::outermost(&self.folder, self.options),
                Some((_, above)) => above.of_folder(&self.folder, self.options),
            };
            self.levels.push((self.folder.len(), choice));
        }
        let innermost = self.levels.last().map(|(_, choice)| *choice);
        innermost.unwrap_or_else(|| PatternDecision::outermost(b"", self.options))
    }
}
