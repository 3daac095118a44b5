//! The text of the file `hints` in a depot's folder (FORMAT.md, "Default hints"): volumes by name, each with the hints
//! that all its requests have. It is advice: a text that is none has no hints, and names that are not known count for
//! nothing.

use onefold_volume::Hints;
use onefold_volume::hints::HintKind;
use serde_json::{Map, Value, json};

/// Volumes by name, and their hints.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HintsFile(Map<String, Value>);

impl HintsFile {
    pub fn decode(text: &[u8]) -> Self {
        Self(serde_json::from_slice(text).unwrap_or_default())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut text = json!(self.0).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// The hints of a volume, none where it is not named.
    pub fn of_volume(&self, volume: &str) -> Hints {
        let names = self.0.get(volume).and_then(Value::as_array);
        let kinds = names.into_iter().flatten().filter_map(Value::as_str);
        let kinds = kinds.filter_map(|name| HintKind::by_name(name).ok());
        kinds.fold(Hints::default(), Hints::with)
    }

    /// Gives a volume these hints, in place of those that it had; returns whether that changes the text.
    pub fn set(&mut self, volume: &str, kinds: &[HintKind]) -> bool {
        let before = self.0.remove(volume);
        if kinds.is_empty() {
            return before.is_some();
        }
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        self.0.insert(volume.to_owned(), json!(names));
        true
    }
}
