//! A folder of the snapshot that the plan is in.

use crate::restore::Options;
use crate::restore::apply::Meta;
use crate::restore::chosen::PatternDecision;
use crate::restore::window::FolderFate;
use crate::restore::window::Window;

/// A folder whose content has not passed yet.
pub struct CurrentFolder {
    /// Metadata to set; `None` for the target, and where the snapshot's entry is lost.
    pub meta: Option<Meta>,
    /// Whether the folder is wanted for itself.
    pub is_asked_for: bool,
    /// Whether the folder is wanted, for itself or for something in it.
    pub is_wanted: bool,
    /// Decision about its metadata in the windows so far.
    pub fate: FolderFate,
    /// Number in the current window.
    pub number: Option<u32>,
    /// Decision of the patterns.
    pub choice: PatternDecision,
}

impl CurrentFolder {
    /// Makes the state of a folder. `path` is the path in the target, as patterns have it; `above` is the folder that
    /// it lies in, unless that is the target.
    pub fn new(
        path: &[u8],
        meta: Option<Meta>,
        is_wanted: bool,
        above: Option<&Self>,
        options: &Options,
    ) -> Self {
        let choice = match above {
            None => PatternDecision::outermost(path, options),
            Some(above) => above.choice.of_folder(path, options),
        };
        Self {
            meta,
            is_asked_for: is_wanted,
            is_wanted,
            fate: FolderFate::default(),
            number: None,
            choice,
        }
    }

    /// Puts the folder into the window; returns its number there.
    pub fn plan(&self, name: &[u8], parent: u32, window: &mut Window) -> u32 {
        let number = window.folder(name, parent, self.meta.clone());
        let planned = &mut window.folders[number as usize];
        planned.is_asked_for = self.is_asked_for;
        *planned.fate.get_mut() = self.fate;
        number
    }
}
