//! Rewriting maps so that they name no zone that was freed: then relocations can go.

use std::collections::HashMap;
use std::sync::Arc;

use super::map::levels::{Level, Levels};
use super::map::run::Pages;
use super::map::run_id::RunId;
use super::writer::LogEngine;
use crate::{HeadId, Result};

impl LogEngine {
    /// Rewrites all maps. A lone one becomes one level; of several each run is rewritten by itself, so that what heads
    /// share stays shared.
    ///
    /// # Errors
    /// The folder failed or is full, or a run is damaged.
    pub(super) fn rewrite_maps(&mut self) -> Result<()> {
        self.install_merged(true)?;
        let heads: Vec<HeadId> = self.shared.maps.read().keys().copied().collect();
        if let [head] = heads[..] {
            let levels = Arc::clone(&self.shared.maps.read()[&head].levels);
            let merged = self.merging_now(|merger| merger.merge_all(&levels))?;
            return self.replace_levels(|_| merged.clone());
        }
        let mut rewritten = HashMap::new();
        for (id, run) in self.shared.distinct_runs() {
            let new = self.merging_now(|merger| merger.relocated(&run, Pages::Cached))?;
            rewritten.extend(new.map(|runs| (id, runs)));
        }
        self.replace_levels(|levels| with_rewritten(levels, &rewritten))
    }

    fn replace_levels(&mut self, new: impl Fn(&Levels) -> Levels) -> Result<()> {
        for map in self.shared.maps.write().values_mut() {
            map.levels = Arc::new(new(&map.levels));
        }
        Ok(())
    }
}

/// The levels with rewritten runs in place of the old ones.
fn with_rewritten(levels: &Levels, rewritten: &HashMap<RunId, Level>) -> Levels {
    let level = |old: &Level| -> Level {
        let runs = old.iter().map(|run| match rewritten.get(&run.listed.id) {
            Some(new) => new.as_slice(),
            None => std::slice::from_ref(run),
        });
        runs.flatten().cloned().collect()
    };
    Levels {
        recent: levels.recent.iter().map(level).collect(),
        middle: level(&levels.middle),
        base: level(&levels.base),
    }
}
