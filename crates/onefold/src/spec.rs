//! Syntax of the user's names for a snapshot, a place in it, and tags. `select` finds the snapshot that is meant.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use onefold_backup::path;

/// Name of a snapshot and a path in it, `snapshot[:path]`, as the user gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Beginning of an id, or `latest`.
    pub snapshot: String,
    /// Folder in the snapshot; empty for all.
    pub path: Vec<u8>,
    /// Folder in the snapshot, as it was typed.
    pub words: OsString,
}

impl Spec {
    /// Splits at the first colon. Errors: a sentence for the user.
    pub fn read(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let (name, words) = match bytes.iter().position(|b| *b == b':') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &b""[..]),
        };
        let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
        match name {
            Some(name) => Ok(Self {
                snapshot: name.to_owned(),
                path: path::clean(words),
                words: OsString::from_vec(words.to_vec()),
            }),
            None => Err(format!(
                "{:?} names no snapshot: give \"latest\" or the first digits of an id (see `onefold snapshots`)",
                text.to_string_lossy()
            )),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_id = !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
    name == "latest" || is_id
}

/// Returns the list of `a,b`; commas alone are the empty list.
pub fn tag_list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_split_at_the_first_colon() {
        let spec = |text: &str| Spec::read(text.as_ref());
        let parsed = spec("latest:/a/../b:c/").expect("valid");
        assert_eq!(
            (parsed.snapshot.as_str(), &parsed.path[..]),
            ("latest", &b"/b:c"[..])
        );
        assert_eq!(spec("0abc").expect("valid").path, b"");
        assert_eq!(spec("0abc:etc").expect("valid").path, b"/etc");
        for wrong in ["", ":", "LATEST", "xyz", "last est", "../a"] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tags_are_separated_by_commas() {
        assert_eq!(tag_list("a, b,,c"), ["a", "b", "c"]);
        assert!(tag_list("").is_empty());
    }
}
