//! Results as JSON: restic's field names wherever the meaning is the same.

pub mod message;

use onefold_backup::snapshot::{Snapshot, Summary};
use onefold_backup::snapshots::{Brief, Named};
use onefold_backup::{Entry, Flags, Kind};
use onefold_store::{PinInfo, Repository};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Result;
use crate::json::message::line;
use crate::out::Out;
use crate::short_id::short;
use crate::{lossless, paths, when};

/// An array on standard output that is written value by value.
pub struct Array<'a> {
    out: &'a Out,
    len: u64,
}

impl<'a> Array<'a> {
    /// Makes an empty array, of which nothing is written yet.
    pub fn new(out: &'a Out) -> Self {
        Self { out, len: 0 }
    }

    /// Number of values so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Writes the next value.
    pub fn push(&mut self, value: &impl Serialize) -> Result<()> {
        self.next(&line(value))
    }

    /// Writes the beginning of the next value; the caller writes the rest of it.
    pub fn next(&mut self, begin: &str) -> Result<()> {
        let before = if self.len == 0 { "[" } else { "," };
        self.len += 1;
        self.out.bytes(format!("{before}{begin}").as_bytes())
    }

    /// Writes the end of the array.
    pub fn end(self) -> Result<()> {
        let end: &[u8] = if self.len == 0 { b"[]" } else { b"]" };
        self.out.bytes(end)
    }
}

/// Returns a session of the repository as JSON.
pub fn session(session: &PinInfo) -> Value {
    json!({"process": session.process, "host": session.host, "activity": session.activity})
}

/// A snapshot.
#[derive(Serialize)]
pub struct SnapshotJson {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    tree: String,
    paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_base64: Option<Vec<String>>,
    hostname: String,
    username: String,
    uid: u32,
    gid: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excludes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excludes_base64: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<String>,
    program_version: String,
    summary: SnapshotSummary,
    id: String,
    short_id: String,
}

/// Times and counts of the backup that made a snapshot.
#[derive(Serialize)]
pub struct SnapshotSummary {
    backup_start: String,
    backup_end: String,
    #[serde(flatten)]
    counts: ResticCounts,
}

/// restic's counters. Its blobs are our chunks.
#[derive(Serialize)]
pub struct ResticCounts {
    files_new: u64,
    files_changed: u64,
    files_unmodified: u64,
    dirs_new: u64,
    dirs_changed: u64,
    dirs_unmodified: u64,
    data_blobs: u64,
    tree_blobs: u64,
    data_added: u64,
    data_added_packed: u64,
    total_files_processed: u64,
    total_bytes_processed: u64,
}

impl From<&Summary> for ResticCounts {
    fn from(s: &Summary) -> Self {
        Self {
            files_new: s.files_new,
            files_changed: s.files_changed,
            files_unmodified: s.files_unmodified,
            dirs_new: s.dirs_new,
            dirs_changed: s.dirs_changed,
            dirs_unmodified: s.dirs_unmodified,
            data_blobs: s.data_chunks,
            tree_blobs: s.tree_chunks,
            data_added: s.data_added,
            data_added_packed: s.data_added_packed,
            total_files_processed: s.total_files_processed,
            total_bytes_processed: s.total_bytes_processed,
        }
    }
}

impl From<&Summary> for SnapshotSummary {
    fn from(s: &Summary) -> Self {
        Self {
            backup_start: when::rfc3339_ns(s.started_ns),
            backup_end: when::rfc3339_ns(s.started_ns.saturating_add(s.duration_ns)),
            counts: s.into(),
        }
    }
}

/// Returns an id in hexadecimal.
pub fn hex(id: &[u8; 32]) -> String {
    onefold_store::RootId(*id).to_string()
}

impl From<&Named> for SnapshotJson {
    fn from(named: &Named) -> Self {
        let Snapshot {
            time,
            host,
            user,
            uid_gid,
            paths,
            tags,
            parent,
            original,
            program,
            excludes,
            summary,
            ..
        } = &named.snapshot;
        let lossy = |paths: &Vec<Vec<u8>>| paths.iter().map(|path| paths::json(path)).collect();
        Self {
            time: when::rfc3339(*time),
            parent: parent.as_ref().map(hex),
            tree: hex(&named.tree),
            paths: lossy(paths),
            paths_base64: lossless::base64_of_all(paths),
            hostname: host.clone(),
            username: user.clone(),
            uid: uid_gid.0,
            gid: uid_gid.1,
            excludes: lossy(excludes),
            excludes_base64: lossless::base64_of_all(excludes),
            tags: tags.clone(),
            original: original.as_ref().map(hex),
            program_version: program.clone(),
            summary: summary.into(),
            id: named.id.to_string(),
            short_id: short(&named.id),
        }
    }
}

/// Writes an array of snapshots, each read when its turn comes. Snapshots that were forgotten meanwhile are left out.
pub fn snapshots<'a>(
    repository: &Repository,
    briefs: impl IntoIterator<Item = &'a Brief>,
    out: &Out,
) -> Result<()> {
    let mut all = Array::new(out);
    for brief in briefs {
        if let Some(named) = brief.whole(repository)? {
            all.push(&json!(SnapshotJson::from(&*named)))?;
        }
    }
    all.end()
}

/// An entry of a snapshot, as `ls` and `find` show it.
#[derive(Serialize)]
pub struct NodeJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    uid: u32,
    gid: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    mode: u32,
    permissions: String,
    mtime: String,
    /// Time of access; where that is not kept, time of change, as restic has it without `--with-atime`.
    atime: String,
    ctime: String,
    inode: u64,
    device_id: u64,
    links: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    linktarget: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    linktarget_base64: Option<String>,
    /// Our field: the backup could not read the entry. For a folder: its attributes are missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unreadable: bool,
    /// Our field: the backup could not list the folder, or not to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unlisted: bool,
    /// Our field: the backup could not read attributes and ACLs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unread_attributes: bool,
    /// Our field: the content may mix versions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    changed_while_read: bool,
}

impl NodeJson {
    /// Makes the JSON of the entry at `path`.
    pub fn new(path: &[u8], entry: &Entry) -> Self {
        Self {
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            name_base64: lossless::base64(&entry.name),
            kind: entry.kind.word(),
            path: paths::json(path),
            path_base64: lossless::base64(path),
            uid: entry.owner.uid,
            gid: entry.owner.gid,
            user: entry.owner.user.to_string(),
            group: entry.owner.group.to_string(),
            size: (entry.kind == Kind::File).then_some(entry.size),
            mode: go_mode(entry),
            permissions: permissions(entry),
            mtime: when::rfc3339(entry.mtime),
            atime: when::rfc3339(entry.atime.unwrap_or(entry.mtime)),
            ctime: when::rfc3339(entry.ctime),
            inode: entry.inode,
            device_id: entry.device,
            links: entry.links,
            linktarget: String::from_utf8_lossy(&entry.target).into_owned(),
            linktarget_base64: lossless::base64(&entry.target),
            unreadable: entry.flags.has(Flags::UNREADABLE),
            unlisted: entry.is_unlisted(),
            unread_attributes: entry.lacks_xattrs(),
            changed_while_read: entry.flags.has(Flags::CHANGED_WHILE_READ),
        }
    }
}

/// Returns kind and permissions as `ls -l` writes them: `-rw-r--r--`.
pub fn permissions(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (entry.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns the mode as Go's `os.FileMode` numbers it: restic prints that, and front ends expect it.
fn go_mode(entry: &Entry) -> u32 {
    let kind = match entry.kind {
        Kind::File => 0,
        Kind::Dir => 1 << 31,
        Kind::Symlink => 1 << 27,
        Kind::Fifo => 1 << 25,
        Kind::Socket => 1 << 24,
        Kind::CharDevice => 1 << 26 | 1 << 21,
        Kind::BlockDevice => 1 << 26,
    };
    let mut mode = kind | u32::from(entry.mode & 0o777);
    for (bit, go) in [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)] {
        if entry.mode & bit != 0 {
            mode |= go;
        }
    }
    mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_written_as_ls_writes_them() {
        let mut entry = Entry::new(b"x".to_vec(), Kind::Dir);
        entry.mode = 0o1777;
        assert_eq!(permissions(&entry), "drwxrwxrwt");
        assert_eq!(go_mode(&entry), 0x8010_01ff);
        entry.kind = Kind::File;
        entry.mode = 0o4644;
        assert_eq!(permissions(&entry), "-rwSr--r--");
    }
}
