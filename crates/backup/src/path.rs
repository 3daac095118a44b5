//! Paths inside snapshots: bytes, absolute, `/`-separated, no `.`/`..`/empty components; the root is the empty path.
//!
//! Paths are in the order of the walk: an entry's key is (folder, name), and the entries of a folder come before those
//! of its subfolders. [`order`] compares folders component by component, which is byte order with `/` below every other
//! byte.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Compares two folders by their place in the walk: a parent before its children, siblings by name bytes.
pub fn order(a: &[u8], b: &[u8]) -> Ordering {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    match (a.get(same), b.get(same)) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(b'/'), _) => Ordering::Less,
        (_, Some(b'/')) => Ordering::Greater,
        (Some(x), Some(y)) => x.cmp(y),
    }
}

/// Compares two entries by (folder, name): the order of a snapshot's stream.
pub fn entry_order(a: (&[u8], &[u8]), b: (&[u8], &[u8])) -> Ordering {
    order(a.0, b.0).then_with(|| a.1.cmp(b.1))
}

/// Returns `folder` + `/` + `name`.
pub fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Splits a path that is not the root into (folder, name).
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Whether `path` is `folder` or lies below it.
pub fn within(path: &[u8], folder: &[u8]) -> bool {
    path.starts_with(folder) && (path.len() == folder.len() || path[folder.len()] == b'/')
}

/// Returns a path in the form of snapshots: leading `/`, no empty, `.` or `..` components (`..` removes the one
/// before), no trailing `/`. The root is empty.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = Vec::with_capacity(path.len());
    for part in parts {
        clean.push(b'/');
        clean.extend_from_slice(part);
    }
    clean
}

/// Returns a path in the form of [`clean`], without a copy where it is clean.
pub fn cleaned(path: &[u8]) -> Cow<'_, [u8]> {
    if folder_is_safe(path) {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(clean(path))
    }
}

/// Whether a name from a snapshot may be used in a folder: not empty, `.` or `..`, without `/` and NUL.
pub fn name_is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|&b| b == b'/' || b == 0)
}

/// Whether every component of a folder from a snapshot is safe, and the path is in the form of [`clean`].
pub fn folder_is_safe(folder: &[u8]) -> bool {
    folder.is_empty() || (folder[0] == b'/' && folder[1..].split(|&b| b == b'/').all(name_is_safe))
}

/// Whether a character of text from outside is escaped when it is shown: control characters, which could move the
/// cursor, and marks that turn the direction of text, by which a name could look like another.
pub fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the path as people read it: UTF-8, with other bytes as `\xNN`, control characters escaped; the root is `/`.
pub fn show(path: &[u8]) -> String {
    if path.is_empty() {
        return "/".into();
    }
    let mut shown = String::with_capacity(path.len());
    for piece in path.utf8_chunks() {
        for c in piece.valid().chars() {
            if is_escaped(c) {
                shown.extend(c.escape_default())
            } else {
                shown.push(c)
            }
        }
        piece
            .invalid()
            .iter()
            .for_each(|b| shown.push_str(&format!("\\x{b:02x}")));
    }
    shown
}
