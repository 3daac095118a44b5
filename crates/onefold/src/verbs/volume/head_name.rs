//! Names of volumes and snapshots as people give them: `DEPOT`, `DEPOT:VOLUME`, `DEPOT@SNAPSHOT`,
//! `DEPOT:VOLUME@SNAPSHOT`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};

/// A depot, and perhaps a volume or snapshot in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadName {
    /// Folder of the depot.
    pub depot: PathBuf,
    /// The volume, where one is named.
    pub volume: Option<String>,
    /// The snapshot, where one is named.
    pub snapshot: Option<String>,
}

impl FromStr for HeadName {
    type Err = Infallible;

    /// A folder that is there is a depot, whatever its name. Otherwise `@` and `:` part the name: those behind a depot
    /// that is there, or else behind the last `/`.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let whole = Self {
            depot: text.into(),
            volume: None,
            snapshot: None,
        };
        if Path::new(text).is_dir() {
            return Ok(whole);
        }
        let mut marks = text.match_indices([':', '@']).map(|(at, _)| at);
        let begin = marks
            .find(|at| is_depot(Path::new(&text[..*at])))
            .unwrap_or_else(|| text.rfind('/').map_or(0, |slash| slash + 1));
        let (front, snapshot) = match text[begin..].split_once('@') {
            Some((front, name)) => (&text[..begin + front.len()], Some(name.to_owned())),
            None => (text, None),
        };
        Ok(match front[begin..].split_once(':') {
            Some((depot, volume)) => Self {
                depot: front[..begin + depot.len()].into(),
                volume: Some(volume.to_owned()),
                snapshot,
            },
            None => Self {
                depot: front.into(),
                snapshot,
                ..whole
            },
        })
    }
}

/// Whether a folder holds a depot's configuration.
pub fn is_depot(folder: &Path) -> bool {
    ["config", "config.copy"]
        .iter()
        .any(|name| folder.join(name).exists())
}

impl HeadName {
    /// Returns the name of the volume or snapshot in the depot; `None`: the depot's first volume. `first` names that,
    /// where a snapshot of it is meant.
    ///
    /// # Errors
    /// Those of `first`.
    pub fn head(&self, first: impl FnOnce() -> Result<String>) -> Result<Option<String>> {
        Ok(match (&self.volume, &self.snapshot) {
            (volume, None) => volume.clone(),
            (Some(volume), Some(snapshot)) => Some(format!("{volume}@{snapshot}")),
            (None, Some(snapshot)) => Some(format!("{}@{snapshot}", first()?)),
        })
    }

    /// Returns the volume's name.
    ///
    /// # Errors
    /// [`Error::Usage`]: none is named, or a snapshot.
    pub fn named_volume(&self) -> Result<&str> {
        match (&self.volume, &self.snapshot) {
            (Some(volume), None) => Ok(volume),
            _ => Err(Error::Usage(format!(
                "{} names no volume: give DEPOT:NAME",
                self.shown()
            ))),
        }
    }

    /// Returns the name as it was given.
    pub fn shown(&self) -> String {
        let mut shown = self.depot.display().to_string();
        for (mark, name) in [(':', &self.volume), ('@', &self.snapshot)] {
            if let Some(name) = name {
                shown.push(mark);
                shown.push_str(name);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parted_behind_a_depot_that_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let depot = folder.path().join("vault");
        std::fs::create_dir(&depot).expect("made");
        std::fs::write(depot.join("config"), b"").expect("written");
        let depot = depot.to_str().expect("UTF-8");
        for (name, volume, snapshot) in [
            (":a b/x", Some("a b/x"), None),
            ("@a/b", None, Some("a/b")),
            (":vm@1/2:3", Some("vm"), Some("1/2:3")),
        ] {
            let parsed: HeadName = format!("{depot}{name}").parse().expect("any text");
            assert_eq!(parsed.depot, Path::new(depot), "{name}");
            assert_eq!(parsed.volume.as_deref(), volume, "{name}");
            assert_eq!(parsed.snapshot.as_deref(), snapshot, "{name}");
        }
    }

    #[test]
    fn a_name_is_parted_behind_the_last_slash() {
        for (text, depot, volume, snapshot) in [
            ("/srv/vault", "/srv/vault", None, None),
            ("/srv/vault:vm", "/srv/vault", Some("vm"), None),
            ("/srv/vault@monday", "/srv/vault", None, Some("monday")),
            ("vault:vm@1", "vault", Some("vm"), Some("1")),
            ("/a:b@c/vault@d", "/a:b@c/vault", None, Some("d")),
        ] {
            let name: HeadName = text.parse().expect("any text is a name");
            assert_eq!(name.depot, Path::new(depot));
            assert_eq!(name.volume.as_deref(), volume, "{text}");
            assert_eq!(name.snapshot.as_deref(), snapshot, "{text}");
            assert_eq!(name.shown(), text);
        }
    }
}
