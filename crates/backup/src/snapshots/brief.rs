//! The part of a snapshot that stays in RAM where there are many snapshots: without its lists of paths and patterns,
//! which may take megabytes each.

use std::borrow::Cow;

use onefold_chunk::Fingerprint;
use onefold_store::{Repository, RootId};

use super::{Named, load_if_there};
use crate::wire::put_bytes;
use crate::{Result, Time};

/// Bytes of such lists that stay in RAM all the same, over all snapshots: these snapshots need not be read again.
pub(super) const LISTS_BYTES: usize = 8 << 20;
/// Bytes of paths by which series are sorted.
const ORDER_BYTES: usize = 1 << 10;

/// One of many snapshots.
#[derive(Clone, Debug)]
pub struct Brief {
    /// Name of the snapshot.
    pub id: RootId,
    /// Begin of the backup.
    pub time: Time,
    /// Machine of the backup.
    pub host: String,
    /// Tags: the user's words.
    pub tags: Vec<String>,
    /// Key of the paths that were backed up.
    pub paths: PathsKey,
    /// Bytes of all files.
    pub bytes: u64,
    whole: Option<Box<Named>>,
}

impl Brief {
    /// Makes the brief of a snapshot that is read alone: its lists do not stay in RAM.
    pub fn of(named: Named) -> Self {
        Self::within(named, &mut 0)
    }

    /// Makes the brief of a snapshot; its lists stay in RAM where `room_bytes` allows it, which is reduced.
    pub(super) fn within(named: Named, room_bytes: &mut usize) -> Self {
        let snapshot = &named.snapshot;
        let bytes = list_bytes(&snapshot.paths) + list_bytes(&snapshot.excludes);
        let left = room_bytes.checked_sub(bytes);
        Self {
            id: named.id,
            time: snapshot.time,
            host: snapshot.host.clone(),
            tags: snapshot.tags.clone(),
            paths: PathsKey::of(&snapshot.paths),
            bytes: snapshot.summary.total_bytes_processed,
            whole: left.map(|left| {
                *room_bytes = left;
                Box::new(named)
            }),
        }
    }

    /// Returns the snapshot without its table of leaves, read again if needed; `None` where it was forgotten since it
    /// was listed.
    ///
    /// # Errors
    /// Errors of [`load_if_there`].
    pub fn whole(&self, repository: &Repository) -> Result<Option<Cow<'_, Named>>> {
        match &self.whole {
            Some(whole) => Ok(Some(Cow::Borrowed(whole))),
            None => Ok(load_if_there(repository, self.id)?.map(Cow::Owned)),
        }
    }
}

fn list_bytes(list: &[Vec<u8>]) -> usize {
    list.iter().map(|one| size_of_val(one) + one.len()).sum()
}

/// Key of a list of paths: equal for equal lists. Keys are in the order of the lists, as far as the first KiB of each
/// list tells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PathsKey {
    beginning: Box<[u8]>,
    all: Fingerprint,
}

impl PathsKey {
    /// Makes the key of this list.
    pub fn of(paths: &[Vec<u8>]) -> Self {
        let (mut beginning, mut all) = (Vec::new(), Vec::new());
        for path in paths {
            if beginning.len() < ORDER_BYTES {
                beginning.extend_from_slice(path);
                // No path has a zero byte: a longer list comes behind its beginning.
                beginning.push(0);
            }
            put_bytes(&mut all, path);
        }
        beginning.truncate(ORDER_BYTES);
        Self {
            beginning: beginning.into(),
            all: Fingerprint::of(&all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    fn list(paths: &[&str]) -> Vec<Vec<u8>> {
        paths.iter().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn keys_are_in_the_order_of_their_lists() {
        let long = "/long".repeat(1000);
        let lists = [
            list(&[]),
            list(&["/a"]),
            list(&["/a", "/b"]),
            list(&["/a/b"]),
            list(&["/a0"]),
            list(&["/b", &long]),
            list(&["/c"]),
        ];
        assert!(lists.is_sorted());
        assert!(
            lists
                .windows(2)
                .all(|pair| PathsKey::of(&pair[0]) < PathsKey::of(&pair[1]))
        );
    }

    #[test]
    fn only_the_same_lists_have_the_same_key() {
        let long = "/long".repeat(1000);
        let key = |end: &str| PathsKey::of(&list(&[&long, end]));
        assert_eq!(key("/a"), key("/a"));
        assert_ne!(key("/a"), key("/b"));
    }

    #[test]
    fn long_lists_do_not_stand_in_ram() {
        let mut room_bytes = 10_000;
        let mut is_whole = |paths: usize| {
            let mut snapshot = Snapshot::empty();
            snapshot.paths = vec![vec![b'a'; 76]; paths];
            let (id, tree) = (RootId([0; 32]), [0; 32]);
            let brief = Brief::within(Named { id, tree, snapshot }, &mut room_bytes);
            brief.whole.is_some()
        };
        assert_eq!(
            [101, 60, 41, 40, 1, 0].map(&mut is_whole),
            [false, true, false, true, false, true]
        );
    }
}
