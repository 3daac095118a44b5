//! Decides which of a snapshot's paths a restore's patterns choose. A decision about a folder holds for everything
//! below it, until a pattern matches there.

use super::Options;

/// Decision of the patterns about a folder, or about the nearest folder above it that they match.
#[derive(Clone, Copy)]
pub struct PatternDecision {
    /// Whether the patterns of wanted paths match.
    is_included: bool,
    /// Whether the patterns of unwanted paths match.
    is_excluded: bool,
}

impl PatternDecision {
    /// Decides about the target, or about a folder right in it; `path` is its path in the target.
    pub fn outermost(path: &[u8], options: &Options) -> Self {
        let (include, exclude) = (&options.include, &options.exclude);
        let is_included = include.decide_nearest(path, true) == Some(true);
        Self {
            is_included: include.is_empty() || is_included,
            is_excluded: exclude.covers(path, true),
        }
    }

    /// Decides about a folder in this one; `path` is its path in the target.
    pub fn of_folder(self, path: &[u8], options: &Options) -> Self {
        let (include, exclude) = (&options.include, &options.exclude);
        let is_included = include.decide(path, true).unwrap_or(self.is_included);
        Self {
            is_included: include.is_empty() || is_included,
            is_excluded: self.is_excluded || exclude.decide(path, true) == Some(true),
        }
    }

    /// Whether the thing at `path` of the target, which lies in this folder, is wanted.
    pub fn takes(self, path: &[u8], is_dir: bool, options: &Options) -> bool {
        let excluded = self.is_excluded || options.exclude.decide(path, is_dir) == Some(true);
        let included = options.include.decide(path, is_dir);
        !excluded && included.unwrap_or(self.is_included)
    }
}

/// Whether there are any patterns; without patterns, everything is wanted.
pub fn has_patterns(options: &Options) -> bool {
    !options.include.is_empty() || !options.exclude.is_empty()
}
