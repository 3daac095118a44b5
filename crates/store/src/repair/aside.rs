//! Containers that a repair set aside: renamed, since the device did not give all of them, or nothing in them could be
//! unsealed. The device may be well by now, and the key there.
//!
//! Invariant: one is looked at under the name that it has, and is a container again only once all of it was
//! verified, so that meanwhile no session counts on it. Taking it back replaces nothing.

use std::sync::Arc;

use onefold_index::ContainerId;
use onefold_io::{ASIDE_SUFFIX, ErrorKind};

use crate::container::compression::Decompressor;
use crate::container::opened::Opened;
use crate::container::{self, CONTAINER_FOLDER};
use crate::objects::ObjectStore;
use crate::repair::RepairReport;
use crate::repository::{Repository, RepositoryState, Stored};
use crate::sweep::{StageProgress, SweepObserver};
use crate::{Error, Result};

/// A container that was set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aside {
    /// The container's name before it was set aside.
    pub id: ContainerId,
    /// The name that it has.
    pub object: String,
    /// Bytes as stored, 0 where that cannot be had.
    pub bytes: u64,
}

impl RepositoryState {
    /// All that were set aside, sorted by name. `failed` hears why a folder of them cannot be listed, and says whether
    /// to go on without it.
    pub(crate) fn aside_past(
        &self,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<Aside>> {
        let listed = self.objects.list_past(CONTAINER_FOLDER, failed)?;
        let mut all = Vec::new();
        for object in listed {
            let Some(id) = id_of(&object) else {
                continue;
            };
            let bytes = match self.objects.len(&object) {
                // Removed since, or somebody's folder: not a container in any case.
                Err(error) if error.is_damage() => continue,
                len => len.unwrap_or(0),
            };
            all.push(Aside { id, object, bytes });
        }
        Ok(all)
    }

    /// Renames a container, durably, so that it is none.
    pub(crate) fn set_aside(&self, id: ContainerId) -> Result<Aside> {
        let own = container::object_name(id);
        let mut object = format!("{own}{ASIDE_SUFFIX}");
        for number in 2.. {
            match self.objects.rename_new(&own, &object) {
                Err(Error::Io(error)) if error.kind == ErrorKind::Exists => {
                    object = format!("{own}{ASIDE_SUFFIX}-{number}");
                }
                renamed => {
                    renamed?;
                    break;
                }
            }
        }
        let bytes = self.objects.len(&object).unwrap_or(0);
        Ok(Aside { id, object, bytes })
    }

    /// Renames what was set aside, durably, so that it is a container again.
    fn take_back(&self, aside: &Aside) -> Result<()> {
        let own = container::object_name(aside.id);
        self.objects.rename_new(&aside.object, &own)
    }
}

/// The container that an object was before it was set aside.
fn id_of(object: &str) -> Option<ContainerId> {
    let (before, _) = object.split_once(ASIDE_SUFFIX)?;
    container::id_of_object(before)
}

impl Repository {
    /// Looks once more at what was set aside, and takes back what is whole now.
    pub(crate) fn take_back_what_is_whole(
        &self,
        report: &mut RepairReport,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        let all = self.shared.aside_past(&mut Err)?;
        let mut zstd = Decompressor::new()?;
        for (aside, done) in all.iter().zip(0..) {
            observer.progress(StageProgress {
                stage: "reading what was set aside",
                done,
                total: all.len() as u64,
            });
            let read = read_through(&under_its_name(&self.shared, aside), aside.id, &mut zstd);
            match read.and_then(|()| self.shared.take_back(aside)) {
                Ok(()) => report.taken_back.push(aside.id),
                Err(error) if stays(&error) => report.still_aside.push((aside.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether it is for this that one stays aside: it is not whole, another version's, or another container has its name.
fn stays(error: &Error) -> bool {
    let is_taken = matches!(error, Error::Io(error) if error.kind == ErrorKind::Exists);
    is_taken || error.is_unusable()
}

/// Reads and verifies all of a container.
pub(crate) fn read_through(
    stored: &Stored,
    id: ContainerId,
    zstd: &mut Decompressor,
) -> Result<()> {
    let opened = Opened::read(stored, id)?;
    for (number, block) in opened.table.blocks.iter().enumerate() {
        let raw = opened.read_block(stored, number, zstd)?;
        let numbers = block.first_chunk..block.first_chunk + block.chunks;
        opened
            .verify(stored, numbers, &raw)
            .try_for_each(|(_, verdict)| verdict.map(drop))?;
    }
    Ok(())
}

/// Returns the stored objects as if this container had its own name again.
fn under_its_name(stored: &Stored, aside: &Aside) -> Stored {
    let objects = UnderItsName {
        objects: Arc::clone(&stored.objects),
        own: container::object_name(aside.id),
        aside: aside.object.clone(),
    };
    Stored {
        objects: Arc::new(objects),
        keys: stored.keys.clone(),
        tail_bytes: stored.tail_bytes,
        local_cache: None,
    }
}

/// Objects, one of them under a name that it does not have.
struct UnderItsName {
    objects: Arc<dyn ObjectStore>,
    own: String,
    aside: String,
}

impl UnderItsName {
    fn real<'a>(&'a self, name: &'a str) -> &'a str {
        if name == self.own { &self.aside } else { name }
    }
}

impl ObjectStore for UnderItsName {
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.objects.put(self.real(name), parts)
    }

    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.objects.put_if_absent(self.real(name), parts)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.objects.get(self.real(name))
    }

    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.objects.get_range(self.real(name), offset, buf)
    }

    fn forget_cached(&self, name: &str) {
        self.objects.forget_cached(self.real(name));
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.objects.len(self.real(name))
    }

    fn list_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>> {
        self.objects.list_past(prefix, failed)
    }

    fn lengths_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>> {
        self.objects.lengths_past(prefix, failed)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.objects.delete(self.real(name))
    }

    fn keep(&self, names: &[String]) -> Result<()> {
        self.objects.keep(names)
    }

    fn has_folder(&self, folder: &str) -> Result<bool> {
        self.objects.has_folder(folder)
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        self.objects.make_folder(folder)
    }

    fn left_over(&self) -> Result<Vec<String>> {
        self.objects.left_over()
    }
}
