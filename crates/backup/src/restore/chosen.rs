//! Which of a snapshot's paths a restore's patterns choose. What they say of a folder holds for all below it, until one
//! speaks of what is below.

use super::Options;

/// What the patterns say of a folder, or of the nearest one above it of which they speak.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Those of what is wanted match it.
    is_included: bool,
    /// Those of what is not match it.
    is_excluded: bool,
}

impl Choice {
    /// That of the target, or of a folder right in it; `path`: its path in the target.
    pub fn outermost(path: &[u8], options: &Options) -> Self {
        let (include, exclude) = (&options.include, &options.exclude);
        let is_included = include.decide_nearest(path, true) == Some(true);
        Self {
            is_included: include.is_empty() || is_included,
            is_excluded: exclude.covers(path, true),
        }
    }

    /// That of a folder in this one; `path`: its path in the target.
    pub fn of_folder(self, path: &[u8], options: &Options) -> Self {
        let (include, exclude) = (&options.include, &options.exclude);
        let is_included = include.decide(path, true).unwrap_or(self.is_included);
        Self {
            is_included: include.is_empty() || is_included,
            is_excluded: self.is_excluded || exclude.decide(path, true) == Some(true),
        }
    }

    /// Whether what lies in this folder at `path` of the target is wanted.
    pub fn takes(self, path: &[u8], is_dir: bool, options: &Options) -> bool {
        let excluded = self.is_excluded || options.exclude.decide(path, is_dir) == Some(true);
        let included = options.include.decide(path, is_dir);
        !excluded && included.unwrap_or(self.is_included)
    }
}

/// Whether there are any patterns; without, everything is wanted.
pub fn has_patterns(options: &Options) -> bool {
    !options.include.is_empty() || !options.exclude.is_empty()
}
