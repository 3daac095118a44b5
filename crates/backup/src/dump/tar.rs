//! Writes a folder of a snapshot as a tar archive: POSIX ustar, with pax records for properties that ustar cannot hold.
//! Holes are holes in the archive, too ([`sparse`](super::sparse)).
//!
//! Invariant: everything in a folder follows the folder's entry directly, before anything outside of it. A reader sets
//! a folder's mode and times when an entry outside of it comes, and then could not write into it any more. RAM is
//! bounded, whatever the number of files and folders.

use std::io::Write;

use onefold_store::ChunkReader;

use super::sparse::SparseLengths;
use super::{LeftOut, Told, ZEROS, acl, failed, file, padding, write_content};
use crate::folder_stack::{FolderStack, StackStep};
use crate::restore::links::Links;
use crate::tree::Tree;
use crate::{Entry, Kind, Result, Time, path};

/// RAM for paths of files with several names, in bytes; further ones go to a temporary file.
const LINKS_BYTES: usize = 16 << 20;

/// Writes everything in `folder` (clean; empty: the whole snapshot) as a tar archive. Names are relative to `folder`.
/// Sockets, which tar does not know, and files that could not be read are left out. `told` hears of these, and of
/// folders that could not be listed and entries whose attributes could not be read: they are in the archive, as far as
/// they are known.
///
/// # Errors
/// Errors of [`file`](super::file), of leaves too: then the archive is not complete;
/// [`Error::Temporary`](crate::Error::Temporary) where the names of many hard links find no room.
pub fn tar(
    tree: &Tree,
    folder: &[u8],
    reader: &mut ChunkReader,
    out: &mut dyn Write,
    told: &mut dyn Told,
) -> Result<()> {
    let links = Links::new(LINKS_BYTES);
    let mut archive = TarArchive {
        folder,
        out,
        links,
        told,
    };
    let mut stack = FolderStack::new(tree, folder.to_vec(), ());
    let mut cursor = tree.cursor_at(folder, b"");
    loop {
        let next = cursor.next(reader)?;
        let next = next.filter(|(at, _)| path::within(at, folder));
        loop {
            let to = next.as_ref().map(|(at, _)| &at[..]);
            match stack.step(to, reader)? {
                StackStep::Into(name, entry) => {
                    stack.enter(name, ());
                    if let Some(entry) = entry {
                        archive.add(stack.path(), &entry, reader)?;
                    }
                }
                StackStep::Past(entry) => {
                    let path = path::join(stack.path(), &entry.name);
                    archive.add(&path, &entry, reader)?;
                }
                StackStep::Left(_) => {}
                StackStep::There => break,
            }
        }
        let Some((at, entry)) = next else {
            return archive.finish();
        };
        let path = path::join(&at, &entry.name);
        let is_socket = entry.kind == Kind::Socket;
        if let Some(error) = entry.damage() {
            archive.told.lost(&path, 0..entry.size, error)?;
            archive.told.end_of_loss();
        } else if is_socket || entry.is_unlisted() || !entry.knows_xattrs() {
            archive.told.incomplete(&path, &entry);
        }
        if entry.is_dir() {
            stack.met(entry);
        } else if !is_socket && !entry.is_unreadable() {
            archive.add(&path, &entry, reader)?;
        }
    }
}

struct TarArchive<'a> {
    folder: &'a [u8],
    out: &'a mut dyn Write,
    links: Links,
    told: &'a mut dyn Told,
}

impl TarArchive<'_> {
    /// Adds the entry at this path of the snapshot.
    fn add(&mut self, path: &[u8], entry: &Entry, reader: &mut ChunkReader) -> Result<()> {
        let mut name = path[self.folder.len() + 1..].to_vec();
        if entry.is_dir() {
            name.push(b'/');
        }
        let first = self.links.first_name(entry, name.clone())?;
        let has_content = entry.kind == Kind::File && first.is_none();
        let sparse = if has_content {
            SparseLengths::of(entry, reader)?
        } else {
            None
        };
        let form = first.as_deref().map(MemberForm::LinkTo);
        let form = form.or(sparse.as_ref().map(MemberForm::Sparse));
        self.write(&header(entry, &name, form))?;
        match sparse {
            _ if !has_content => Ok(()),
            Some(sparse) => self.add_data((path, entry), &sparse, reader),
            None => {
                file(path, entry, reader, self.out, self.told)?;
                self.write(&ZEROS[..padding(entry.size)])
            }
        }
    }

    /// Writes the map and the data of a file with holes.
    fn add_data(
        &mut self,
        (path, entry): (&[u8], &Entry),
        sparse: &SparseLengths,
        reader: &mut ChunkReader,
    ) -> Result<()> {
        sparse.write_map(entry, reader, self.out)?;
        let file = (path, entry);
        let written = write_content(file, reader, &mut LeftOut(self.out), self.told);
        self.told.end_of_loss();
        if written? != sparse.data_bytes {
            // A device that gives a part of a file now and not again leaves fewer bytes than the header says: readers
            // would look for the next entry at a wrong place.
            let what = "a part of a file with holes could not be read each time: the archive is no whole one";
            return Err(failed(std::io::Error::other(what)));
        }
        self.write(&ZEROS[..padding(sparse.stored_bytes())])
    }

    fn finish(mut self) -> Result<()> {
        self.write(&ZEROS[..1024])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes);
        written.map_err(failed)
    }
}

/// Forms of an entry that do not follow from its kind.
#[derive(Clone, Copy)]
enum MemberForm<'a> {
    /// A further name of the file that the archive has under this name.
    LinkTo(&'a [u8]),
    /// A file with holes, and its map's measures.
    Sparse(&'a SparseLengths),
}

/// Least size, in bytes, that has no room in a header's octal digits.
const SIZE_END: u64 = 1 << 33;

/// Returns the header blocks of an entry: a pax header where the plain one is not enough, then the plain one.
fn header(entry: &Entry, name: &[u8], form: Option<MemberForm<'_>>) -> Vec<u8> {
    let mut sparse = None;
    let (kind, link, size) = match (entry.kind, form) {
        (_, Some(MemberForm::LinkTo(first))) => (b'1', first, 0),
        (_, Some(MemberForm::Sparse(of))) => {
            sparse = Some(name);
            (b'0', &b""[..], of.stored_bytes())
        }
        (Kind::File, None) => (b'0', &b""[..], entry.size),
        (Kind::Symlink, _) => (b'2', &entry.target[..], 0),
        (Kind::CharDevice, _) => (b'3', &b""[..], 0),
        (Kind::BlockDevice, _) => (b'4', &b""[..], 0),
        (Kind::Dir, _) => (b'5', &b""[..], 0),
        (Kind::Fifo | Kind::Socket, _) => (b'6', &b""[..], 0),
    };
    // A reader that does not know this form of holes gets map and data under a name that says so.
    let shown = sparse.map(in_place_of);
    let name = shown.as_deref().unwrap_or(name);
    let records = pax_records(entry, name, link, size, sparse);
    let mut out = Vec::new();
    if !records.is_empty() {
        out.extend_from_slice(&plain(entry, b"pax", b"", b'x', records.len() as u64));
        out.extend_from_slice(&records);
        out.extend_from_slice(&ZEROS[..padding(records.len() as u64)]);
    }
    out.extend_from_slice(&plain(entry, name, link, kind, size));
    out
}

/// Returns the name that GNU tar shows to readers that do not know its sparse format.
fn in_place_of(name: &[u8]) -> Vec<u8> {
    let (folder, base) = match name.iter().rposition(|&b| b == b'/') {
        Some(at) => name.split_at(at + 1),
        None => (&b""[..], name),
    };
    [folder, b"GNUSparseFile.0/", base].concat()
}

/// Returns the pax records of an entry; `sparse` is the name of a file with holes.
fn pax_records(
    entry: &Entry,
    name: &[u8],
    link: &[u8],
    size: u64,
    sparse: Option<&[u8]>,
) -> Vec<u8> {
    let mut records = Vec::new();
    let mut record = |key: &str, value: &[u8]| {
        // A record's length counts its own digits, too.
        let rest = key.len() + value.len() + 3;
        let len = (rest + 1..)
            .find(|len| rest + len.to_string().len() == *len)
            .expect("a number that counts its own digits exists");
        records.extend_from_slice(format!("{len} {key}=").as_bytes());
        records.extend_from_slice(value);
        records.push(b'\n');
    };
    if name.len() > 100 || !name.is_ascii() {
        record("path", name);
    }
    if link.len() > 100 || !link.is_ascii() {
        record("linkpath", link);
    }
    // For a file with holes the plain header has the stored size: Python takes this record for the size of the file.
    if size >= SIZE_END && sparse.is_none() {
        record("size", size.to_string().as_bytes());
    }
    if entry.mtime.nanos > 0 || entry.mtime.secs < 0 || entry.mtime.secs >= 1 << 33 {
        record("mtime", decimal(entry.mtime).as_bytes());
    }
    if let Some(atime) = entry.atime {
        record("atime", decimal(atime).as_bytes());
    }
    if entry.owner.uid >= 1 << 21 {
        record("uid", entry.owner.uid.to_string().as_bytes());
    }
    if entry.owner.gid >= 1 << 21 {
        record("gid", entry.owner.gid.to_string().as_bytes());
    }
    // This record must follow the path, which would be taken for the name otherwise.
    if let Some(name) = sparse {
        record("GNU.sparse.major", b"1");
        record("GNU.sparse.minor", b"0");
        record("GNU.sparse.name", name);
        record("GNU.sparse.realsize", entry.size.to_string().as_bytes());
    }
    for (name, value) in entry.xattrs.iter() {
        if let Some((key, text)) = acl::record(name, value) {
            record(key, text.as_bytes());
        }
        // An attribute whose name a record cannot hold is left out: tar has no form for it.
        if let Ok(name) = std::str::from_utf8(name)
            && !name.contains('=')
        {
            record(&format!("SCHILY.xattr.{name}"), value);
        }
    }
    records
}

/// Returns seconds with their fraction, as a decimal number; negative before 1970.
fn decimal(time: Time) -> String {
    let nanos = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    format!(
        "{sign}{}.{:09}",
        nanos / 1_000_000_000,
        nanos % 1_000_000_000
    )
}

fn plain(entry: &Entry, name: &[u8], link: &[u8], kind: u8, size: u64) -> [u8; 512] {
    let mut block = [0; 512];
    let mut text = |at: usize, len: usize, value: &[u8]| {
        let len = value.len().min(len);
        block[at..at + len].copy_from_slice(&value[..len]);
    };
    let octal = |digits: usize, n: u64| {
        format!("{:0digits$o}\0", n.min((1 << (3 * digits)) - 1)).into_bytes()
    };
    text(0, 100, name);
    text(100, 8, &octal(7, entry.mode.into()));
    text(108, 8, &octal(7, entry.owner.uid.into()));
    text(116, 8, &octal(7, entry.owner.gid.into()));
    text(124, 12, &octal(11, size));
    if size >= SIZE_END {
        // GNU tar's form: a bit, and then the number. Where a pax record has the size, the record counts.
        text(
            124,
            12,
            &[&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat(),
        );
    }
    text(136, 12, &octal(11, entry.mtime.secs.max(0) as u64));
    text(148, 8, b"        ");
    text(156, 1, &[kind]);
    text(157, 100, link);
    text(257, 8, b"ustar\x0000");
    text(265, 31, entry.owner.user.as_bytes());
    text(297, 31, entry.owner.group.as_bytes());
    text(329, 8, &octal(7, rustix::fs::major(entry.rdev).into()));
    text(337, 8, &octal(7, rustix::fs::minor(entry.rdev).into()));
    let sum: u64 = block.iter().map(|&b| u64::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers find the next entry by the header's size; some take a record for the length of the file.
    #[test]
    fn what_is_stored_of_a_huge_file_with_holes_is_told_by_its_header_alone() {
        let mut entry = Entry::new(b"file".to_vec(), Kind::File);
        entry.size = 10 << 30;
        let sparse = SparseLengths {
            stretches: 2,
            map_bytes: 40,
            data_bytes: 9 << 30,
        };
        let special = Some(MemberForm::Sparse(&sparse));
        let header = header(&entry, b"folder/file", special);
        let has = |what: &[u8]| header.windows(what.len()).any(|there| there == what);
        assert!(has(b" GNU.sparse.name=folder/file\n"));
        assert!(has(b" GNU.sparse.realsize=10737418240\n"));
        assert!(!has(b" size="));
        let plain = &header[header.len() - 512..];
        assert!(plain.starts_with(b"folder/GNUSparseFile.0/file\0"));
        let stored = 512 + (9u64 << 30);
        assert_eq!(plain[124..128], [0x80, 0, 0, 0]);
        assert_eq!(plain[128..136], stored.to_be_bytes());
    }
}
