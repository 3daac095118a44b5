//! Lists the names of a folder, in order, in bounded RAM. Where a folder has more names than a pass keeps, one pass
//! gives the first names, and the next one those behind them.

use std::iter::Peekable;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::vec::IntoIter;

use onefold_io::Interruptions;
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Names that one pass over a folder keeps, in bytes with overhead.
pub const PASS_BYTES_MAX: usize = 8 << 20;
pub const NAME_OVERHEAD_BYTES: usize = size_of::<FolderName>();
/// Names that are listed between two questions whether the caller still wants them: a listing may have no end.
const NAMES_UNASKED: usize = 1024;

/// A name in a folder's listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderName {
    pub name: Vec<u8>,
    pub inode: u64,
    /// Kind of the name, as far as the listing says.
    pub listed_as: ListedAs,
}

/// Kind of a name, as far as its folder's listing says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedAs {
    File,
    Dir,
    /// Another kind, or the listing does not say it.
    Other,
}

impl From<FileType> for ListedAs {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            _ => Self::Other,
        }
    }
}

impl FolderName {
    /// Makes a name that the user gave.
    pub fn given(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            inode: 0,
            listed_as: ListedAs::Other,
        }
    }
}

/// Names of a folder, in order.
pub struct Listing {
    /// Names of one pass.
    pub names: Vec<FolderName>,
    /// Whether more names follow.
    pub more: bool,
    /// Error that ended the listing too early.
    pub failed: Option<Errno>,
}

/// Returns the names after `after`, as many as `bytes_max` bytes hold. With `fails_after` the listing fails after that
/// many names. It ends with an error soon after `is_stopped` returns true.
pub fn sorted_names(
    dir: &OwnedFd,
    after: Option<&[u8]>,
    bytes_max: usize,
    fails_after: Option<usize>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Listing, Errno> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    let mut pass = Pass::new(after, bytes_max);
    let mut buf = [MaybeUninit::uninit(); 32 << 10];
    let mut listing = RawDir::new(dir, &mut buf);
    let mut failed = None;
    let (mut unasked, mut interruptions) = (0, Interruptions::default());
    while let Some(entry) = listing.next() {
        unasked += 1;
        if unasked == NAMES_UNASKED && is_stopped() {
            failed = Some(Errno::CANCELED);
            break;
        }
        unasked %= NAMES_UNASKED;
        let entry = match entry {
            Ok(_) if fails_after.is_some_and(|most| pass.names.len() >= most) => Err(Errno::IO),
            other => other,
        };
        match entry {
            Ok(entry) => {
                let listed_as = entry.file_type().into();
                pass.add(entry.file_name().to_bytes(), entry.ino(), listed_as);
            }
            Err(Errno::INTR) if interruptions.allow() => {}
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
    }
    Ok(pass.end(failed))
}

/// Gives all names of a folder, one after another, in order.
pub struct SortedNames {
    bytes_max: usize,
    names: Peekable<IntoIter<FolderName>>,
    /// Last name of the pass before.
    last: Option<Vec<u8>>,
    /// Whether more names follow this pass.
    more: bool,
}

impl SortedNames {
    /// Makes a sequence before the first name; a pass keeps `bytes_max` bytes of names.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            names: Vec::new().into_iter().peekable(),
            last: None,
            more: true,
        }
    }

    /// Returns the next name in `dir`, unless it comes after `last`; without `last`, any name.
    pub fn next_up_to(
        &mut self,
        dir: &OwnedFd,
        last: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Errno> {
        while self.names.peek().is_none() && self.more {
            let listing = sorted_names(dir, self.last.as_deref(), self.bytes_max, None, &|| false)?;
            if let Some(e) = listing.failed {
                return Err(e);
            }
            self.more = listing.more;
            self.last = listing.names.last().map(|last| last.name.clone());
            self.names = listing.names.into_iter().peekable();
        }
        let is_due = |listed: &FolderName| last.is_none_or(|last| &listed.name[..] <= last);
        Ok(self.names.next_if(is_due).map(|listed| listed.name))
    }
}

/// Names that one pass keeps of those that come in any order: the first ones in order, each once.
struct Pass<'a> {
    after: Option<&'a [u8]>,
    bytes_max: usize,
    names: Vec<FolderName>,
    bytes: usize,
    /// Last name that may belong to this pass; names behind it are for the next one.
    ceiling: Option<Vec<u8>>,
}

impl<'a> Pass<'a> {
    fn new(after: Option<&'a [u8]>, bytes_max: usize) -> Self {
        Self {
            after,
            bytes_max,
            names: Vec::new(),
            bytes: 0,
            ceiling: None,
        }
    }

    fn add(&mut self, name: &[u8], inode: u64, listed_as: ListedAs) {
        let is_beyond = self
            .ceiling
            .as_deref()
            .is_some_and(|ceiling| name > ceiling);
        let is_before = self.after.is_some_and(|after| name <= after);
        if matches!(name, b"." | b"..") || is_beyond || is_before {
            return;
        }
        self.bytes += name.len() + NAME_OVERHEAD_BYTES;
        self.names.push(FolderName {
            name: name.to_vec(),
            inode,
            listed_as,
        });
        if self.bytes > 2 * self.bytes_max {
            self.sort();
            self.keep_first();
            self.ceiling = self.names.last().map(|last| last.name.clone());
        }
    }

    /// Sorts the names, and drops repeated ones: a file system may give a name twice that is replaced while it lists.
    fn sort(&mut self) {
        self.names.sort_unstable();
        self.names.dedup_by(|next, before| next.name == before.name);
    }

    /// Keeps the first names, up to the limit in bytes.
    fn keep_first(&mut self) {
        self.bytes = 0;
        let mut keep = 0;
        for listed in &self.names {
            let more = listed.name.len() + NAME_OVERHEAD_BYTES;
            if self.bytes + more > self.bytes_max {
                break;
            }
            self.bytes += more;
            keep += 1;
        }
        self.names.truncate(keep);
    }

    fn end(mut self, failed: Option<Errno>) -> Listing {
        self.sort();
        Listing {
            names: self.names,
            more: self.ceiling.is_some() && failed.is_none(),
            failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some file systems list a name twice while it is replaced by renaming, with the old and the new inode.
    #[test]
    fn a_name_that_is_listed_twice_is_kept_once() {
        let mut given = Vec::new();
        for n in 0..500 {
            let name = format!("{:03}", n * 7 % 500).into_bytes();
            given.push((name.clone(), n));
            given.push((name, n + 1000));
        }
        for bytes_max in [200, 3000, 1 << 20] {
            let (mut all, mut after): (Vec<Vec<u8>>, _) = (Vec::new(), None);
            loop {
                let mut pass = Pass::new(after.as_deref(), bytes_max);
                given
                    .iter()
                    .for_each(|(name, inode)| pass.add(name, *inode, ListedAs::File));
                let listing = pass.end(None);
                all.extend(listing.names.into_iter().map(|listed| listed.name));
                after = all.last().cloned();
                if !listing.more {
                    break;
                }
            }
            let expected = (0..500).map(|n| format!("{n:03}").into_bytes());
            assert_eq!(all, expected.collect::<Vec<_>>(), "{bytes_max}");
        }
    }

    #[test]
    fn a_listing_that_nobody_wants_any_more_ends_before_its_folder_does() {
        let dir = tempfile::tempdir().expect("dir");
        for n in 0..3 * NAMES_UNASKED {
            std::fs::write(dir.path().join(n.to_string()), "").expect("write");
        }
        let dir: OwnedFd = std::fs::File::open(dir.path()).expect("open").into();
        let list = |is_stopped: bool| {
            let listing = sorted_names(&dir, None, PASS_BYTES_MAX, None, &|| is_stopped);
            let listing = listing.expect("listing");
            (listing.names.len(), listing.failed)
        };
        let (listed, failed) = list(true);
        assert!(listed < NAMES_UNASKED, "{listed}");
        assert_eq!(failed, Some(Errno::CANCELED));
        assert_eq!(list(false), (3 * NAMES_UNASKED, None));
    }
}
