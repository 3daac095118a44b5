//! The place of a repository, as users write it: a local folder, or a bucket (`s3:…`). Every flag, variable and file
//! that names a repository is parsed here.
//!
//! The rule: a colon before the first slash names a place of another kind, `KIND:…`. A kind that is not supported is
//! refused, whatever its name: a list of known kinds would let others pass, and a typing error or another program's
//! form (`nas:repo`, `user@host:/srv`, `smb://…`) would make a local folder of that name, while its owner believes that
//! the backup is elsewhere. A supported kind gets an arm in [`site`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::global::Global;
use crate::paths::shown;
use crate::site::Site;

/// Kinds of storage, by restic's names, that are not supported yet.
const NOT_YET: [&str; 9] = [
    "sftp", "rest", "rclone", "b2", "gs", "azure", "swift", "http", "https",
];

/// Returns the folder or bucket that `place` names.
///
/// # Errors
/// [`Error::Usage`]: it names nothing, a place of another kind, or the home folder by a `~` that no shell has replaced.
/// The message says what to write instead.
pub fn site(place: &OsStr, global: &Global) -> Result<Site> {
    let bytes = place.as_bytes();
    match kind(bytes) {
        Some((b"s3", _)) => bucket(bytes, global),
        _ => folder(bytes).map(Site::Folder),
    }
}

#[cfg(feature = "remote")]
fn bucket(place: &[u8], global: &Global) -> Result<Site> {
    let text = String::from_utf8_lossy(place);
    let bucket = crate::bucket::Bucket::named(&text, global)?;
    Ok(Site::Bucket(Box::new(bucket)))
}

#[cfg(not(feature = "remote"))]
fn bucket(place: &[u8], _global: &Global) -> Result<Site> {
    Err(Error::Usage(format!(
        "{}: this onefold was built without object storage (the feature \"remote\")",
        shown(place)
    )))
}

fn folder(bytes: &[u8]) -> Result<PathBuf> {
    match kind(bytes) {
        Some((b"local", rest)) => local(rest),
        Some((kind, rest)) => Err(Error::Usage(refusal(bytes, kind, rest))),
        None => local(bytes),
    }
}

/// Returns the texts before and behind a colon that comes before the first slash.
fn kind(place: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = place.iter().position(|b| matches!(b, b':' | b'/'))?;
    (place[at] == b':').then(|| (&place[..at], &place[at + 1..]))
}

fn local(path: &[u8]) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::Usage("the name of the repository is empty".into()));
    }
    if path == b"~" || path.starts_with(b"~/") {
        let text = shown(path);
        return Err(Error::Usage(format!(
            "{text} is not your home folder: a shell replaces a ~ only at the front of a word, so write {}{}, or ./{text} for a folder of that name",
            "$HOME",
            &text[1..]
        )));
    }
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns why a place of this kind is refused, and what to write instead.
fn refusal(place: &[u8], kind: &[u8], rest: &[u8]) -> String {
    let (place, name) = (shown(place), shown(kind));
    let or_folder = format!("for a local folder of that name, write ./{place}");
    if NOT_YET.iter().any(|known| known.as_bytes() == kind) {
        return format!("repositories at {name}: are not supported yet; {or_folder}");
    }
    if kind == b"file" {
        let path = shown(path_of_url(rest));
        return format!("{place} is a URL: write the folder itself, {path}; {or_folder}");
    }
    format!(
        "{place} names a place elsewhere, because of the colon before the first slash, and repositories are in local folders or buckets (s3:): mount that place and name the folder where it is mounted; {or_folder}"
    )
}

/// Returns the path in the text behind `file:`.
fn path_of_url(rest: &[u8]) -> &[u8] {
    let path = rest.strip_prefix(b"//").unwrap_or(rest);
    path.strip_prefix(b"localhost").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_of(place: &str) -> Result<PathBuf, String> {
        folder(place.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_colon_before_the_first_slash_is_a_place_of_another_kind() {
        for place in [
            "user@nas:/srv/repo",
            "nas:repo",
            "nas:",
            ":repo",
            "ssh://nas/repo",
            "file:///srv/repo",
            "smb://nas/share",
            "dav+https://x",
            "C:\\backups",
            "sftp:bucket",
            "S3:bucket",
            "Local:x",
            "locale:x",
        ] {
            let told = folder_of(place).expect_err(place);
            assert!(told.contains(&format!("write ./{}", shown(place.as_bytes()))));
        }
    }

    #[test]
    fn local_folders_are_taken_as_they_are() {
        for (place, is) in [
            ("repo", "repo"),
            ("./a:b", "./a:b"),
            ("/srv/a:b", "/srv/a:b"),
            ("a/b:c", "a/b:c"),
            ("local:repo", "repo"),
            ("local:a:b", "a:b"),
        ] {
            assert_eq!(folder_of(place), Ok(PathBuf::from(is)), "{place}");
        }
        for (place, part) in [
            ("", "is empty"),
            ("local:", "is empty"),
            ("~/repo", "$HOME/repo"),
            ("local:~", "$HOME"),
            ("file:///srv/repo", "write the folder itself, /srv/repo;"),
            ("file://localhost/srv", "itself, /srv;"),
        ] {
            let told = folder_of(place).expect_err(place);
            assert!(told.contains(part), "{told}");
        }
    }
}
